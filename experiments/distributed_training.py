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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags
from matplotlib.figure import Figure

import tf_placer
from experiments.main_program import out_flag, run_program
from experiments.studies.formats import csv_text, header, line, machine_lines, png
from experiments.studies.small_agents import by_controllers
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
from tf_placer.training.controllers import Durations, Trained, Training, train
from tf_placer.training.processes import train_in_processes

_CONTROLLERS = flags.DEFINE_integer(
    "controllers", 8, "Most controllers; those of 1, 2, 4 ... up to it are compared.", lower_bound=1
)
_WORKERS = flags.DEFINE_integer("workers", 2, "Workers of each controller.", lower_bound=1)
_QUICK = flags.DEFINE_bool("quick", False, "One program, few placements, one seed, at most four controllers.")
_OUT = out_flag(None, "Folder for the results; docs/results, or out/results with --quick.")

NAME = "distributed_training"
_LEAST_PLACEMENTS = 4  # of an update: as HDP's k
_STEPS = 10  # that a worker times of each placement, as HDP had it
_PAPER = (20, 8)  # controllers and workers of the papers
_MEASURED, _PREPARED = (
    "two_towers",
    8,
)  # what runs on this machine's own workers, and how often to find its times
_TIMING = RuntimeConfig(warmup_steps=1, steps=3, keep=3)
_RACE_ROUNDS = 25
_NEAR = 1.05  # "near" what one controller ends with
_LAST = 8  # the last samples are this part of all


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of all that the page compares.

    Attributes:
      programs: workload and preset, each.
      controllers: counts that are compared.
      evaluations: placements of each training; of those with the papers' controllers; of those that measure.
      seeds: of each row.
      bounds: updates that a gradient of the most controllers may be late.
    """

    programs: tuple[tuple[str, str], ...]
    controllers: tuple[int, ...]
    evaluations: tuple[int, int, int]
    seeds: tuple[int, ...]
    bounds: tuple[int, ...]


def plan_of(quick: bool, most: int) -> Plan:
    """What ``--quick`` leaves of it."""
    if quick:
        counts = (1, min(4, most)) if most > 1 else (1,)
        return Plan((("two_towers", "k40x2"),), counts, (400, 640, 24), (0,), (0,))
    counts = (*(2**power for power in range(most.bit_length()) if 2**power < most), most)
    return Plan((("two_towers", "k40x2"),), counts, (1000, 1200, 64), (0, 1, 2, 3, 4), (0, 3))


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
    return race_times_s(runtime.race(np.stack([start, best]), _RACE_ROUNDS))


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


def update_durations(problem: Problem, method: str, placements: int, repeats: int = 20) -> dict[str, int]:
    """Medians of drawing, gradient and applying, in ns, of a learner whose functions are traced."""
    simulator = SimulatedEvaluator(problem)
    start, single_s = best_single(problem, simulator)

    def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    warm_start = WarmStart(start[np.newaxis], single_s, simulate)
    learner = methods.find(method).build(problem, by_controllers(placements, 100)[method], warm_start, 0)
    took: list[list[int]] = []
    for _ in range(repeats + 2):
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
    item = workloads.build(_MEASURED)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local(kept_in=cells / "cluster.toml"))
    with tf_placer.RuntimeEvaluator(item, problem, _TIMING) as runtime:
        yield runtime


def prepared_ns(cells: pathlib.Path) -> int:
    """The same as ``prepare_ns``, of workers that are started for it."""
    with on_runtime(cells) as runtime:
        return prepare_ns(runtime, _PREPARED)


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
    plan = plan_of(_QUICK.value, _CONTROLLERS.value)
    with reserved(cells, f"--out={out}"):
        prepare = int(kept(cells / "prepare_ns.json", lambda: prepared_ns(cells)))
        rows, records = by_program(plan, prepare, cells)
        local = on_local_workers(plan, prepare, cells)
        real = in_processes(plan, cells)
        pages = [head(plan), summary(plan, rows), several(plan, rows), staleness(plan, rows)]
        pages += [as_papers(plan, rows), real, local]
        write_atomically(out / f"{NAME}.csv", csv_text(list(records[0]), records))
        write_atomically(out / f"{NAME}.png", draw(plan, rows))
        write_atomically(out / f"{NAME}.md", "\n".join(line for page in pages for line in page) + "\n")
    print(f"wrote {out / NAME}.md, its CSV and its picture")


Cells = dict[tuple[str, str, str], list[dict[str, Any]]]  # program, method, row -> a cell a seed


def by_program(plan: Plan, prepare: int, cells: pathlib.Path) -> tuple[Cells, list[dict[str, Any]]]:
    """All trainings in the simulator, and a record of each."""
    found: Cells = {}
    records = []
    for workload, cluster in plan.programs:
        problem = tf_placer.build_problem(workloads.build(workload), tf_placer.Cluster.preset(cluster))
        for method in by_controllers(1, 1):
            path = cells / f"durations_{workload}_{method}.json"
            parts = kept(path, functools.partial(update_durations, problem, method, _placements()))
            durations = Durations(prepare_ns=prepare, steps=_STEPS, **parts)
            is_last = workload == plan.programs[-1][0]
            for seed in plan.seeds:
                for name, training, evaluations in trainings(plan, durations, is_last):
                    placements = max(_LEAST_PLACEMENTS, training.workers)
                    row = Row(workload, method, seed, training, evaluations, placements)
                    cell = trained(row, problem, None, cells)
                    found.setdefault((workload, method, name), []).append(cell)
                    records.append(record(row, name, cell))
    return found, records


def trainings(plan: Plan, durations: Durations, is_last: bool) -> Iterator[tuple[str, Training, int]]:
    """Rows of a program: controllers, bounds, and for the last program the papers' numbers."""
    few, many, _ = plan.evaluations
    for count in plan.controllers:
        yield str(count), Training(count, _WORKERS.value, durations=durations), few
    for bound in plan.bounds:
        most = plan.controllers[-1]
        yield f"late {bound}", Training(most, _WORKERS.value, bound, durations), few
    if is_last:
        for count in (1, _PAPER[0]):
            yield f"paper {count}", Training(count, _PAPER[1], durations=durations), many


