"""Problems with costs measured on real workers."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.files import Cache
from tf_placer.calibration import build_problem as profile_module
from tf_placer.calibration import refit as traffic
from tf_placer.calibration.build_problem import build_problem, measure_pair
from tf_placer.evaluation import runtime
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item

pytestmark = pytest.mark.alone

# Fewer tensors, turns and placements than users get.
SIZES_BYTES = (1 << 10, 1 << 16, 1 << 22)


@pytest.fixture(scope="module")
def cluster(warm_workers):
    return warm_workers.cluster


@pytest.fixture(scope="module")
def item():
    weight = tf.Variable(tf.ones([256, 256]), name="weight")

    @tf.function
    def step(x):
        y = tf.matmul(x, weight, name="product")
        weight.assign_sub(1e-6 * y)
        return tf.reduce_sum(y, name="total")

    return Item.from_function(step, tf.ones([256, 256]), name="step")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def profiled(item, cluster, folder, warm_workers):
    """The item's problem, profiled on the shared workers."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (profile_module, runtime):
            patch.setattr(module, "workers_of", warm_workers.lend)
        patch.setattr(
            profile_module, "measure_pair", functools.partial(measure_pair, sizes_bytes=SIZES_BYTES)
        )
        for name, value in {"_ROUNDS": 8, "_PARTS": (2, 8, 32, 128), "_LINKS": (1, 8)}.items():
            patch.setattr(traffic, name, value)
        return build_problem(item, cluster, "profiled", Cache(folder))


@pytest.mark.medium
def test_times_are_those_of_the_runtime(profiled, item, cluster):
    assert profiled.compute_ns.shape == build_problem(item, cluster, "analytic").compute_ns.shape
    assert profiled.op_names[int(profiled.compute_ns[:, 0].argmax())] == "product"
    np.testing.assert_array_equal(profiled.compute_ns[:, 0], profiled.compute_ns[:, 1])
    assert profiled.guessed_op_types == {}
    for link in profiled.cluster.links:
        assert link.latency_ns + link.send_ns + link.receive_ns > 0


@pytest.mark.medium
def test_the_simulated_single_device_is_the_measured_one(profiled, item, cluster, folder):
    found = profile_module.profile(item, profiled, cache=Cache(folder))
    simulated = SimulatedEvaluator(profiled).evaluate(profiled.everything_on(0)[np.newaxis])
    assert simulated.runtime_s[0] == pytest.approx(found.op_times["local_cpu"].step_s, rel=0.02)


@pytest.mark.medium
def test_links_are_fitted_to_placements_of_a_program_of_our_own(profiled, item, cluster, folder):
    found = profile_module.profile(item, profiled, cache=Cache(folder)).traffic
    assert len(found.measured_s) == len(found.before_s) == len(found.after_s) > 10
    before = np.abs(np.log(np.array(found.before_s) / found.measured_s))
    after = np.abs(np.log(np.array(found.after_s) / found.measured_s))
    assert np.square(after).sum() < np.square(before).sum()
    assert found.correction.compute == 1


@pytest.mark.medium
def test_the_worker_that_is_called_costs_a_step_more(profiled):
    own, called = profiled.cluster.join_ns()
    assert own == 0 <= called


@pytest.mark.slow
def test_times_are_what_they_are_where_little_else_runs(profiled, item, folder):
    # 256^3 multiply-adds take a core between 0.1 and 30 ms.
    assert 1e5 < profiled.compute_ns[profiled.op_names.index("product"), 0] < 3e7
    for link in profiled.cluster.links:
        assert 1e4 < link.latency_ns + link.send_ns + link.receive_ns < 1e8
    assert 50_000 < profiled.cluster.join_ns()[1] < 20_000_000  # 0.5 to 1.2 ms on an idle machine
    found = profile_module.profile(item, profiled, cache=Cache(folder)).traffic
    assert found.error < 0.3  # 0.06 on an idle machine


@pytest.mark.medium
def test_a_second_problem_measures_nothing(profiled, item, cluster, folder, monkeypatch):
    def no_measurement(*args, **kwargs):
        raise AssertionError("measured again")

    monkeypatch.setattr(profile_module, "measure_op_times", no_measurement)
    monkeypatch.setattr(profile_module, "measure_pair", no_measurement)
    monkeypatch.setattr(profile_module, "measure_traffic", no_measurement)
    again = build_problem(item, cluster, cache=Cache(folder))  # profiled, since the devices are there
    np.testing.assert_array_equal(again.compute_ns, profiled.compute_ns)
    assert again.cluster == profiled.cluster
    with pytest.raises(AssertionError, match="measured again"):
        build_problem(item, cluster, "profiled", Cache(folder / "elsewhere"))
