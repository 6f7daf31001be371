"""What robust plans lose where the estimates are right, and gain where they are not.

    python -m experiments.robust_plans [--evaluations=8000] [--draws=200] [--seed=0] [--out=FILE.md]

Two plans of each program, found in as many evaluations: by the estimates, and with the best mean over the estimates
and a few draws of what is not known (``--robust``). Both are simulated by the estimates, and under draws that neither
search knew. In each draw a plan gains so much over one device, the best by the estimates: that one's step over its own.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from absl import flags

import tf_placer
from experiments.main_program import out_flag, run_program, seed_flag
from experiments.studies.formats import header, line, write_page
from tf_placer import workloads
from tf_placer.evaluation.simulated import ROBUST_DRAWS, SimulatedEvaluator, drawn_problems
from tf_placer.ops.simulator import simulate
from tf_placer.planners.plain import single_device_placements
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.search.search import search

_EVALUATIONS = flags.DEFINE_integer("evaluations", 8000, "Of each search.", lower_bound=2)
_DRAWS = flags.DEFINE_integer("draws", 200, "That plans are simulated under.", lower_bound=10)
_SEED = seed_flag("Of searches and draws.")
_PROGRAMS = flags.DEFINE_list(
    "programs",
    [
        "inception_v3_forward:k40x2",
        "rnnlm_2_forward:p100x2",
        "amoebanet_forward:p100x2",
        "nmt_2_small:k40x2",
        "resnet_152_small_forward:p100x2",
    ],
    "Workloads and presets.",
)
_OUT = out_flag(None, "Page to write.")

_WORST = 0.1  # quantile
_OTHER_SEED = 1 << 32  # of draws that no search has seen
_COLUMNS = (
    *("program", "on", "by the estimates", "robust", "robust loses there", "gain in the worst tenth"),
    *("robust", "robust gains there", "robust is faster in"),
)


_ABOUT = f"""\
Two plans of each program, each found in as many evaluations: by the estimates alone, and with the best mean
step over the estimates and {ROBUST_DRAWS} draws of what is not known (`place --robust`): times of classes
of ops, links and hosts. Both are simulated by the estimates and under other draws. A plan's gain is the step
of one device, the best by the estimates, over its own in the same draw; the worst tenth of the draws gains
less than what is given."""


@dataclasses.dataclass(frozen=True)
class Compared:
    """A plan by the estimates, and a robust one."""

    step_s: tuple[float, float]  # step times by the estimates
    worst_gain: tuple[float, float]  # over one device, in the draw below which a tenth of all is
    faster: float  # share of draws in which the robust plan is faster


def main() -> None:
    """Prints the table, and writes it."""
    lines = list(header(*_COLUMNS))
    for program in _PROGRAMS.value:
        workload, _, cluster = program.partition(":")
        found = compared(workload, cluster, _EVALUATIONS.value, _DRAWS.value, _SEED.value)
        (plain_s, robust_s), (plain_gain, robust_gain) = found.step_s, found.worst_gain
        steps = (f"{1e3 * plain_s:.1f} ms", f"{1e3 * robust_s:.1f} ms", f"{robust_s / plain_s - 1:+.1%}")
        gains = (f"{plain_gain:.3f}", f"{robust_gain:.3f}", f"{robust_gain / plain_gain - 1:+.1%}")
        lines.append(line(workload, cluster, *steps, *gains, f"{found.faster:.0%} of draws"))
        print(lines[-1], flush=True)
    print("\n".join(lines))
    if _OUT.value is not None:
        counts = f"--evaluations={_EVALUATIONS.value} --draws={_DRAWS.value}"
        command = f"`python -m experiments.robust_plans {counts}` (four minutes)"
        seeds = f"{_SEED.value}, of searches and draws"
        write_page(_OUT.value, "Robust plans", command, seeds, [_ABOUT, "", *lines])


def compared(workload: str, cluster: str, evaluations: int, draws: int, seed: int) -> Compared:
    """Searches twice, and simulates both plans under so many draws."""
    problem = tf_placer.build_problem(workloads.build(workload), tf_placer.Cluster.preset(cluster))
    found = [
        search(problem, budget_evaluations=evaluations, seed=seed, robust=robust) for robust in (False, True)
    ]
    singles = single_device_placements(problem)
    single_s = np.asarray(SimulatedEvaluator(problem).times(singles).runtime_s)
    single = singles[[int(single_s.argmin())]]
    plans = Decisions.joined([*(one.placement.decisions for one in found), Decisions(single)])
    step_ns = drawn_step_ns(problem, plans, draws, seed)
    gain = np.quantile(step_ns[:, 2:] / step_ns[:, :2], _WORST, axis=0)
    plain, robust = (one.runtime_s for one in found)
    return Compared((plain, robust), (gain[0], gain[1]), float((step_ns[:, 1] < step_ns[:, 0]).mean()))


def drawn_step_ns(problem: Problem, plans: Decisions, count: int, seed: int) -> np.ndarray:
    """[count, B] int64 step times of B legal plans under draws that no ``RobustEvaluator`` uses; memory is ignored."""
    step_ns = np.zeros((count, len(plans)), np.int64)
    for i, drawn in enumerate(drawn_problems(problem, count, _OTHER_SEED + seed)):
        inputs = SimulatedEvaluator(drawn).inputs
        step_ns[i] = simulate(inputs, plans.device_of_unit, plans.priority_of_op).runtime_ns.numpy()
    return step_ns


if __name__ == "__main__":
    run_program(main)
