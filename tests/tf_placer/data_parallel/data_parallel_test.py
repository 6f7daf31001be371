"""Data parallelism is a replica's own step and the all-reduce, or a reason why there is none."""

import dataclasses

import pytest
import tensorflow as tf

from tests.tf_placer.data_parallel.steps import BATCH, WIDTH, dense_step, forward, lookup_step, splittable
from tf_placer.cluster.cluster import Cluster
from tf_placer.data_parallel.data_parallel import (
    Splittable,
    all_gather_s,
    all_reduce_s,
    data_parallel,
    replica_problem,
)
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem

P100X2 = Cluster.preset("p100x2")
GRADIENT_BYTES = 4 * WIDTH * WIDTH


def single_s(item, cluster=P100X2) -> float:
    problem = analytic_problem(item, cluster)
    return float(SimulatedEvaluator(problem).evaluate(problem.everything_on(0)[None]).runtime_s[0])


def test_a_step_is_that_of_half_the_batch_and_an_all_reduce() -> None:
    item = dense_step()
    found = data_parallel(item, analytic_problem(item, P100X2), splittable(dense_step))
    assert found.replica_s == single_s(dense_step(BATCH // 2))
    assert found.all_reduce_s == all_reduce_s(P100X2, [0, 1], GRADIENT_BYTES)
    assert found.step_s == found.replica_s + found.all_reduce_s
    assert found.replica_s <= found.overlapped_s <= found.step_s
    assert (found.batch, found.replica_batch, found.gradient_bytes) == (BATCH, BATCH // 2, GRADIENT_BYTES)
    assert found.fits and not found.why_not and found.measured_s is None
    assert [name[-5:] for name in found.devices] == ["GPU:0", "GPU:1"]


def test_slices_are_gathered_from_all() -> None:
    item = lookup_step()
    found = data_parallel(item, analytic_problem(item, P100X2), splittable(lookup_step))
    half_bytes = (4 * WIDTH + 4) * BATCH // 2  # values and indices
    assert found.all_reduce_s == all_gather_s(P100X2, [0, 1], half_bytes)


def test_inference_needs_no_all_reduce() -> None:
    item = forward()
    found = data_parallel(item, analytic_problem(item, P100X2), splittable(forward))
    assert found.step_s == found.replica_s == single_s(forward(BATCH // 2))
    assert found.all_reduce_s == found.gradient_bytes == 0


def test_costs_that_were_profiled_stay_what_they_are() -> None:
    item, part = dense_step(), dense_step(BATCH // 2)
    problem = analytic_problem(item, P100X2)
    profiled = dataclasses.replace(problem, compute_ns=3 * problem.compute_ns)
    expected_ns = 3 * analytic_problem(part, P100X2).compute_ns
    assert abs(replica_problem(item, part, profiled).compute_ns - expected_ns).max() <= 1


def test_a_whole_model_must_fit_on_each() -> None:
    item = dense_step()
    tiny = tuple(dataclasses.replace(device, memory_bytes=150) for device in P100X2.devices)
    problem = analytic_problem(item, dataclasses.replace(P100X2, devices=tiny))
    found = data_parallel(item, problem, splittable(dense_step))
    resident = 2 * GRADIENT_BYTES  # weight and momentum; at the end, the gradient and its pack beside them
    assert min(found.peak_bytes.values()) >= resident + 2 * GRADIENT_BYTES
    assert found.over_bytes == max(found.peak_bytes.values()) - 150
    assert not found.fits and found.step_s is not None


def test_reasons() -> None:
    item = dense_step()
    problem = analytic_problem(item, P100X2)

    def why_not(problem, splittable, item=item) -> str:
        found = data_parallel(item, problem, splittable)
        assert found.step_s is None and not found.fits
        return found.why_not

    assert why_not(problem, Splittable(7, dense_step)) == "7 examples do not divide by 2 devices"
    assert "fewer examples" in why_not(problem, None)
    assert "fewer examples" in why_not(problem, splittable(dense_step), None)
    assert "one device" in why_not(analytic_problem(item, Cluster.logical(1)), splittable(dense_step))
    assert "saved with" in why_not(problem, Splittable(8, lambda batch: item))


def test_a_step_that_cannot_be_traced_with_fewer_examples() -> None:
    item = forward()

    def fails(batch: int) -> Item:
        return Item.from_function(tf.function(lambda x: tf.reshape(x, [8, 3])), tf.ones([batch, WIDTH]))

    found = data_parallel(item, analytic_problem(item, P100X2), Splittable(BATCH, fails))
    assert found.step_s is None and found.why_not


@pytest.mark.parametrize("name", ["k40x4", "p100x8"])
def test_more_devices_send_smaller_parts(name: str) -> None:
    cluster = Cluster.preset(name)
    count = len(cluster.devices) - 1
    item = dense_step()
    found = data_parallel(item, analytic_problem(item, cluster), splittable(dense_step))
    assert found.replica_batch == BATCH // count
    assert found.all_reduce_s == all_reduce_s(cluster, range(count), GRADIENT_BYTES)
