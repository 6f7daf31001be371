"""What is a policy worth that was taught on other families, beside plain search?

    python -m experiments.taught_policy [--seeds=3] [--long_s=30] [--short_s=5] [--out=FILE.md]

Each program of the table ``go_generalization``, by GO's policy with weights that were not taught its family: the
likeliest placement, and the best of 64; 64 list schedules whose priorities are noisy; plain search (the portfolio's
lead) of ``--long_s`` and ``--short_s``, and the latter begun at the policy's best; the policy fine-tuned in 50 updates.
All as fractions of the long search; and the seconds of the policy beside those after which the long search was there.
"""

from __future__ import annotations

import pathlib
import time

import numpy as np
from absl import flags

import tf_placer
from experiments.curves.machine import machine_lines
from experiments.main_program import run_program
from experiments.papers.description import TABLES, Row, read_description
from tf_placer import workloads
from tf_placer.agents.go.zero_shot import GoZeroShotConfig, go_zero_shot
from tf_placer.evaluation.any_order import search_simulator
from tf_placer.evaluation.measurement import Status
from tf_placer.files import write_atomically
from tf_placer.planners.schedule import Schedule, first_op_decides, scheduled
from tf_placer.problem.unit_order import alike_devices, fastest_devices
from tf_placer.search import methods
from tf_placer.search.search import search
from tf_placer.search.spec import Role

_SEEDS = flags.DEFINE_integer("seeds", 3, "Of each, from 100 on.", lower_bound=1)
_LONG_S = flags.DEFINE_float("long_s", 30.0, "Seconds of plain search.", lower_bound=1.0)
_SHORT_S = flags.DEFINE_float("short_s", 5.0, "Seconds of search on top of the policy.", lower_bound=1.0)
_OUT = flags.DEFINE_string("out", None, "Page to write.")

_TABLE, _COLUMN = "go_generalization", "go_zero_shot"
_SAMPLES = 64
_NOISE = 0.3  # standard deviation of the logarithm of a list schedule's priorities
_TITLES = (
    "likeliest",
    "best of 64",
    "64 noisy lists",
    "short search",
    "policy, short search",
    "fine-tuned",
    "best of 64: seconds",
    "plain search: seconds to there",
    "fine-tuned: seconds",
    "plain search: seconds to there",
)
_FRACTIONS = 6  # of the titles; the others are of seconds
_TUNED = "go_tuned"
_UPDATES = 1632  # placements: 32 by taught weights, and 50 updates of 32


def main(argv: list[str]) -> None:
    """Prints the table, and writes it."""
    del argv
    lines = [f"| program | {' | '.join(_TITLES)} |", f"|---|{'---|' * len(_TITLES)}"]
    every = []
    for row in read_description(TABLES / f"{_TABLE}.toml").rows:
        worth = np.array([_worth(row, 100 + number) for number in range(_SEEDS.value)])
        every.append(_mean(worth))
        lines.append(_line(row.name, every[-1]))
        print("\n".join(lines[-3:] if len(lines) == 3 else lines[-1:]), flush=True)
    lines.append(_line("mean", _mean(np.array(every))))
    print(lines[-1])
    if _OUT.value is not None:
        write_atomically(pathlib.Path(_OUT.value), "\n".join([*_head(), *lines]) + "\n")


def _worth(row: Row, seed: int) -> np.ndarray:
    """[10] what stands below the titles, of one seed."""
    problem = tf_placer.build_problem(workloads.build(row.workload), tf_placer.Cluster.preset(row.cluster))
    simulator, plain = search_simulator(problem), methods.the(Role.LEAD)

    def times_s(rows: np.ndarray) -> np.ndarray:
        found = simulator.evaluate(problem.legalized(rows))
        return np.where(found.status == Status.OK, found.runtime_s, np.inf)

    long = search(problem, plain, _LONG_S.value, seed=seed)

    def there_s(runtime_s: float) -> float:
        """When the long search was there; infinite where it never was."""
        return min((at.elapsed_s for at in long.history if at.best_s <= runtime_s), default=np.inf)

    begin_s = time.monotonic()
    rows = go_zero_shot(problem, GoZeroShotConfig(**row.settings[_COLUMN]), seed)
    took_s = time.monotonic() - begin_s
    policy_s = times_s(rows)
    begun = rows[int(np.argmin(policy_s))] if np.isfinite(policy_s).any() else None
    tuned = search(problem, "go", budget_evaluations=_UPDATES, seed=seed, config=row.settings[_TUNED])
    fractions = (
        policy_s[0],
        policy_s.min(),
        times_s(_noisy_lists(problem, seed)).min(),
        search(problem, plain, _SHORT_S.value, seed=seed).runtime_s,
        search(problem, plain, _SHORT_S.value, seed=seed, start=begun).runtime_s,
        tuned.runtime_s,
    )
    seconds = (took_s, there_s(policy_s.min()), tuned.history[-1].elapsed_s, there_s(tuned.runtime_s))
    return np.concatenate([np.divide(fractions, long.runtime_s), seconds])


def _noisy_lists(problem: tf_placer.Problem, seed: int) -> np.ndarray:
    """[64, U] list schedules, the first without noise; on all devices and on the fast ones in turn."""
    generator = np.random.default_rng(seed)
    rank = problem.op_graph.bottom_level_with_transfers_ns.astype(np.float64)
    rows: list[np.ndarray] = []
    for number in range(_SAMPLES):
        noise = _NOISE * generator.standard_normal(len(rank)) if number else 0.0
        order = np.argsort(-rank * np.exp(noise), kind="stable")

        def run(schedule: Schedule, order: np.ndarray = order) -> None:
            first_op_decides(problem, schedule, order, schedule.end_ns)

        devices = (fastest_devices, alike_devices)[number % 2](problem)
        rows += scheduled(problem, devices, run)[:1]
    return np.array(rows)


def _mean(worth: np.ndarray) -> np.ndarray:
    """[10] geometric means over the first axis; infinite where one does not fit."""
    mean: np.ndarray = np.exp(np.log(worth).mean(axis=0))
    return mean


def _line(name: str, worth: np.ndarray) -> str:
    told = [f"{value:.3f}" if np.isfinite(value) else "OOM" for value in worth[:_FRACTIONS]]
    told += [f"{value:.1f}" if np.isfinite(value) else "never" for value in worth[_FRACTIONS:]]
    return f"| {name} | {' | '.join(told)} |"


def _head() -> list[str]:
    seeds, long_s, short_s = _SEEDS.value, _LONG_S.value, _SHORT_S.value
    return [
        "# What is a policy worth that was taught on other families?",
        "",
        f"- Command: `python -m experiments.taught_policy --seeds={seeds} --long_s={long_s:g} --short_s={short_s:g}`",
        f"- Seed: {', '.join(str(100 + number) for number in range(seeds))}",
        *machine_lines(),
        "",
        f"Step times as fractions of {long_s:g} s of plain search (`{methods.the(Role.LEAD).name}`), geometric means.",
        "The policy is GO's, with weights that were not taught the program's family (`experiments/weights`): its",
        "likeliest placement, and the best of 64. *64 noisy lists* are list schedules by noisy upward ranks. *Short",
        f"search* is {short_s:g} s of the same plain search, and *policy, short search* begins at the best of the 64.",
        f"*Fine-tuned* is `go` begun with these weights, {_UPDATES:,} placements. *Plain search: seconds to there* are",
        "those after which the long search was as good as what stands left of it; *never* where one seed never was.",
        "",
    ]


if __name__ == "__main__":
    run_program(main)