def _placements() -> int:
    return max(_LEAST_PLACEMENTS, _WORKERS.value)


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


def head(plan: Plan) -> list[str]:
    """Command, seed, machine, day, and what is compared."""
    command = f"python -m experiments.{NAME}" + (" --quick" if _QUICK.value else "")
    return [
        "# Training by several controllers",
        "",
        f"- Command: `{command} --controllers={_CONTROLLERS.value} --workers={_WORKERS.value}`",
        f"- Seed: {', '.join(map(str, plan.seeds))}",
        *machine_lines(),
        "",
        "ColocRL (2017) and HDP (2018) trained their policies with 20 controllers around a parameter server, each",
        "with 4 or 8 machines that measure. Here a controller fetches the weights, draws placements, has its workers",
        "measure them, computes a gradient by the weights that it fetched, and pushes it. Others have pushed",
        "meanwhile, so the gradient is late. One that is later than a bound is refused and counted; no controller",
        "waits. Where no bound is named, it is twice the controllers. Each has its own baseline of rewards.",
        "",
        "**What two cores can show:** what late gradients do to learning, and not how fast so many machines are. All",
        "of it runs in one process. Clocks are simulated, event by event, from times that were measured on this",
        "machine: of drawing, of a gradient, of applying one, and of making a placement of two_towers ready on two",
        f"workers. A worker then runs {_STEPS} steps, each as long as the evaluator says. No network is in the clocks.",
        "",
        "Every training begins at the best single device, which is 1; 0.8 is a step that takes 20 % less time. Those",
        f"of the first two tables try {plan.evaluations[0]} placements, {_placements()} for each update, with",
        f"{_WORKERS.value} workers a controller. Policies are small (`experiments/studies/small_agents.py`); baselines",
        "and losses are the papers'.",
        "",
        f"![Best step over placements and over seconds of the clock]({NAME}.png)",
    ]


