"""Kills exports before each of the changes that they make to the disk, and prints as JSON what was there after it.

Argument: a folder to write in. TensorFlow is imported once; every export that is killed runs in a fork of this process,
made before any op has run here.
"""

import collections
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import Outcome, Timed
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.placement import Placement
from tf_placer.report.views import RESULTS, SAVED_MODEL, write_report
from tf_placer.rewrite.saved_model import export_saved_model
from tf_placer.search.recorder import SearchResult

OF_FOLDERS = frozenset({"os.mkdir", "os.rename", "os.rmdir"})
DEADLINE_S = 60
Tree = dict[str, bytes]


def tree(folder: pathlib.Path) -> Tree:
    """Content of every file below a folder, but for where and when a page was written."""
    return {
        str(path.relative_to(folder)): re.sub(rb'"origin":\[.*?\]\]', b"", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def make_model(folder: pathlib.Path) -> None:
    module = tf.Module()
    module.weights = [tf.Variable(tf.random.stateless_uniform([64, 64], [0, i])) for i in range(4)]

    @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32, name="x")])
    def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
        for weights in module.weights:
            x = tf.nn.relu(x @ weights)
        return {"y": x}

    tf.saved_model.save(module, str(folder), signatures=serve)


def status_of(
    work: Callable[[], None], killed_before: int | None = None, changes: Collection[str] = OF_FOLDERS
) -> int:
    """Exit status of a fork that does some work, negative for a signal; it may be killed before change number N."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(DEADLINE_S)
    count = itertools.count()

    def before_each_event(event: str, args: tuple[Any, ...]) -> None:
        only_reads = event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if event in changes and not only_reads and next(count) == killed_before:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(before_each_event)
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - a fork must not return into its parent's code
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
    os._exit(0)


def kills_of(work: Callable[[], None], changes: Collection[str]) -> Iterator[None]:
    """Kills some work before its first change, its second and so on, until it ends before it is killed."""
    for change in itertools.count():
        status = status_of(work, change, changes)
        if status not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the export ended with status {status}")
        yield
        if status == 0:
            return


def states_of_export(folder: pathlib.Path, source: pathlib.Path, placement: Placement) -> list[str]:
    """What there is after each kill of ``export_saved_model``: nothing, what is unfinished, or the whole model."""
    target, unfinished, states = folder / "deep" / "placed", folder / ".deep.new", []
    export_saved_model(source, folder / "whole", placement)
    whole = tree(folder / "whole")
    for _ in kills_of(lambda: export_saved_model(source, target, placement), {*OF_FOLDERS, "open"}):
        if target.parent.exists():
            states.append("whole" if tree(target) == whole and not unfinished.exists() else "not whole")
            shutil.rmtree(target.parent)
        else:
            states.append("unfinished" if unfinished.exists() else "nothing")
    return states  # what a kill leaves is in nobody's way, or no later one would be whole


def a_report(item: Item, placement: Placement, step_s: float) -> Outcome:
    """What a search that found this placement reports."""
    bounds = lower_bounds(placement.problem)
    result = SearchResult(placement, "single", 0, "simulated", step_s, {}, bounds, step_s, 1, 0.0, False, ())
    return Outcome(Form(placement.problem, item), Timed.of_search("single", result), ())


def states_of_results(out: pathlib.Path, source: pathlib.Path, old: Outcome, new: Outcome) -> list[str]:
    """What there is after each kill of what replaces a run's results: all old ones, all new ones, or a part."""

    def write(report: Outcome) -> None:
        placement = report.search.placement
        write_report(
            report, out, None, lambda folder: export_saved_model(source, folder / SAVED_MODEL, placement)
        )

    sets, states = {}, []
    for name, report in (("new", new), ("old", old)):
        write(report)
        sets[name] = tree(out)
    for _ in kills_of(lambda: write(new), OF_FOLDERS):
        results = {name: content for name, content in tree(out).items() if not name.startswith(".")}
        whole = next((name for name, content in sets.items() if results == content), None)
        is_part = any(results.items() <= content.items() for content in sets.values())
        states.append(
            whole or ("part" if is_part and RESULTS[-1] not in results else f"mix {sorted(results)}")
        )
        write(old)
    if {path.name for path in out.iterdir()} != {name.partition("/")[0] for name in sets["old"]}:
        states.append("something is left behind")
    return states


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    source = folder / "model"
    if status_of(lambda: make_model(source)):  # in a fork, so that no op runs here
        raise RuntimeError("the model could not be made")
    item = Item.from_saved_model(source)
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    placements = [Placement(problem, problem.everything_on(device)) for device in (0, 1)]
    old, new = (a_report(item, placement, step_s) for step_s, placement in enumerate(placements, start=1))
    states = {
        "export": states_of_export(folder, source, placements[0]),
        "results": states_of_results(folder / "out", source, old, new),
    }
    json.dump({name: collections.Counter(of_kind) for name, of_kind in states.items()}, sys.stdout)


if __name__ == "__main__":
    main()
