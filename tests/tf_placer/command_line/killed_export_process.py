"""Kills exports at many moments and prints, as JSON, how many in which phase, and what was left wrong.

Arguments: a folder to write in, the number of kills of each kind, a seed. TensorFlow is imported once; every export
that is killed runs in a fork of this process, made before any op has run here.
"""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator

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

DEADLINE_S = 60.0
Tree = dict[str, bytes]


def tree(folder: pathlib.Path) -> Tree:
    """Content of every file below a folder, but for where and when a page was written."""
    return {
        str(path.relative_to(folder)): re.sub(rb'"origin":[[].*?[]][]]', b"", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@dataclasses.dataclass
class Found:
    """What the kills of one kind met."""

    phases: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)


def make_model(folder: pathlib.Path) -> None:
    module = tf.Module()
    module.weights = [tf.Variable(tf.random.stateless_uniform([512, 512], [0, i])) for i in range(4)]

    @tf.function(input_signature=[tf.TensorSpec([None, 512], tf.float32, name="x")])
    def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
        for weights in module.weights:
            x = tf.nn.relu(x @ weights)
        return {"y": x}

    tf.saved_model.save(module, str(folder), signatures=serve)


def in_fork(work: Callable[[], None]) -> int:
    """Starts ``work`` in a fork; its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - a fork must not return into its parent's code
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
    os._exit(0)


def wait(pid: int) -> int:
    """Exit status of a fork, negative for a signal; one that hangs is killed."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"a fork did not end in {DEADLINE_S} s")


def seconds_to(pid: int, there: Callable[[], bool]) -> float:
    """Waits until something is there or the fork has ended."""
    started = time.monotonic()
    while not there() and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.0002)
    return time.monotonic() - started


def killed_at_random(
    work: Callable[[], None],
    undo: Callable[[], None],
    unfinished: pathlib.Path,
    kills: int,
    rng: random.Random,
) -> Iterator[None]:
    """Kills ``work`` again and again: before ``unfinished`` is there, while it is there, and at any time, in turn.

    Yields once after an undisturbed run, then after each kill; ``undo`` removes what came of it before the next.
    """
    for _ in range(2):  # the first is slower, and not what the moments are drawn from
        undo()
        pid = in_fork(work)
        before_s = seconds_to(pid, unfinished.exists)
        started = time.monotonic()
        if wait(pid) != 0:
            raise RuntimeError("the undisturbed export failed")
        writing_s = time.monotonic() - started
    yield
    undo()
    for kill in range(kills):
        pid = in_fork(work)
        if kill % 3 == 0:
            # The first at once, or a machine that is busy now and was not before would meet none so early.
            time.sleep(rng.uniform(0, before_s / 2) if kill else 0)
        elif kill % 3 == 1:
            seconds_to(pid, unfinished.exists)
            time.sleep(rng.uniform(0, writing_s))
        else:
            time.sleep(rng.uniform(0, before_s + 1.2 * writing_s))
        os.kill(pid, signal.SIGKILL)
        wait(pid)
        yield
        undo()


def exports(folder: pathlib.Path, source: pathlib.Path, placement: Placement, kills: int, seed: int) -> Found:
    """Kills ``export_saved_model``: there is nothing, or the whole model."""
    target, unfinished = folder / "deep" / "placed", folder / ".deep.new"
    found = Found()
    export_saved_model(source, folder / "whole", placement)
    whole = tree(folder / "whole")
    moments = killed_at_random(
        lambda: export_saved_model(source, target, placement),
        lambda: shutil.rmtree(target.parent, ignore_errors=True),
        unfinished,
        kills,
        random.Random(seed),
    )
    next(moments)
    if tree(target) != whole:
        found.wrong.append("two exports differ")
    for _ in moments:
        part = tree(unfinished / target.name) if unfinished.exists() else {}
        if target.exists():
            found.phases["complete"] += 1
            if tree(target) != whole:
                found.wrong.append("a target that is not complete")
        elif target.parent.exists():
            found.wrong.append("the folder of a target without it")
        elif not part:
            found.phases["reading" if not unfinished.exists() else "beginning to copy"] += 1
        else:
            found.phases["syncing" if part == whole else "copying"] += 1
    # What the last one left is in nobody's way.
    export_saved_model(source, target, placement)
    if tree(target) != whole or unfinished.exists():
        found.wrong.append("what a kill left spoils the next export")
    return found


def a_report(item: Item, placement: Placement, step_s: float) -> Outcome:
    """What a search that found this placement reports."""
    bounds = lower_bounds(placement.problem)
    result = SearchResult(placement, "single", 0, "simulated", step_s, {}, bounds, step_s, 1, 0.0, False, ())
    return Outcome(Form(placement.problem, item), Timed.of_search("single", result), ())


def check_results(out: pathlib.Path, sets: dict[str, Tree], found: Found) -> None:
    """Only files of one of the sets are there, and all of it where its last file is."""
    here = {name: content for name, content in tree(out).items() if not name.startswith(".")}
    if not any(here.items() <= content.items() for content in sets.values()):
        found.wrong.append(f"a mix: {sorted(here)}")
    if RESULTS[-1] in here and here not in sets.values():
        found.wrong.append(f"{RESULTS[-1]} without the rest: {sorted(here)}")
    whole = next((name for name, content in sets.items() if here == content), "neither")
    found.phases[f"{whole}, unfinished beside it" if any(out.glob(".*")) else whole] += 1


def replaced_results(
    out: pathlib.Path, source: pathlib.Path, old: Outcome, new: Outcome, kills: int, seed: int
) -> Found:
    """Kills what replaces an earlier run's results: there is the old set, the new set or no whole one."""

    def write(report: Outcome) -> None:
        placement = report.search.placement
        write_report(
            report, out, None, lambda folder: export_saved_model(source, folder / SAVED_MODEL, placement)
        )

    found, sets = Found(), {}
    for name, report in (("new", new), ("old", old)):
        write(report)
        sets[name] = tree(out)
    moments = killed_at_random(
        lambda: write(new), lambda: write(old), out / ".results.new", kills, random.Random(seed)
    )
    for _ in itertools.islice(moments, 1, None):
        check_results(out, sets, found)
    # The swap takes microseconds: killed before each of its steps.
    for step in itertools.count():
        status = wait(in_fork(lambda step=step: (_kill_at_rename(step), write(new))))
        check_results(out, sets, found)
        write(old)
        if status == 0:
            break
    if {path.name for path in out.iterdir()} != {name.partition("/")[0] for name in sets["old"]}:
        found.wrong.append("something is left behind")
    return found


def _kill_at_rename(step: int) -> None:
    """Makes this process end itself instead of its rename number ``step``."""
    rename, count = os.rename, itertools.count()

    def renamed(source: pathlib.Path, target: pathlib.Path) -> None:
        if next(count) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.rename = renamed


def main() -> None:
    folder, kills, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    source = folder / "model"
    pid = in_fork(lambda: make_model(source))  # so that no op runs here
    if wait(pid) != 0:
        raise RuntimeError("the model could not be made")
    item = Item.from_saved_model(source)
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    placements = [Placement(problem, problem.everything_on(device)) for device in (0, 1)]
    old, new = (a_report(item, placement, step_s) for step_s, placement in enumerate(placements, start=1))
    found = {
        "export": exports(folder, source, placements[0], kills, seed),
        "results": replaced_results(folder / "out", source, old, new, kills, seed),
    }
    json.dump({name: vars(one) for name, one in found.items()}, sys.stdout)


if __name__ == "__main__":
    main()
