"""Entries of a function's plan file, made of its outcome and back."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base.quantities import known, percentage
from tf_placer.calibration.refit import Correction
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.outcome import PLAN, SINGLE, Clock, Outcome, Timed
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.pins import with_fixed_ops
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.runtime.timing import BUSY
from tf_placer.search.recorder import SearchCurve, SearchResult, progress_of

_DAY_S = 24 * 3600.0
_OLD_S = 30 * _DAY_S
_TIMES = (*(clock.field for clock in Clock), "spread_s", "is_clear")
_KEPT_OF_PARTS = ("parts", "stayed_whole", "batch_statistics", "why_not_split")
_KEPT = (
    *("why", "beside_unplaced", "searched", "progress", "fused", "load", "timed_at_s"),
    *_KEPT_OF_PARTS,
)


def outcome_of_plan(
    placement: Placement,
    plan: Timed,
    beside: Sequence[Timed] = (),
    correction: Correction | None = None,
    **more: Any,
) -> Outcome:
    """The outcome for a function's plan.

    Args:
      placement: the plan, on the problem with the costs that were profiled.
      plan: its times.
      beside: rows of others; their names and times alone are taken.
      correction: of the simulator, by all that was measured.
      more: other fields of the outcome.
    """
    problem = placement.problem if correction is None else correction.apply(placement.problem)
    peak_bytes = SimulatedEvaluator(problem).evaluate(placement.decisions).peak_bytes
    assert peak_bytes is not None, "the simulator counts memory"
    peaks = {
        device.name: int(peak) for device, peak in zip(problem.cluster.devices, peak_bytes[0], strict=True)
    }
    rows = [Timed(row.name, **_times(row)) for row in beside]
    singles = [row for row in rows if row.is_single] or [Timed(SINGLE)]
    others = [row for row in rows if not row.is_single]
    written = Timed(PLAN, placement, peak_bytes=peaks, **_times(plan))
    return Outcome(None, problem, written, (*singles, *others), correction=correction, **more)


def _times(row: Timed) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _TIMES}


def outcome_kept(placement: Placement, kept: Mapping[str, Any]) -> Outcome:
    """The outcome that ``kept_of_plan`` made entries of.

    Raises:
      LookupError, TypeError, ValueError, AttributeError: they are damaged.
    """
    plan, *beside = (
        Timed(str(name), **{key: _of_json(key, times.get(key)) for key in _TIMES})
        for name, times in kept["rows"].items()
    )
    if plan.name != PLAN or plan.simulated_s is None:
        raise ValueError("its plan has no time")
    more = {name: kept[name] for name in _KEPT if name in kept}
    more["searched"] = tuple(
        (str(method), float(s), float(of_s)) for method, s, of_s in kept.get("searched", ())
    )
    more["stayed_whole"] = tuple(map(str, kept.get("stayed_whole", ())))
    correction = Correction(**kept["correction"]) if kept.get("correction") else None
    return outcome_of_plan(placement, plan, beside, correction, **more)


def _of_json(key: str, value: Any) -> Any:
    if value is None:
        return None
    if key == "spread_s":
        return tuple(map(float, value))
    return bool(value) if key == "is_clear" else float(value)


def outcome_of_file(item: Item, cluster: Cluster, plan: PlanFile, fixed: Mapping[int, int]) -> Outcome:
    """The outcome for a function's plan that is given as a file.

    Args:
      item: the program, in as many parts as the plan is of.
      cluster: the devices.
      plan: of the item; names of ops may be those of an equal one.
      fixed: op -> device, both as positions: ops that must be there.

    Raises:
      InputError: the plan is for another program or batch, or has a fixed op elsewhere.
    """
    problem = with_fixed_ops(item, analytic_problem(item, cluster), fixed)
    placement = Placement.from_plan(plan, problem)
    evaluator = SimulatedEvaluator(problem)
    rows = np.stack([problem.everything_on(device) for device in range(problem.num_devices)])
    singles_s = [s for s in map(known, evaluator.evaluate(rows).runtime_s) if s is not None]
    step_s = known(evaluator.evaluate(placement.decisions).runtime_s[0])
    return outcome_of_plan(
        placement,
        Timed(PLAN, simulated_s=step_s),
        (Timed(SINGLE, simulated_s=min(singles_s, default=None)),),
        why=f"it is the plan of {plan.source}",
    )


def kept_of_plan(outcome: Outcome) -> dict[str, Any]:
    """Entries of a function's plan file besides its devices."""
    rows = {row.name: _times(row) for row in (outcome.written, *outcome.beside)}
    correction = {} if outcome.correction is None else dataclasses.asdict(outcome.correction)
    return {"rows": rows, "correction": correction} | {name: getattr(outcome, name) for name in _KEPT}


def why_measured_again(kept: Outcome) -> str:
    """Reason why a verdict of the runtime holds no longer, as a clause; "" where it does."""
    if kept.timed_at_s is None or kept.written.raced_s is None:
        return ""
    if kept.load is not None and kept.load >= BUSY:
        return f"its verdict is of a busy machine, of which other processes took {percentage(kept.load)}"
    age_s = time.time() - kept.timed_at_s
    return f"its verdict is {age_s / _DAY_S:.0f} days old" if age_s > _OLD_S else ""


def progress_of_all(searches: Sequence[SearchResult]) -> list[SearchCurve]:
    """The curve of each of several searches, numbered."""
    return [progress_of(f"{one.method}, search {i}", one.history) for i, one in enumerate(searches, 1)]
