"""What a user is told about the placement of a function, as the page of ``report(path)`` shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.automatic.plan import Plan
from tf_placer.automatic.verdict import verdict
from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.data_parallel.sentence import split_batch_sentence
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.quantities import milliseconds
from tf_placer.report_page.draw_step import draw_step
from tf_placer.report_page.lower_bounds import shown_bounds
from tf_placer.report_page.page import Curve, HowTo, Section, StepTime
from tf_placer.report_page.sentences import program_size
from tf_placer.report_page.split_batch import split_batch_step_time

_PLACED = "Calls of the function run by this plan already; the variables are where it has them."
_UNPLACED = (
    "The function is kept as it was: calls do not use this plan. keep_unplaced=False runs it all the same."
)
_ON_TRIAL = (
    "The first calls decide whether this plan is used: some run as they are, and then as many by the plan."
)
_SAVE = 'train_step.placement.save("placement.json")  # a text file, to read and edit'
_APPLY = """\
placed = tf_placer.placed_function(train_step.unplaced, train_step.placement, *example_args)"""


def page_section(
    name: str, number: int, plan: Plan, is_used: bool | None, split: DataParallel | None = None
) -> Section:
    """One signature of a function.

    Args:
      name: of the function.
      number: of the signature, in the order of first calls.
      plan: its plan.
      is_used: calls run by it; None where the first calls are still to decide.
      split: the batch split instead; None where nobody asked.
    """
    placement = plan.placement
    problem = plan.fitted_problem
    bounds = plan.bounds
    kept = ", by a plan that was kept" if plan.from_cache else ""
    used = np.unique(placement.device_of_op)
    applied = _ON_TRIAL if is_used is None else _PLACED if is_used else _UNPLACED
    why = f"it is {plan.beside_unplaced}; {plan.why}" if plan.beside_unplaced else plan.why
    said = split_batch_sentence(split, plan.predicted_s) if split is not None else ""
    return Section(
        name=f"{name}, signature {number}: {problem.num_ops:,} ops",
        title=f"{name} on {problem.cluster.name}: {program_size(problem.num_ops, problem.num_units)}{kept}",
        headline=f"{_capital(verdict(plan, is_used))}.",
        notes=tuple(note for note in (f"{_capital(why)}.", said) if note),
        figures=(
            ("step, simulated", milliseconds(plan.predicted_s)),
            ("step, measured", milliseconds(plan.measured_s)),
            ("lower bound", milliseconds(bounds.best_s)),
            ("devices used", f"{len(used)} of {problem.num_devices}"),
        ),
        step_times=(*_step_times(plan), *split_batch_step_time(split)),
        bounds=shown_bounds([(kind, ns / 1e9) for kind, ns in bounds.rows], bounds.tightest),
        plan=draw_step(problem, placement.decisions),
        curves=tuple(Curve(title, tuple(at_s), tuple(best_s)) for title, at_s, best_s in plan.progress),
        apply=(
            HowTo(applied),
            HowTo("Keep the plan:", _SAVE),
            HowTo("Place the function again, in this process or another:", _APPLY),
        ),
    )


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _step_times(plan: Plan) -> tuple[StepTime, ...]:
    row = plan.placement.decisions
    peak_bytes = SimulatedEvaluator(plan.fitted_problem).evaluate(row).peak_bytes
    assert peak_bytes is not None, "the simulator counts memory"
    rows = [
        StepTime(
            "the plan", plan.predicted_s, plan.measured_s, peak_bytes=int(peak_bytes.max()), is_written=True
        ),
        StepTime("single device", plan.single_predicted_s, plan.single_measured_s, is_single=True),
    ]
    if plan.raced_s is not None and plan.unplaced_s is not None:
        raced = (
            ("the plan", plan.raced_s, plan.raced_spread_s),
            ("as it is", plan.unplaced_s, plan.unplaced_spread_s),
        )
        rows += [
            StepTime(f"{what}, whole machine", None, measured_s, _pair(spread_s))
            for what, measured_s, spread_s in raced
        ]
    if plan.placed_call_s is not None and plan.unplaced_call_s is not None:
        rows += [
            StepTime("the plan, called", None, plan.placed_call_s),
            StepTime("as it is, called", None, plan.unplaced_call_s),
        ]
    return tuple(rows)


def _pair(spread_s: Sequence[float] | None) -> tuple[float, float] | None:
    return None if spread_s is None else (spread_s[0], spread_s[1])
