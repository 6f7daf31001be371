"""The most bytes at once are read off a trace's records of allocations."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.runtime.traced_memory import traced_peak_bytes


def test_the_peak_is_of_what_is_held_at_once():
    # a holds 100 from 1 to 5; b 30 from 3 to 4; c takes 50 in the moment at which a gives back: 130, never 180.
    trace = tf.compat.v1.RunMetadata()
    device = trace.step_stats.dev_stats.add(device="/job:worker/replica:0/task:0/device:CPU:0")
    records = {"a": [(1, 100), (5, -100)], "b": [(3, 30), (4, -30)], "c": [(5, 50)]}
    for name, changes in records.items():
        memory = device.node_stats.add(node_name=name).memory.add(allocator_name="cpu")
        for micros, num_bytes in changes:
            memory.allocation_records.add(alloc_micros=micros, alloc_bytes=num_bytes)
    trace.step_stats.dev_stats.add(device="idle")
    assert traced_peak_bytes(trace) == {"/job:worker/replica:0/task:0/device:CPU:0": 130, "idle": 0}
