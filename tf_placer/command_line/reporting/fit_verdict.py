"""What a report says of memory: what does not fit on one device, what does, and what the least memory costs."""

from __future__ import annotations

import math

from tf_placer.cluster.device import short_device_name
from tf_placer.command_line.reporting.report import Report
from tf_placer.problem.memory_bounds import accelerators
from tf_placer.quantities import excess, gain, percentage, size
from tf_placer.search.result import SearchResult


def fit_sentences(report: Report) -> list[str]:
    """Where no single accelerator holds the step: what it needs, what holds most, and how the plan written fits."""
    if report.room is None:
        return []
    name, peak_bytes, has_bytes = _fullest(report.result)
    return [
        f"No single device holds the step: {report.room}.",
        f"The plan of {report.chosen.method} fits: {short_device_name(name)}, its fullest device, takes "
        f"{size(peak_bytes)} of {size(has_bytes)}, {percentage(1 - peak_bytes / has_bytes)} of it free.",
    ]


def least_memory_sentence(result: SearchResult) -> str:
    """Of a search for the least memory: both plans' peaks, what the smaller one costs, and a lower bound."""
    found = result.least_memory
    assert found is not None, "the search was for it"
    name, peak_bytes, has_bytes = _fullest(result)
    _, fastest_bytes, fastest_has_bytes = _fullest(found.fastest)
    of = "" if fastest_has_bytes == has_bytes else f" of {size(fastest_has_bytes)}"
    slower = gain(-excess(result.runtime_s, found.fastest.runtime_s))
    bound = (
        f"; no plan that fast is below {percentage(found.bound_share)} of its fullest device"
        if round(found.bound_share, 3)
        else ""
    )
    return (
        f"Smallest peak {size(peak_bytes)} of {size(has_bytes)} on {short_device_name(name)} (fastest plan: "
        f"{size(fastest_bytes)}{of}), {slower}, where {percentage(found.slow_down)} is allowed; both are simulated"
        f"{bound}."
    )


def _fullest(result: SearchResult) -> tuple[str, int, int]:
    """Of the accelerator that takes the largest share of its memory: name, peak and memory in bytes."""
    cluster = result.placement.problem.cluster
    counted = accelerators(cluster)
    taken = {
        device.name: (result.peak_bytes[device.name] / device.memory_bytes, device.memory_bytes)
        for device, counts in zip(cluster.devices, counted, strict=True)
        if counts
    }
    name = max(taken, key=lambda one: taken[one][0])
    return name, result.peak_bytes[name], taken[name][1]


def fit_summary(report: Report) -> dict[str, object]:
    """What summary.json has of it; None where it does not apply."""
    found, room = report.result.least_memory, report.room
    limit = found.slow_down if found is not None else None
    return {
        "objective": "time" if found is None else "memory",
        "slow_down": limit,
        "fastest_runtime_s": None if found is None else found.fastest.runtime_s,
        "fastest_peak_bytes": None if found is None else found.fastest.peak_bytes,
        "peak_share": None if found is None else found.share,
        "peak_share_bound": None if found is None or math.isinf(found.bound_share) else found.bound_share,
        "single_device_needs": None
        if room is None
        else {
            "device": room.device,
            "needed_bytes": room.needed_bytes,
            "has_bytes": room.has_bytes,
            "holders": dict(room.holders),
            "smallest_preset": room.preset,
        },
    }
