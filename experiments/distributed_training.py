"""Policies trained by several controllers around a parameter server, as ColocRL and HDP were.

    python -m experiments.distributed_training [--controllers=8] [--workers=2] [--quick] [--out=docs/results]

Writes a page, a CSV and a picture: the best step after so many placements and so many seconds, with 1, 2, 4 ...
controllers; how late gradients are, and what that costs; 20 controllers with 8 workers each; and controllers that
measure on this machine's own workers. Clocks are simulated, from times that the command measures first. One file a
training stays in OUT/cells: run again, it goes on where it was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

import tf_placer
from experiments.main_program import out_flag, run_program
from experiments.studies.controllers import Durations, Trained, Training, train, train_in_processes
from experiments.studies.controllers_page import (
    MEASURED,
    NAME,
    PAPER,
    PREPARED,
    RACE_ROUNDS,
    STEPS,
    Cells,
    Plan,
    as_papers,
    by_controllers,
    draw,
    head,
    of_processes,
    on_workers,
    several,
    staleness,
    summary,
)
from experiments.studies.formats import csv_text
from tf_placer import workloads
from tf_placer.agents.learner import PolicyLearner, WarmStart
from tf_placer.base.files import reserved, write_atomically
from tf_placer.base.method_spec import MethodSpec
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator
from tf_placer.planners.plain import single_device_placements
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig, race_times_s
from tf_placer.search import methods

_CONTROLLERS = flags.DEFINE_integer(
    "controllers", 8, "Most controllers; those of 1, 2, 4 ... up to it are compared.", lower_bound=1
)
_WORKERS = flags.DEFINE_integer("workers", 2, "Workers of each controller.", lower_bound=1)
_QUICK = flags.DEFINE_bool("quick", False, "One program, few placements, one seed, at most four controllers.")
_OUT = out_flag(None, "Folder for the results; docs/results, or out/results with --quick.")

_TIMING = RuntimeConfig(warmup_steps=1, steps=3, keep=3)
_UPDATES = 20  # that are timed
_LAST = 8  # the last samples are this part of all


def plan_of(quick: bool, most: int, workers: int) -> Plan:
    """What ``--quick`` leaves of it."""
    command = f"python -m experiments.{NAME}{' --quick' * quick} --controllers={most} --workers={workers}"
    programs = (("two_towers", "k40x2"),)
    if quick:
        counts = (1, min(4, most)) if most > 1 else (1,)
        return Plan(programs, counts, (400, 640, 24), (0,), (0,), workers, (2,), command)
    counts = (*(2**power for power in range(most.bit_length()) if 2**power < most), most)
    return Plan(programs, counts, (1000, 1200, 64), (0, 1, 2, 3, 4), (0, 3), workers, (1, 2), command)


@dataclasses.dataclass(frozen=True)
class Row:
    """One training of the page.

    Attributes:
      program, method, seed: of it.
      training: controllers and times.
      evaluations: placements.
      placements: of an update.
    """

    program: str
    method: str
    seed: int
    training: Training
    evaluations: int
    placements: int

    @property
    def file(self) -> str:
        """Name of its file: another one for other settings."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        return f"{self.program}_{self.method}_{self.training.controllers}_{self.seed}_{digest}.json"


