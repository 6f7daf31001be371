"""Whether calls run by a plan, and the times that say so: one sentence, wherever it is told."""

from __future__ import annotations

from tf_placer.automatic.plan import Plan
from tf_placer.quantities import milliseconds


def verdict(plan: Plan, is_used: bool | None) -> str:
    """One clause that follows "the function is": placed, kept as it was, or not decided yet, with both times.

    Args:
      plan: of the function.
      is_used: calls run by it; None where the user's first calls are still to decide.
    """
    if is_used is None:
        return f"on trial, the first calls decide: the plan takes {_times(plan)}"
    return f"placed: {_times(plan)}" if is_used else f"kept as it was: the plan takes {_times(plan)}"


def why_not_used(plan: Plan) -> str:
    """Why a plan was found and is not used, as the end of a warning."""
    found = plan.beside_unplaced or "not clearly faster than the function as it is"
    return f"a plan was found and is {found} ({_times(plan)}); keep_unplaced=False runs it all the same"


def _times(plan: Plan) -> str:
    """By what came last: called in place, raced on the whole machine, measured, or simulated."""
    taken_s: float | None = plan.predicted_s
    other_s, other = plan.single_predicted_s, "the best single device takes, in the simulator"
    if plan.placed_call_s is not None and plan.unplaced_call_s is not None:
        taken_s, other_s, other = plan.placed_call_s, plan.unplaced_call_s, "the function takes as it is"
    elif plan.raced_s is not None and plan.unplaced_s is not None:
        taken_s, other_s, other = plan.raced_s, plan.unplaced_s, "the function takes as it is"
    elif plan.measured_s is not None:
        taken_s, other_s, other = plan.measured_s, plan.single_measured_s, "the best single device takes"
    beside = "no single device can run it" if other_s is None else f"{milliseconds(other_s)} {other}"
    return f"{milliseconds(taken_s)} a step, {beside}"