def summary(plan: Plan, found: Cells) -> list[str]:
    """What the most controllers gain and lose, a line for each program and method."""
    most, lines = plan.controllers[-1], [""]
    for workload, _ in plan.programs:
        for method in by_controllers(1, 1):
            one, all_ = (found[workload, method, str(count)] for count in (plan.controllers[0], most))
            clock = _mean_clock_s(all_) / _mean_clock_s(one)
            lines.append(
                f"- {method} on {workload}: {most} controllers tried as many placements as one in {clock:.2f} of the "
                f"clock.\n  Gradients were {_mean(all_, 'mean_late'):.1f} updates late. Best {_mean(all_, 'best'):.3f} "
                f"beside {_mean(one, 'best'):.3f}, mean of the last samples {_mean(all_, 'last_mean'):.3f} beside "
                f"{_mean(one, 'last_mean'):.3f}."
            )
    return lines


def several(plan: Plan, found: Cells) -> list[str]:
    """Table of counts of controllers."""
    lines = ["", "## Controllers", ""]
    lines += header(
        "program", "method", "controllers", "best, each seed", "mean", "mean of the last samples", "clock",
        f"seeds within {_NEAR - 1:.0%} of one controller's mean best", "placements until then", "clock until then",
        "late: mean, most", "refused",
    )  # fmt: skip
    for workload, _ in plan.programs:
        for method in by_controllers(1, 1):
            one = found[workload, method, str(plan.controllers[0])]
            target = _NEAR * _mean(one, "best")
            for count in plan.controllers:
                some = found[workload, method, str(count)]
                reached = [when for cell in some if (when := until(cell, target)) is not None]
                lines.append(
                    line(
                        workload, method, str(count), " ".join(f"{cell['best']:.3f}" for cell in some),
                        f"{_mean(some, 'best'):.3f}", f"{_mean(some, 'last_mean'):.3f}",
                        _clock(_mean_clock_s(some)),
                        f"{len(reached)} of {len(some)}",
                        f"{np.mean([when[0] for when in reached]):.0f}" if reached else "-",
                        _clock(float(np.mean([when[1] for when in reached]))) if reached else "-",
                        f"{_mean(some, 'mean_late'):.1f}, {max(cell['most_late'] for cell in some)}",
                        _refused(some),
                    )
                )  # fmt: skip
    return lines


def staleness(plan: Plan, found: Cells) -> list[str]:
    """Table of bounds on how late gradients may be."""
    most = plan.controllers[-1]
    lines = [
        "",
        "## What late gradients cost",
        "",
        f"{most} controllers, and one by itself, which is never late, after as many placements. With a bound of 0 only",
        "gradients of the weights as they are get applied. Lateness is of all that were pushed, refused ones too.",
        "",
        *header(
            "program", "method", "controllers", "may be late", "best", "mean of the last samples", "late: mean, most",
            "refused", "clock",
        ),
    ]  # fmt: skip
    for workload, _ in plan.programs:
        for method in by_controllers(1, 1):
            rows = [(1, "-", str(plan.controllers[0]))]
            rows += [(most, str(bound), f"late {bound}") for bound in plan.bounds]
            rows += [(most, str(2 * most), str(most))]
            for count, bound, name in rows:
                some = found[workload, method, name]
                lines.append(
                    line(
                        workload, method, str(count), bound, f"{_mean(some, 'best'):.3f}",
                        f"{_mean(some, 'last_mean'):.3f}",
                        f"{_mean(some, 'mean_late'):.1f}, {max(cell['most_late'] for cell in some)}", _refused(some),
                        _clock(_mean_clock_s(some)),
                    )
                )  # fmt: skip
    return lines


