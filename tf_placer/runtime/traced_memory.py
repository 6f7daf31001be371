"""The most bytes of tensors that a step has at once on each device, by the runtime's own trace."""

from __future__ import annotations

import tensorflow as tf


def traced_peak_bytes(trace: tf.compat.v1.RunMetadata) -> dict[str, int]:
    """Device -> most bytes that the step's allocations hold at once, variables and inputs left out.

    TensorFlow records when its allocators hand out and take back each buffer of a traced step: outputs, copies that
    are received, and what kernels need while they run. What lived before the step is not among them. Records of one
    microsecond are taken with what is given back first.

    Args:
      trace: metadata of a step that was run with FULL_TRACE.
    """
    peaks: dict[str, int] = {}
    for device in trace.step_stats.dev_stats:
        records = [
            (record.alloc_micros, record.alloc_bytes)
            for node in device.node_stats
            for memory in node.memory
            for record in memory.allocation_records
        ]
        held = most = 0
        for _, num_bytes in sorted(records):
            held += num_bytes
            most = max(most, held)
        peaks[device.device] = max(most, peaks.get(device.device, 0))
    return peaks