def trained(row: Row, problem: Problem, evaluator: Evaluator | None, cells: pathlib.Path) -> dict[str, Any]:
    """A training as JSON data, or what an earlier call has kept of it. Times are shares of the best single device's."""
    path = cells / row.file
    if path.is_file():
        return dict(json.loads(path.read_text(encoding="utf8")))
    config = by_controllers(row.placements, row.evaluations // row.placements)[row.method]
    start, single_s = best_single(problem, evaluator or SimulatedEvaluator(problem))
    found = train(
        problem,
        reused(row.method),
        row.training,
        budget_evaluations=row.evaluations,
        seed=row.seed,
        config=config,
        evaluator=evaluator,
        start=start,
    )
    cell = as_cell(found, single_s)
    if isinstance(evaluator, tf_placer.RuntimeEvaluator):
        cell["raced_s"] = raced_s(evaluator, start, found)
    write_atomically(path, json.dumps(cell))
    print(
        f"{row.program} {row.method} controllers={row.training.controllers} seed={row.seed}: best "
        f"{cell['best']:.3f}, {cell['seconds'][-1]:.0f} s by the clock, {cell['mean_late']:.1f} late",
        flush=True,
    )
    return cell


@functools.cache
def reused(method: str) -> MethodSpec:
    """The row of a method whose learner is the last one again, set back, where that is the same: tracing is slow."""
    spec = methods.find(method)
    last: dict[Any, tuple[PolicyLearner, list[np.ndarray]]] = {}

    def build(problem: Problem, config: Any, warm_start: WarmStart, seed: int) -> PolicyLearner:
        key = problem.digest(), config, warm_start.plans.tobytes(), warm_start.reference_s, seed
        if key not in last:
            learner = spec.build(problem, config, warm_start, seed)
            last.clear()
            last[key] = learner, [one.numpy() for one in learner.variables]
        learner, values = last[key]
        for variable, value in zip(learner.variables, values, strict=True):
            variable.assign(value)
        return learner

    return dataclasses.replace(spec, build=build)


def raced_s(runtime: tf_placer.RuntimeEvaluator, start: np.ndarray, found: Trained) -> list[float]:
    """Step times of where it began and of what it found, in turn: best of many, each measured once, is luck too."""
    best = found.result.placement.device_of_unit
    if np.array_equal(best, start):
        return [found.result.runtime_s] * 2
    return race_times_s(runtime.race(np.stack([start, best]), RACE_ROUNDS))


def as_cell(found: Trained, single_s: float) -> dict[str, Any]:
    """What is kept of a training."""
    drawn = found.result.history[1:]  # the first is where it begins
    part = max(1, len(drawn) // _LAST)
    first_s, last_s = (
        float(np.nanmean([entry.mean_s for entry in some])) for some in (drawn[:part], drawn[-part:])
    )
    return {
        "single_s": single_s,
        "best": float(found.best_s[-1]) / single_s,
        "first_mean": first_s / single_s,
        "last_mean": last_s / single_s,
        "evaluations": [entry.evaluations for entry in drawn],
        "best_by_evaluations": [entry.best_s / single_s for entry in drawn],
        "seconds": found.seconds.tolist(),
        "best_by_seconds": np.minimum(found.best_s / single_s, 1.0).tolist(),
        "mean_late": found.mean_late,
        "most_late": found.most_late,
        "pushed": len(found.late),
        "refused": found.refused,
        "search_s": found.result.search_s,
    }


def best_single(problem: Problem, evaluator: Evaluator) -> tuple[np.ndarray, float]:
    """[U] everything on the fastest single device, where trainings begin, and its step time."""
    rows = single_device_placements(problem)
    measured = evaluator.evaluate(rows)
    times_s = np.where(measured.status == Status.OK, measured.runtime_s, np.inf)
    return rows[int(np.argmin(times_s))], float(times_s.min())


# Times of the parts of an update, on this machine.


def update_durations(problem: Problem, method: str, placements: int) -> dict[str, int]:
    """Medians of drawing, gradient and applying, in ns, of a learner whose functions are traced."""
    simulator = SimulatedEvaluator(problem)
    start, single_s = best_single(problem, simulator)

    def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    warm_start = WarmStart(start[np.newaxis], single_s, simulate)
    learner = methods.find(method).build(problem, by_controllers(placements, 100)[method], warm_start, 0)
    took: list[list[int]] = []
    for _ in range(_UPDATES + 2):
        moments = [time.monotonic_ns()]
        proposal = learner.propose()
        rows = proposal.placements.numpy()
        moments.append(time.monotonic_ns())
        times_s, fits = simulate(rows)
        given = tf.constant(times_s), tf.constant(fits)
        moments.append(time.monotonic_ns())
        gradients = learner.gradients(proposal.actions, *given)
        tf.nest.map_structure(lambda one: one.numpy(), tf.nest.flatten(gradients, expand_composites=True))
        moments.append(time.monotonic_ns())
        learner.apply(gradients)
        moments.append(time.monotonic_ns())
        took.append(np.diff(moments).tolist())
    sample, _, gradient, apply = np.median(took[2:], axis=0).astype(int).tolist()
    return {"sample_ns": sample, "gradient_ns": gradient, "apply_ns": apply}


def prepare_ns(runtime: tf_placer.RuntimeEvaluator, repeats: int) -> int:
    """Least time of this machine to make a placement ready, in ns: all but its steps, when little else ran."""
    generator, took = np.random.default_rng(0), []
    problem = runtime.problem
    rows = generator.integers(problem.num_devices, size=(repeats, problem.num_units))
    for row in problem.legalized(rows).astype(np.int32):
        begin_s = time.monotonic()
        measured = runtime.evaluate(row[np.newaxis])
        steps = _TIMING.warmup_steps + _TIMING.steps
        if measured.status[0] == Status.OK:
            took.append(time.monotonic() - begin_s - steps * float(measured.runtime_s[0]))
    return int(1e9 * max(0.0, min(took)))


@contextlib.contextmanager
def on_runtime(cells: pathlib.Path) -> Iterator[tf_placer.RuntimeEvaluator]:
    """What measures on this machine's own workers, the same ones each time."""
    item = workloads.build(MEASURED)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local(kept_in=cells / "cluster.toml"))
    with tf_placer.RuntimeEvaluator(item, problem, _TIMING) as runtime:
        yield runtime


def prepared_ns(cells: pathlib.Path) -> int:
    """The same as ``prepare_ns``, of workers that are started for it."""
    with on_runtime(cells) as runtime:
        return prepare_ns(runtime, PREPARED)


def kept(path: pathlib.Path, measure: Callable[[], Any]) -> Any:
    """Measures once: what a page compares is by the same times, also when it goes on."""
    if not path.is_file():
        write_atomically(path, json.dumps(measure()))
    return json.loads(path.read_text(encoding="utf8"))


# The page.


def main(argv: list[str]) -> None:
    del argv
    # Each training traces a learner of its own, which TensorFlow takes for an oversight.
    tf.get_logger().setLevel(logging.ERROR)
    out = pathlib.Path(_OUT.value or ("out/results" if _QUICK.value else "docs/results"))
    cells = out / "cells" / NAME
    cells.mkdir(parents=True, exist_ok=True)
    plan = plan_of(_QUICK.value, _CONTROLLERS.value, _WORKERS.value)
    with reserved(cells, f"--out={out}"):
        prepare = int(kept(cells / "prepare_ns.json", lambda: prepared_ns(cells)))
        rows, records = by_program(plan, prepare, cells)
        method, processes = in_processes(plan, cells)
        local = on_local_workers(plan, prepare, cells)
        pages = [head(plan), summary(plan, rows), several(plan, rows), staleness(plan, rows)]
        pages += [
            as_papers(plan, rows),
            of_processes(plan, method, processes),
            on_workers(plan, prepare, local),
        ]
        write_atomically(out / f"{NAME}.csv", csv_text(list(records[0]), records))
        write_atomically(out / f"{NAME}.png", draw(plan, rows))
        write_atomically(out / f"{NAME}.md", "\n".join(line for page in pages for line in page) + "\n")
    print(f"wrote {out / NAME}.md, its CSV and its picture")


def by_program(plan: Plan, prepare: int, cells: pathlib.Path) -> tuple[Cells, list[dict[str, Any]]]:
    """All trainings in the simulator, and a record of each."""
    found: Cells = {}
    records = []
    for workload, cluster in plan.programs:
        problem = tf_placer.build_problem(workloads.build(workload), tf_placer.Cluster.preset(cluster))
        for method in by_controllers(1, 1):
            path = cells / f"durations_{workload}_{method}.json"
            parts = kept(path, functools.partial(update_durations, problem, method, plan.placements))
            durations = Durations(prepare_ns=prepare, steps=STEPS, **parts)
            is_last = workload == plan.programs[-1][0]
            for seed in plan.seeds:
                for name, training, evaluations in trainings(plan, durations, is_last):
                    placements = max(plan.placements, training.workers)
                    row = Row(workload, method, seed, training, evaluations, placements)
                    cell = trained(row, problem, None, cells)
                    found.setdefault((workload, method, name), []).append(cell)
                    records.append(record(row, name, cell))
    return found, records


def trainings(plan: Plan, durations: Durations, is_last: bool) -> Iterator[tuple[str, Training, int]]:
    """Rows of a program: controllers, bounds, and for the last program the papers' numbers."""
    few, many, _ = plan.evaluations
    for count in plan.controllers:
        yield str(count), Training(count, plan.workers, durations=durations), few
    for bound in plan.bounds:
        most = plan.controllers[-1]
        yield f"late {bound}", Training(most, plan.workers, bound, durations), few
    if is_last:
        for count in (1, PAPER[0]):
            yield f"paper {count}", Training(count, PAPER[1], durations=durations), many


def record(row: Row, name: str, cell: dict[str, Any]) -> dict[str, Any]:
    """A line of the CSV."""
    training = row.training
    return {
        "program": row.program, "method": row.method, "row": name, "controllers": training.controllers,
        "workers": training.workers, "most_late_allowed": training.most_late, "seed": row.seed,
        "placements": row.evaluations, "best": cell["best"], "last_mean": cell["last_mean"],
        "clock_s": cell["seconds"][-1], "mean_late": cell["mean_late"], "most_late": cell["most_late"],
        "pushed": cell["pushed"], "refused": cell["refused"], "search_s": cell["search_s"],
    }  # fmt: skip


def on_local_workers(plan: Plan, prepare: int, cells: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Trainings of each method that measure on this machine's own workers; ``prepare`` is in ns."""
    found = {}
    with on_runtime(cells) as runtime:
        for method in by_controllers(1, 1):
            path = cells / f"durations_local_{method}.json"
            measure = functools.partial(update_durations, runtime.problem, method, plan.placements)
            steps = _TIMING.warmup_steps + _TIMING.steps
            durations = Durations(prepare_ns=prepare, steps=steps, **kept(path, measure))
            training = Training(plan.local_controllers, plan.workers, durations=durations)
            row = Row(f"{MEASURED}_local", method, 0, training, plan.evaluations[2], plan.placements)
            found[method] = trained(row, runtime.problem, runtime, cells)
    return found


def in_processes(plan: Plan, cells: pathlib.Path) -> tuple[str, dict[int, dict[str, Any]]]:
    """A method, and trainings of it by controllers that are processes of this machine."""
    workload, cluster = plan.programs[0]
    method, evaluations = list(by_controllers(1, 1))[-1], plan.evaluations[0] // 2
    problem = tf_placer.build_problem(workloads.build(workload), tf_placer.Cluster.preset(cluster))
    start, single_s = best_single(problem, SimulatedEvaluator(problem))

    def measure(count: int) -> dict[str, Any]:
        found = train_in_processes(
            problem,
            method,
            Training(count),
            by_controllers(plan.placements, evaluations // plan.placements)[method],
            budget_evaluations=evaluations,
            start=start,
        )
        return as_cell(found, single_s)

    names = {count: f"processes_{method}_{count}_{evaluations}.json" for count in plan.processes}
    return method, {
        count: kept(cells / name, functools.partial(measure, count)) for count, name in names.items()
    }


if __name__ == "__main__":
    run_program(main)
