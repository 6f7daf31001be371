"""From step stats to times of ops."""

import tensorflow as tf

from tf_placer.calibration.build_problem import median_times_ns, op_times_ns
from tf_placer.runtime.audit import owner


def trace(*nodes):
    """A trace of (node name, start, end) in nanoseconds."""
    metadata = tf.compat.v1.RunMetadata()
    device = metadata.step_stats.dev_stats.add(device="/job:worker/replica:0/task:0/device:CPU:0")
    for name, start, end in nodes:
        device.node_stats.add(node_name=name, op_start_rel_nanos=start, op_end_rel_nanos=end)
    return metadata


def test_a_lowered_loop_is_charged_to_the_loop():
    nodes = [("loop/body/mul", 5, 15), ("loop/body/mul", 20, 35), ("loop/_3", 40, 41), ("loop", 50, 52)]
    assert op_times_ns(trace(*nodes), {"loop", "mul"}) == {"loop": 28}


def test_the_longest_name_owns_and_the_runtimes_own_nodes_belong_to_nobody():
    names = {"a", "a/b"}
    assert owner("a/b/c", names) == "a/b"
    assert owner("a/c", names) == "a"
    assert owner("ab", names) is None
    assert owner("_SOURCE", names) is None
    assert op_times_ns(trace(("a/b", 1, 4), ("a_S1", 0, 9)), names) == {"a/b": 3}


def test_old_traces_have_microseconds_only():
    metadata = tf.compat.v1.RunMetadata()
    device = metadata.step_stats.dev_stats.add()
    device.node_stats.add(node_name="a", op_start_rel_micros=2, op_end_rel_micros=5)
    assert op_times_ns(metadata, {"a"}) == {"a": 3000}


def test_medians_count_a_step_without_the_op_as_zero():
    steps = [{"a": 10, "b": 4}, {"a": 30}, {"a": 20}]
    assert median_times_ns(steps) == {"a": 20.0, "b": 0.0}
