"""Times of ops from step stats, profiles put into a problem, links and factors that are found again."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import altered, branches_problem, problem_of
from tf_placer.base.files import Cache, Durations
from tf_placer.calibration import build_problem as profile
from tf_placer.calibration.build_problem import (
    Hop,
    OpTimes,
    Profile,
    awaited_s,
    busy_ns,
    calibrated,
    corrected,
    fit_link,
    median_times_ns,
    op_times_ns,
)
from tf_placer.calibration.refit import Correction, refit
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Link
from tf_placer.costs.formulas import OpWork
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.plain import RandomBlocks
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
    assert median_times_ns([{"a": 10, "b": 4}, {"a": 30}, {"a": 20}]) == {"a": 20.0, "b": 0.0}


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
    link = fit_link(LINK, [Hop(b, 90_000 + 0.9 * b, 30_000 + 0.2 * b, 20_000 + 0.3 * b) for b in SIZES])
    assert (link.source, link.target, link.channel) == (0, 1, "grpc:0->1")
    assert link.send_ns == pytest.approx(30_000, rel=1e-3)
    assert link.send_ps_per_byte == pytest.approx(200, rel=1e-2)
    assert link.receive_ns == pytest.approx(20_000, rel=1e-3)
    assert link.receive_ps_per_byte == pytest.approx(300, rel=1e-2)
    assert link.latency_ns == pytest.approx(40_000, rel=1e-3)
    assert 1e9 / link.bytes_per_s == pytest.approx(0.4, rel=1e-2)


def test_a_tensor_by_itself_takes_as_long_as_measured_though_its_ends_work_at_the_same_time():
    link = fit_link(LINK, [Hop(b, 300_000 + 0.6 * b, 230_000 + 0.5 * b, 230_000 + 0.5 * b) for b in SIZES])
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


def test_op_times_replace_estimates_and_work_stays():
    work = OpWork(flops=np.array([1e9, 0]), num_bytes=np.array([8e6, 4e6]), launches=np.array([1, 0]))
    estimated = dataclasses.replace(
        problem_of([10, 20], [(0, 1)], 4, names=["a", "b"]), work=work, guessed_op_types={"Cholesky": 1}
    )
    times = OpTimes(op_ns={"a": 700}, step_s=7e-7, unmeasured=("b",))
    profiled = calibrated(estimated, Profile({"toy": times}, pair=None, traffic=None))
    # What no trace shows is free; both devices are of one model.
    assert profiled.compute_ns.tolist() == [[700, 700], [0, 0]]
    assert profiled.guessed_op_types == {}
    assert profiled.work is work
    # The graph between ops is of the new times.
    assert estimated.op_graph.bottom_level_ns.tolist() == [30, 20]
    assert profiled.op_graph.bottom_level_ns.tolist() == [700, 0]


@pytest.fixture
def durations(tmp_path, monkeypatch):
    monkeypatch.setattr("tf_placer.base.files.user_cache_folder", lambda: tmp_path)
    return Durations()


def test_what_is_not_kept_is_awaited_as_long_as_it_took_or_by_a_rule(durations, tmp_path):
    item = Item.from_function(tf.function(lambda x: tf.tanh(x)), tf.ones([4]), name="step")
    cache = Cache(tmp_path)
    one = Cluster.local(1)
    assert awaited_s(item, one, cache) == profile._PROFILING_S["profiling ops"]
    durations.keep("profiling ops", 4.0)
    assert awaited_s(item, one, cache) == 4.0
    cache.save(profile._key(profile._OPS, one, graph=item.fingerprint), {})
    assert awaited_s(item, one, cache) == 0.0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_links_are_awaited_once_for_a_machine(durations, tmp_path):
    item = Item.from_function(tf.function(lambda x: tf.tanh(x)), tf.ones([4]), name="step")
    cache = Cache(tmp_path)
    two = Cluster.local(2)
    assert awaited_s(item, two, cache) == sum(profile._PROFILING_S.values())
    # One of each model is profiled.
    cache.save(profile._key(profile._OPS, two, graph=item.fingerprint), {})
    cache.save(profile._key(profile._PAIR, two), {})
    assert awaited_s(item, two, cache) == profile._PROFILING_S["profiling traffic"]
    cache.save(profile._traffic_key(two), {})
    assert awaited_s(item, two, cache) == 0.0
    other = Item.from_function(tf.function(lambda x: tf.sin(x)), tf.ones([4]), name="other")
    assert awaited_s(other, two, cache) == profile._PROFILING_S["profiling ops"]


@pytest.fixture(scope="module")
def problem():
    links = {"latency_ns": 200, "send_ns": 100, "receive_ns": 100, "send_ps_per_byte": 50}
    return altered(branches_problem(4, 6), links=links | {"receive_ps_per_byte": 50})


def simulated_s(problem, placements):
    return SimulatedEvaluator(problem).evaluate(placements).runtime_s


def test_a_correction_scales_what_it_says(problem):
    corrected = Correction(compute=2.0, alone=3.0, ends=0.5, per_byte=5.0).apply(problem)
    np.testing.assert_array_equal(corrected.compute_ns, 2 * problem.compute_ns)
    link = corrected.cluster.links[0]
    assert (link.latency_ns, link.send_ns, link.receive_ns) == (3 * 400 - 2 * 150, 150, 150)
    assert (link.send_ps_per_byte, link.receive_ps_per_byte) == (250, 250)
    assert link.bytes_per_s == problem.cluster.links[0].bytes_per_s


def test_what_the_ends_are_spared_a_tensor_is_longer_on_its_way(problem):
    link = problem.cluster.links[0]
    corrected = Correction(ends=0.25).apply_to_cluster(problem.cluster).links[0]
    assert (corrected.send_ns, corrected.receive_ns) == (25, 25)
    assert [one.send_ns + one.latency_ns + one.receive_ns for one in (link, corrected)] == [400, 400]


def test_a_correction_scales_what_joining_takes(problem):
    joined = altered(problem, {"join_ns": [0, 500]})
    assert Correction(join=1.5).apply(joined).cluster.join_ns().tolist() == [0, 750]


def test_a_simulator_that_was_off_is_nearer_on_placements_it_has_not_seen(problem):
    truth = Correction(compute=1.2, alone=1.7, ends=1.2, per_byte=1.0).apply(problem)
    placements = RandomBlocks(problem, 0).draw(40)
    measured_s = simulated_s(truth, placements)
    found = refit(problem, placements[:20], measured_s[:20])
    before = np.abs(np.log(simulated_s(problem, placements[20:]) / measured_s[20:]))
    after = np.abs(np.log(simulated_s(found.apply(problem), placements[20:]) / measured_s[20:]))
    assert np.median(before) > 0.15
    assert after.max() < 0.05
    assert found.compute == pytest.approx(1.2, rel=0.05)


def test_one_measurement_moves_the_factors_little(problem):
    single = np.zeros((1, problem.num_units), int)
    found = refit(problem, single, simulated_s(problem, single) * 1.05)
    assert 1.0 < found.compute < 1.06
    assert found.ends == pytest.approx(1.0, abs=0.02)