def as_papers(plan: Plan, found: Cells) -> list[str]:
    """Table of the papers' numbers."""
    controllers, workers = _PAPER
    workload = plan.programs[-1][0]
    lines = [
        "",
        f"## {controllers} controllers with {workers} workers each",
        "",
        f"The papers' numbers, {plan.evaluations[1]} placements of {workload} each, {workers} for each update; the",
        "clock is simulated as above.",
        "",
        *header("method", "controllers", "best, each seed", "mean", "mean of the last samples", "clock",
                "placements a second", "late: mean, most", "refused"),
    ]  # fmt: skip
    for method in by_controllers(1, 1):
        for count in (1, controllers):
            some = found[workload, method, f"paper {count}"]
            clock_s = _mean_clock_s(some)
            lines.append(
                line(
                    method, str(count), " ".join(f"{cell['best']:.3f}" for cell in some), f"{_mean(some, 'best'):.3f}",
                    f"{_mean(some, 'last_mean'):.3f}", _clock(clock_s), f"{plan.evaluations[1] / clock_s:.3g}",
                    f"{_mean(some, 'mean_late'):.1f}, {max(cell['most_late'] for cell in some)}", _refused(some),
                )
            )  # fmt: skip
    return lines


def on_local_workers(plan: Plan, prepare: int, cells: pathlib.Path) -> list[str]:
    """Two controllers that measure on this machine's own workers; ``prepare`` is in ns."""
    evaluations, controllers = plan.evaluations[2], min(2, plan.controllers[-1])
    found = {}
    with on_runtime(cells) as runtime:
        for method in by_controllers(1, 1):
            path = cells / f"durations_local_{method}.json"
            measure = functools.partial(update_durations, runtime.problem, method, _placements())
            durations = Durations(
                prepare_ns=prepare, steps=_TIMING.warmup_steps + _TIMING.steps, **kept(path, measure)
            )
            training = Training(controllers, _WORKERS.value, durations=durations)
            row = Row(f"{_MEASURED}_local", method, 0, training, evaluations, _placements())
            found[method] = trained(row, runtime.problem, runtime, cells)
    lines = [
        "",
        "## On this machine's own workers",
        "",
        f"{controllers} controllers, seed 0, {evaluations} placements of {_MEASURED}, each measured on the TensorFlow",
        "runtime. The workers of all controllers are the same two processes of a core each, one placement after the",
        f"other: the clock says what it would be on {controllers * _WORKERS.value} such machines. In the end the best",
        f"plan and the best single device were raced in turn, {_RACE_ROUNDS} steps each. Making a placement ready took",
        f"{prepare / 1e9:.2f} s, the least of {_PREPARED} times.",
        "",
        *header("method", "single device", "best plan", "share", "mean of samples, first and last",
                "late: mean, most", "refused", "clock", "seconds that passed"),
    ]  # fmt: skip
    for method, cell in found.items():
        single_s, best_s = cell["raced_s"]
        means = " to ".join(
            f"{1e3 * cell['single_s'] * cell[name]:.0f}" for name in ("first_mean", "last_mean")
        )
        lines.append(
            line(
                method, f"{1e3 * single_s:.0f} ms", f"{1e3 * best_s:.0f} ms", f"{best_s / single_s:.2f}", f"{means} ms",
                f"{cell['mean_late']:.1f}, {cell['most_late']}", str(cell["refused"]), _clock(cell["seconds"][-1]),
                _clock(cell["search_s"]),
            )
        )  # fmt: skip
    return lines


