"""Page on several controllers: tables and a picture of trainings, each a dict of what is kept of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.studies.formats import header, line, machine_lines, png
from tf_placer.agents.colocrl.learner import ColocRlConfig
from tf_placer.agents.hdp.config import HdpConfig

NAME = "distributed_training"
STEPS = 10  # that a worker times of each placement, as HDP had it
PAPER = (20, 8)  # controllers and workers of the papers
MEASURED, PREPARED = (
    "two_towers",
    8,
)  # what runs on this machine's own workers, and how often to find its times
RACE_ROUNDS = 25
_LEAST_PLACEMENTS = 4
_NEAR = 1.05  # "near" what one controller ends with


def by_controllers(placements: int, updates: int) -> dict[str, ColocRlConfig | HdpConfig]:
    """Settings for controllers: moving-average baselines and no elites, as in the papers, and small policies.

    Args:
      placements: K, of an update.
      updates: over half of which the policy explores less and less.
    """
    half = max(1, updates // 2)
    return {
        "colocrl": ColocRlConfig(
            max_groups=32,
            hidden=32,
            start_probability=0.5,
            placements=placements,
            learning_rate=5e-3,
            standardize=False,
            elite_share=0.0,
            entropy_start=0.6,
            entropy_end=0.1,
            entropy_updates=half,
            valid_only_after=20,
        ),
        "hdp": HdpConfig(
            num_groups=16,
            grouper_hidden=32,
            placer_hidden=32,
            landmarks=8,
            groupings=1,
            placements=placements,
            loss="reinforce",
            incumbent=False,
            row_rate=0.0,
            learning_rate=1e-2,
            grouper_learning_rate=1e-4,
            start_probability=0.5,
            standardize=False,
            entropy_start=0.6,
            entropy_end=0.1,
            entropy_updates=half,
            noise_updates=20,
            valid_only_after=20,
        ),
    }


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of all that the page compares.

    Attributes:
      programs: workload and preset, each.
      controllers: counts that are compared.
      evaluations: placements of each training; of those with the papers' controllers; of those that measure.
      seeds: of each row.
      bounds: updates that a gradient of the most controllers may be late.
      workers: of each controller.
      processes: counts of controllers that are processes.
      command: that makes the page.
    """

    programs: tuple[tuple[str, str], ...]
    controllers: tuple[int, ...]
    evaluations: tuple[int, int, int]
    seeds: tuple[int, ...]
    bounds: tuple[int, ...]
    workers: int
    processes: tuple[int, ...]
    command: str

    @property
    def placements(self) -> int:
        """K of an update: four, as HDP's k, or one for each worker."""
        return max(_LEAST_PLACEMENTS, self.workers)

    @property
    def local_controllers(self) -> int:
        """Those that measure on this machine's own workers."""
        return min(2, self.controllers[-1])


Cells = dict[tuple[str, str, str], list[dict[str, Any]]]  # program, method, row -> a cell a seed


def head(plan: Plan) -> list[str]:
    """Command, seed, machine, day, and what is compared."""
    return [
        "# Training by several controllers",
        "",
        f"- Command: `{plan.command}`",
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
        "but one section runs in one process. Clocks are simulated, event by event, from times that were measured on",
        "this machine, whatever else ran on it: of drawing, of a gradient, of applying one, and of making a placement",
        f"of {MEASURED} ready on two workers. A worker then runs {STEPS} steps, each as long as the evaluator says. No",
        "network is in the clocks.",
        "",
        "Every training begins at the best single device, which is 1; 0.8 is a step that takes 20 % less time. Those",
        f"of the first two tables try {plan.evaluations[0]} placements, {plan.placements} for each update, with "
        f"{plan.workers} workers a controller.",
        "Policies are small (`experiments/studies/controllers_page.py`); baselines and losses are the papers'.",
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
    controllers, workers = PAPER
    workload = plan.programs[-1][0]
    lines = [
        "",
        f"## {controllers} controllers with {workers} workers each",
        "",
        f"The papers' numbers; {plan.evaluations[1]} placements of {workload} each, {workers} for each update.",
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


def on_workers(plan: Plan, prepare_ns: int, found: Mapping[str, dict[str, Any]]) -> list[str]:
    """Table of controllers that measure on this machine's own workers, a row for each method."""
    count = plan.local_controllers
    lines = [
        "",
        "## On this machine's own workers",
        "",
        f"{count} controllers, seed 0, {plan.evaluations[2]} placements of {MEASURED}, each measured on the TensorFlow",
        "runtime. The workers of all controllers are the same two processes of a core each, one placement after the",
        f"other: the clock says what it would be on {count * plan.workers} such machines. In the end the best plan and",
        f"the best single device were raced in turn, {RACE_ROUNDS} steps each. Making a placement ready took",
        f"{prepare_ns / 1e9:.2f} s, the least of {PREPARED} times.",
        "",
        *header("method", "single device", "best plan", "share", "mean of samples, first and last",
                "late: mean, most", "refused", "clock", "seconds that passed"),
    ]  # fmt: skip
    for method, cell in found.items():
        single_s, best_s = cell["raced_s"]
        means = [f"{1e3 * cell['single_s'] * cell[name]:.0f}" for name in ("first_mean", "last_mean")]
        lines.append(
            line(
                method, f"{1e3 * single_s:.0f} ms", f"{1e3 * best_s:.0f} ms", f"{best_s / single_s:.2f}",
                f"{' to '.join(means)} ms", f"{cell['mean_late']:.1f}, {cell['most_late']}", _refused([cell]),
                _clock(cell["seconds"][-1]), _clock(cell["search_s"]),
            )
        )  # fmt: skip
    return lines


def of_processes(plan: Plan, method: str, found: Mapping[int, dict[str, Any]]) -> list[str]:
    """Table of controllers that are processes, a row for each count."""
    lines = [
        "",
        "## Controllers that are processes",
        "",
        "No clock is simulated here: each controller is a process that draws, simulates and pushes when it is ready.",
        f"{method}, {plan.evaluations[0] // 2} placements of {plan.programs[0][0]}, seed 0. They and the server share",
        "the cores of this machine with whatever else runs on it, so these placements a second say nothing of other",
        "machines. They are counted from the first that was done.",
        "",
        *header("processes", "best", "mean of the last samples", "placements a second", "late: mean, most", "refused"),
    ]  # fmt: skip
    for count, cell in found.items():
        rate = (len(cell["seconds"]) - 1) * plan.placements / (cell["seconds"][-1] - cell["seconds"][0])
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
                axis.plot(
                    at,
                    values.mean(axis=0),
                    label=f"{count} controller{'s' * (count > 1)}",
                    color=f"C{number}",
                )
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
