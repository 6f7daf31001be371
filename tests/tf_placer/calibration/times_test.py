"""Times of ops from step stats, brought to the untraced step, and links fitted to hops."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.calibration.build_problem import (
    Hop,
    busy_ns,
    corrected,
    fit_link,
    median_times_ns,
    op_times_ns,
)
from tf_placer.cluster.device import Link
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


@pytest.mark.parametrize("step_ns", [100_000, 60_000, 160_000])
def test_the_sum_is_the_untraced_step_and_every_op_changes_alike(step_ns):
    traced = {"long": 70_000.0, "short": 20_000.0, "shorter": 10_000.0}
    times = corrected(traced, step_ns / 1e9, ("long", "short", "shorter", "folded"))
    assert sum(times.op_ns.values()) == pytest.approx(step_ns, abs=3)
    changes = [traced[name] - ns for name, ns in times.op_ns.items()]
    if step_ns >= 70_000:
        np.testing.assert_allclose(changes, changes[0], atol=2)
    assert times.unmeasured == ("folded",)


def test_no_time_becomes_negative():
    times = corrected({"long": 90_000.0, "tiny": 100.0}, 50e-6, ("long", "tiny"))
    assert times.op_ns["tiny"] == 0
    assert times.op_ns["long"] == pytest.approx(50_000, abs=2)


def test_a_program_that_runs_nothing_has_no_times():
    assert corrected({}, 1e-3, ("a",)).op_ns == {}


LINK = Link(0, 1, 1, 1.0, "grpc:0->1")
SIZES = [1 << power for power in range(10, 27, 2)]


def test_a_link_that_is_a_line_is_found_again():
    hops = [Hop(b, 90_000 + 0.9 * b, 30_000 + 0.2 * b, 20_000 + 0.3 * b) for b in SIZES]
    link = fit_link(LINK, hops)
    assert (link.source, link.target, link.channel) == (0, 1, "grpc:0->1")
    assert link.send_ns == pytest.approx(30_000, rel=1e-3)
    assert link.send_ps_per_byte == pytest.approx(200, rel=1e-2)
    assert link.receive_ns == pytest.approx(20_000, rel=1e-3)
    assert link.receive_ps_per_byte == pytest.approx(300, rel=1e-2)
    assert link.latency_ns == pytest.approx(40_000, rel=1e-3)
    assert 1e9 / link.bytes_per_s == pytest.approx(0.4, rel=1e-2)


def test_a_tensor_by_itself_takes_as_long_as_measured_though_its_ends_work_at_the_same_time():
    hops = [Hop(b, 300_000 + 0.6 * b, 230_000 + 0.5 * b, 230_000 + 0.5 * b) for b in SIZES]
    link = fit_link(LINK, hops)
    assert link.latency_ns > 0  # a factor on the ends has room upward
    assert link.send_ns + link.latency_ns + link.receive_ns == pytest.approx(300_000, rel=1e-3)
    assert link.send_ps_per_byte + link.receive_ps_per_byte == pytest.approx(600, rel=1e-2)
    assert link.send_ns == link.receive_ns


def test_processor_time_of_another_process_is_seen():
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE) as process:
        while busy_ns(process.pid) < 300_000_000:
            pass
        process.communicate(b"\n")
    assert busy_ns(os.getpid()) > 0