def in_processes(plan: Plan, cells: pathlib.Path) -> list[str]:
    """Table of controllers that are processes of this machine."""
    workload, cluster = plan.programs[0]
    method, evaluations = list(by_controllers(1, 1))[-1], plan.evaluations[0] // 2
    problem = tf_placer.build_problem(workloads.build(workload), tf_placer.Cluster.preset(cluster))
    start, single_s = best_single(problem, SimulatedEvaluator(problem))
    config = by_controllers(_placements(), evaluations // _placements())[method]

    def measure(count: int) -> dict[str, Any]:
        found = train_in_processes(
            problem,
            method,
            Training(count, _WORKERS.value),
            config,
            budget_evaluations=evaluations,
            seed=0,
            start=start,
        )
        return as_cell(found, single_s)

    lines = [
        "",
        "## Controllers that are processes",
        "",
        "No clock is simulated here: each controller is a process that draws, simulates and pushes when it is ready;",
        f"{method}, {evaluations} placements of {workload}, seed 0. Two processes and the server share the two cores of this",
        "machine with whatever else runs on it, so only how late gradients are says something of other machines. Seconds",
        "are those between the first measured placements and the last.",
        "",
        *header(
            "processes",
            "best",
            "mean of the last samples",
            "placements a second",
            "late: mean, most",
            "refused",
        ),
    ]
    for count in (2,) if _QUICK.value else (1, 2):
        cell = kept(
            cells / f"processes_{method}_{count}_{evaluations}.json", functools.partial(measure, count)
        )
        took_s = cell["seconds"][-1] - cell["seconds"][0]
        rate = (len(cell["seconds"]) - 1) * _placements() / took_s
        lines.append(
            line(
                str(count), f"{cell['best']:.3f}", f"{cell['last_mean']:.3f}", f"{rate:.3g}",
                f"{cell['mean_late']:.1f}, {cell['most_late']}", _refused([cell]),
            )
        )  # fmt: skip
    return lines


def until(cell: dict[str, Any], target: float) -> tuple[int, float] | None:
    """Placements and seconds of the clock until the best is as good as that; None if it never is."""
    counts = [
        count
        for count, best in zip(cell["evaluations"], cell["best_by_evaluations"], strict=True)
        if best <= target
    ]
    seconds = [s for s, best in zip(cell["seconds"], cell["best_by_seconds"], strict=True) if best <= target]
    return (counts[0], seconds[0]) if counts and seconds else None


def _mean(cells: Sequence[dict[str, Any]], name: str) -> float:
    return float(np.mean([cell[name] for cell in cells]))


def _mean_clock_s(cells: Sequence[dict[str, Any]]) -> float:
    return float(np.mean([cell["seconds"][-1] for cell in cells]))


def _refused(cells: Sequence[dict[str, Any]]) -> str:
    pushed = sum(cell["pushed"] for cell in cells)
    return f"{sum(cell['refused'] for cell in cells) / max(1, pushed):.0%}"


def _clock(seconds: float) -> str:
    """Seconds as people read them, of three digits at most."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 5400 else f"{seconds / 3600:.3g} h"


def draw(plan: Plan, found: Cells) -> bytes:
    """A PNG: best over placements and over the clock, the mean over seeds and the band of all."""
    lanes = [(program, method) for program, _ in plan.programs for method in by_controllers(1, 1)]
    figure = Figure(figsize=(10, 2.8 * len(lanes) + 0.4), layout="constrained")
    grid: Any = figure.subplots(len(lanes), 2, squeeze=False)
    for axes, (program, method) in zip(grid, lanes, strict=True):
        for number, count in enumerate(plan.controllers):
            some = found[program, method, str(count)]
            for axis, x, y in (
                (axes[0], "evaluations", "best_by_evaluations"),
                (axes[1], "seconds", "best_by_seconds"),
            ):
                last = min(cell[x][-1] for cell in some)
                first = max(cell[x][0] for cell in some)
                at = np.linspace(first, last, 200)
                values = np.array(
                    [
                        np.array(cell[y])[np.searchsorted(cell[x], at + 1e-9, side="right") - 1]
                        for cell in some
                    ]
                )
                axis.plot(at, values.mean(axis=0), label=f"{count} controllers", color=f"C{number}")
                axis.fill_between(at, values.min(axis=0), values.max(axis=0), color=f"C{number}", alpha=0.15)
        axes[0].set_title(f"{program}, {method}", fontsize=9)
        axes[0].set_ylabel("step / best single device", fontsize=8)
        axes[0].set_xlabel("placements", fontsize=8)
        axes[1].set_xlabel("seconds of the clock", fontsize=8)
        axes[1].set_xscale("log")
        for axis in axes:
            axis.tick_params(labelsize=8)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return png(figure, dpi=100)


if __name__ == "__main__":
    run_program(main)
