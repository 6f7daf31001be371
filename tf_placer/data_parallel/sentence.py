"""What a person is told about splitting the batch instead of the step."""

from __future__ import annotations

import math

from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.quantities import excess, in_unit, milliseconds, percentage

_SAME = 0.005  # a share of the step time that nobody would change a program for


def split_batch_sentence(found: DataParallel, plan_s: float | None) -> str:
    """One or two sentences that hold a split batch against a plan, empty where there is one device.

    Args:
      found: the split batch.
      plan_s: step time of the plan in the simulator; None where there is none.
    """
    over = f"{len(found.devices)} {_types(found.devices)}"
    if len(found.devices) < 2:
        return ""
    if found.step_s is None:
        return f"The batch cannot be split over {over} instead: {found.why_not.rstrip('.')}."
    if found.over_bytes:
        return (
            f"Splitting the batch over {over} instead does not fit: each needs the whole model, and one "
            f"{in_unit(found.over_bytes, 'GiB')} more than it has."
        )
    if found.measured_s is not None and found.plan_measured_s is not None:
        ran = f"a copy of the step on each of {over}"
        if found.gradient_bytes:
            ran += ", adding up gradients as tf.distribute.MirroredStrategy does,"
        took = f"{ran} took {milliseconds(found.measured_s)} on the runtime, in turn with it"
        return _compared(took, found.measured_s, found.plan_measured_s, found.is_clear)
    if plan_s is None:
        return f"Splitting the batch over {over} would take {milliseconds(found.step_s)} in the simulator."
    would_take = (
        f"tf.distribute.MirroredStrategy over {over} would take {milliseconds(found.step_s)} in the simulator"
    )
    said = _compared(would_take, found.step_s, plan_s, abs(excess(found.step_s, plan_s)) > _SAME)
    said += f" It was {found.why_not}." if found.why_not else ""
    if found.overlapped_s is not None and found.overlapped_s < plan_s * (1 - _SAME) <= found.step_s:
        said += f" With gradients sent in small packs beside the backward pass, {milliseconds(found.overlapped_s)}."
    return said


def split_batch_name(found: DataParallel) -> str:
    """What a table calls it."""
    return f"data parallel x{len(found.devices)}"


def _compared(takes: str, split_s: float, plan_s: float, is_clear: bool) -> str:
    if not is_clear:
        return f"Splitting the batch instead gains nothing: {takes}, as this plan does."
    if split_s < plan_s:
        return (
            f"Split the batch instead: {takes}, {percentage(-excess(split_s, plan_s))} less than this plan."
        )
    more = excess(split_s, plan_s)
    than = f"{percentage(more)} more than this plan" if math.isfinite(more) else "and this plan no time"
    return f"Splitting the batch gains no more: {takes}, {than}."


def _types(devices: tuple[str, ...]) -> str:
    if "device:GPU" in devices[0]:
        return "GPUs"
    return "CPUs" if "/job:localhost" in devices[0] else "CPU workers"
