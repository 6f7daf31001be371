"""Times replicas on the runtime, in turn with the plan that they are held against."""

from __future__ import annotations

import dataclasses

from tf_placer.data_parallel.gradients import Gradients
from tf_placer.data_parallel.replicated_program import replicated_program
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.race import race_times_s
from tf_placer.runtime.statistics import clearly_slower
from tf_placer.workers.local_workers import WorkerError

_CONFIDENCE = 0.95  # that one is slower, turn by turn


@dataclasses.dataclass(frozen=True)
class Raced:
    """How a race went; the fields are those of ``DataParallel``."""

    measured_s: float | None = None
    plan_measured_s: float | None = None
    is_clear: bool = False
    why_not: str = ""


def race_plan(
    whole: Item,
    part: Item,
    gradients: Gradients,
    problem: Problem,
    replica: Problem,
    replicas: tuple[int, ...],
    plan: Decisions,
) -> Raced:
    """Runs replicas and a plan in turn on the problem's live devices.

    What runs is ``replicated_program``: the graph on every device, and an all-reduce of plain ops that sends and adds
    what a ring does. So what the strategy itself costs, above all in Python, is not in it.

    Args:
      whole, part: the step, and that of one replica.
      gradients: of these.
      problem, replica: both on the cluster.
      replicas: positions of their devices.
      plan: one that runs.
    """
    try:
        program = replicated_program(whole, part, gradients, replica, replicas)
        with RuntimeEvaluator(whole, problem) as evaluator:
            plan_turns_s, split_turns_s = evaluator.race(plan.plain, beside=[program])
    except (RaceFailed, WorkerError, InputError) as error:
        return Raced(why_not=f"not measured: {error}")
    plan_s, split_s = race_times_s([plan_turns_s, split_turns_s])
    pairs = ((plan_turns_s, split_turns_s), (split_turns_s, plan_turns_s))
    return Raced(split_s, plan_s, is_clear=any(clearly_slower(a, b, _CONFIDENCE) for a, b in pairs))
