"""The public face does what it promises."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tf_placer


@tf.function
def two_products(x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.matmul(x, x), tf.matmul(x + 1.0, x))


def test_a_function_goes_in_and_a_placed_graph_comes_out() -> None:
    item = tf_placer.Item.from_function(two_products, tf.ones((64, 64)))
    cluster = tf_placer.Cluster.preset("p100x2")
    problem = tf_placer.build_problem(item, cluster)
    result = tf_placer.search(problem, method="random", budget_evaluations=64, seed=0)
    assert isinstance(result, tf_placer.SearchResult)
    assert result.evaluations == 64
    assert result.lower_bound_s <= result.runtime_s

    measurement = tf_placer.SimulatedEvaluator(problem).evaluate(result.placement.device_of_unit[np.newaxis])
    assert measurement.status[0] == tf_placer.Status.OK
    assert measurement.runtime_s[0] == result.runtime_s

    graph_def = tf_placer.apply_placement(item, result.placement)
    assert {node.device for node in graph_def.node} <= {device.name for device in cluster.devices}


def test_a_function_whose_sizes_depend_on_data_can_be_placed() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def positive(x: tf.Tensor) -> tf.Tensor:
        return tf.boolean_mask(x, x > 0.0)

    item = tf_placer.Item.from_function(positive, tf.constant([1.0, -1.0]))
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("p100x2"))
    assert sum(problem.estimated_sizes.values()) > 0
    assert tf_placer.search(problem, "single", budget_evaluations=3).runtime_s > 0


def test_a_device_without_a_kernel_is_refused() -> None:
    @tf.function
    def joined(words: tf.Tensor) -> tf.Tensor:
        return tf.strings.reduce_join(words)

    item = tf_placer.Item.from_function(joined, tf.constant(["a", "b"]))
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("p100x1"))
    on_gpu = np.zeros(problem.num_units, np.int32)  # a preset lists its GPUs first
    with pytest.raises(tf_placer.InputError, match=r"has no kernel on .*GPU:0; it can run on .*CPU:0"):
        tf_placer.Placement(problem, on_gpu)
