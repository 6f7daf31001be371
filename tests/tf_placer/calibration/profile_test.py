"""A profile put into a problem: times and links change, and nothing else does. How long one is awaited."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.files import Cache, Durations
from tf_placer.calibration import build_problem as profile
from tf_placer.calibration.build_problem import OpTimes, Profile, awaited_s, calibrated
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.local import local_devices
from tf_placer.costs.formulas import OpWork
from tf_placer.graph.item import Item
from tf_placer.runtime.timing import RuntimeConfig


def test_op_times_replace_estimates_and_work_stays():
    work = OpWork(flops=np.array([1e9, 0]), num_bytes=np.array([8e6, 4e6]), launches=np.array([1, 0]))
    estimated = dataclasses.replace(
        problem_of([10, 20], [(0, 1)], 4, names=["a", "b"]), work=work, guessed_op_types={"Cholesky": 1}
    )
    times = OpTimes(op_ns={"a": 700}, step_s=7e-7, tracing_ns=0.0, unmeasured=("b",))
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
    monkeypatch.setattr("tf_placer.base.files.durations_file", lambda: tmp_path / "durations.json")
    return Durations()


def test_what_is_not_kept_is_awaited_as_long_as_it_took_or_by_a_rule(durations, tmp_path):
    item = Item.from_function(tf.function(lambda x: tf.tanh(x)), tf.ones([4]), name="step")
    config, cache = RuntimeConfig(), Cache(tmp_path)
    one = Cluster("local", *local_devices(1), kind="local")
    rules = profile._PROFILING_S
    assert awaited_s(item, one, config, cache) == rules["profiling ops"]
    durations.keep("profiling ops", 4.0)
    assert awaited_s(item, one, config, cache) == 4.0
    cache.save(profile._ops_key(item, one, 0, config), {})
    assert awaited_s(item, one, config, cache) == 0.0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_links_are_awaited_once_for_a_machine(durations, tmp_path):
    item = Item.from_function(tf.function(lambda x: tf.tanh(x)), tf.ones([4]), name="step")
    config, cache = RuntimeConfig(), Cache(tmp_path)
    two = Cluster("local", *local_devices(2), kind="local")
    assert awaited_s(item, two, config, cache) == sum(profile._PROFILING_S.values())
    # One of each model is profiled.
    cache.save(profile._ops_key(item, two, 0, config), {})
    cache.save(profile._pair_key(two, config), {})
    assert awaited_s(item, two, config, cache) == profile._PROFILING_S["profiling traffic"]
    cache.save(profile._traffic_key(two, config), {})
    assert awaited_s(item, two, config, cache) == 0.0
    other = Item.from_function(tf.function(lambda x: tf.sin(x)), tf.ones([4]), name="other")
    assert awaited_s(other, two, config, cache) == profile._PROFILING_S["profiling ops"]
