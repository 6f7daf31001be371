"""Entries of a function's plan file, made of its outcome and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tf_placer.calibration.refit import Correction
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.outcome import (
    CALLED,
    PLAN,
    RACED,
    SINGLE,
    SPLIT,
    UNPLACED,
    UNPLACED_CALLED,
    Outcome,
    Timed,
)
from tf_placer.problem.placement import Placement
from tf_placer.search.recorder import SearchCurve, SearchResult, progress_of

# Times of the plan: key -> row and field.
_KEPT_TIMES = {
    "predicted_s": (PLAN, "simulated_s"),
    "single_predicted_s": (SINGLE, "simulated_s"),
    "measured_s": (PLAN, "measured_s"),
    "single_measured_s": (SINGLE, "measured_s"),
    "split_s": (SPLIT, "measured_s"),
    "raced_s": (RACED, "measured_s"),
    "unplaced_s": (UNPLACED, "measured_s"),
    "placed_call_s": (CALLED, "measured_s"),
    "unplaced_call_s": (UNPLACED_CALLED, "measured_s"),
    "raced_spread_s": (RACED, "spread_s"),
    "unplaced_spread_s": (UNPLACED, "spread_s"),
}
_KEPT_OF_PARTS = ("parts", "stayed_whole", "batch_statistics", "why_not_split")
_KEPT = ("is_worth_it", "why", "beside_unplaced", "searched", "progress", "fused", *_KEPT_OF_PARTS)


def outcome_of_plan(placement: Placement, kept: Mapping[str, Any]) -> Outcome:
    """The outcome for a function's plan, from what its file has of it.

    Args:
      placement: the plan, on the problem with the costs that were profiled.
      kept: as ``kept_of_plan`` makes it; times that are not known may be missing, but for ``predicted_s``.

    Raises:
      LookupError, TypeError, ValueError, AttributeError: it is damaged.
    """
    rows: dict[str, dict[str, Any]] = {}
    for key, (row, field) in _KEPT_TIMES.items():
        found = kept["predicted_s"] if key == "predicted_s" else kept.get(key)
        if found is not None:
            rows.setdefault(row, {})[field] = tuple(found) if field == "spread_s" else float(found)
    correction = Correction(**kept["correction"]) if kept.get("correction") else None
    problem = placement.problem if correction is None else correction.apply(placement.problem)
    peak_bytes = SimulatedEvaluator(problem).evaluate(placement.decisions).peak_bytes
    assert peak_bytes is not None, "the simulator counts memory"
    peaks = {
        device.name: int(peak) for device, peak in zip(problem.cluster.devices, peak_bytes[0], strict=True)
    }
    others = [SINGLE, *(row for row in rows if row not in (PLAN, SINGLE))]
    more = {name: kept[name] for name in _KEPT if name in kept}
    # A file of before it had what was searched answers nothing, and a search begins with its plan.
    more["searched"] = tuple(
        (str(method), float(s), float(of_s)) for method, s, of_s in kept.get("searched", ())
    )
    more["stayed_whole"] = tuple(map(str, kept.get("stayed_whole", ())))
    return Outcome(
        None,
        problem,
        Timed(PLAN, placement, peak_bytes=peaks, **rows[PLAN]),
        tuple(Timed(row, **rows.get(row, {})) for row in others),
        correction=correction,
        **more,
    )


def kept_of_plan(outcome: Outcome) -> dict[str, Any]:
    """Entries of a function's plan file besides its devices."""
    times = {
        key: getattr(outcome.named(row) or Timed(row), field) for key, (row, field) in _KEPT_TIMES.items()
    }
    correction = {} if outcome.correction is None else dataclasses.asdict(outcome.correction)
    return times | {name: getattr(outcome, name) for name in _KEPT} | {"correction": correction}


def progress_of_all(searches: Sequence[SearchResult]) -> list[SearchCurve]:
    """The curve of each of several searches, numbered."""
    return [progress_of(f"{one.method}, search {i}", one.history) for i, one in enumerate(searches, 1)]
