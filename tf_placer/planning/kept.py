"""Plans of functions: what lasts of an outcome, as data and back."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import percentage
from tf_placer.calibration.refit import Correction
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import PLAN, SINGLE, Clock, Kept, Note, Outcome, Timed
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.pins import with_fixed_ops
from tf_placer.problem.placement import NO_CLUSTER, UNDECIDED, Placement, PlanFile

_DAY_S = 24 * 3600.0
_OLD_S = 30 * _DAY_S


_TIMES = (*(clock.field for clock in Clock), "spread_s", "is_clear")


def lasting(outcome: Outcome, kept: Kept) -> Outcome:
    """A function's plan: of other plans names and times last, and of searches their progress."""
    rows = [Timed(row.name, **{name: getattr(row, name) for name in _TIMES}) for row in outcome.beside]
    singles = [row for row in rows if row.is_single] or [Timed(SINGLE)]
    plan = {name: getattr(outcome.written, name) for name in ("placement", "peak_bytes", *_TIMES)}
    return Outcome(
        outcome.form,
        Timed(PLAN, **plan),
        (*singles, *(row for row in rows if not row.is_single)),
        notes={note: value for note, value in outcome.notes.items() if note is not Note.DECIDED},
        correction=outcome.correction,
        kept=kept,
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """A function's plan as data: what is decided is by the positions of ops, which equal graphs share."""
    plan, kept = outcome.placement, outcome.kept
    assert kept is not None  # a search found it
    decided = {"device_of_op": plan.device_of_op} | {name: getattr(plan, name) for name in UNDECIDED}
    return {
        "parts": outcome.form.parts,
        "kept_whole": None if (split := outcome.problem.splitting) is None else list(split.kept_whole),
        "decided": {name: value.tolist() for name, value in decided.items() if value is not None},
        "peak_bytes": list(outcome.written.peak_bytes.values()),
        "rows": {
            row.name: {name: getattr(row, name) for name in _TIMES}
            for row in (outcome.written, *outcome.beside)
        },
        "notes": {note.value: value for note, value in outcome.notes.items()},
        "correction": None if outcome.correction is None else dataclasses.asdict(outcome.correction),
        "searched": kept.searched,
        "progress": kept.progress,
    }


def from_json(form: Form, data: Any, key: Mapping[str, str]) -> Outcome:
    """The function's plan that ``as_json`` made data of, on the form of an equal program.

    Keras and TensorFlow number layers and ops, so that a model that is built again has other names. Its fingerprint is
    the same only if op for op the graphs are, so what is decided is kept by the position of its op.

    Raises:
      InputError, ValueError, LookupError, TypeError, AttributeError: it is damaged, or no plan of this form.
    """
    problem, device_of_op = form.problem, np.array(data["decided"]["device_of_op"])
    device_of_unit = np.full(problem.num_units, -1)
    device_of_unit[problem.unit_of_op] = device_of_op
    placement = Placement(problem, device_of_unit, *(data["decided"].get(name) for name in UNDECIDED))
    if (placement.device_of_op != device_of_op).any():
        raise InputError("it parts ops that must share a device")
    clusters = placement.cluster_of_op
    if clusters is not None and (clusters[~problem.fusible_of_op] != NO_CLUSTER).any():
        raise InputError("it fuses ops that stay outside of clusters now")
    rows = []
    for name, times in data["rows"].items():
        fields: dict[str, Any] = {
            clock.field: None if (s := times[clock.field]) is None else float(s) for clock in Clock
        }
        fields["spread_s"] = None if times["spread_s"] is None else tuple(map(float, times["spread_s"]))
        rows.append(Timed(str(name), **fields, is_clear=times["is_clear"]))
    plan, *rivals = rows
    if plan.name != PLAN or plan.simulated_s is None:
        raise ValueError("its plan has no time")
    devices = (device.name for device in problem.cluster.devices)
    peaks = dict(zip(devices, map(int, data["peak_bytes"]), strict=True))
    correction = None if data["correction"] is None else Correction(**data["correction"])
    searched = tuple((str(method), float(s), float(of_s)) for method, s, of_s in data["searched"])
    return Outcome(
        form if correction is None else dataclasses.replace(form, problem=correction.apply(problem)),
        dataclasses.replace(plan, placement=placement, peak_bytes=peaks),
        tuple(rivals),
        notes={Note(name): value for name, value in data["notes"].items()},
        correction=correction,
        kept=Kept(key, searched, data["progress"], is_from_cache=True),
    )


def outcome_of_file(item: Item, cluster: Cluster, plan: PlanFile, fixed: Mapping[int, int]) -> Outcome:
    """The outcome for a function's plan that is given as a file; names of ops there may be those of an equal program.

    ``fixed``: op -> device, both as positions, of ops that must be there.

    Raises:
      InputError: the plan is for another program or batch, or has a fixed op elsewhere.
    """
    problem = with_fixed_ops(item, analytic_problem(item, cluster), fixed)
    placement = Placement.from_plan(plan, problem)
    plans = [Placement(problem, problem.everything_on(device)) for device in range(problem.num_devices)]
    singles = [Timed.simulated(SINGLE, single) for single in plans]
    best = min(singles, key=lambda row: math.inf if row.simulated_s is None else row.simulated_s)
    return Outcome(
        Form(problem, item),
        Timed.simulated(PLAN, placement),
        (Timed(SINGLE, simulated_s=best.simulated_s),),
        notes={Note.WHY: f"it is the plan of {plan.source}"},
    )


def why_measured_again(kept: Outcome) -> str:
    """Reason why a verdict of the runtime holds no longer, as a clause; "" where it does."""
    timed_at_s = kept.notes.get(Note.TIMED_AT_S)
    if timed_at_s is None or kept.written.raced_s is None:
        return ""
    if kept.busy_share:
        return (
            f"its verdict is of a busy machine, of which other processes took {percentage(kept.busy_share)}"
        )
    age_s = time.time() - timed_at_s
    return f"its verdict is {age_s / _DAY_S:.0f} days old" if age_s > _OLD_S else ""
