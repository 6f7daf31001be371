"""Inputs of policies: a problem as tensors, prior logits, means, and weights that come from our seed alone."""

import math

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.agents.features import (
    DEVICE_WIDTH,
    FIXED_WIDTH,
    NUM_TYPES,
    RELATIVE_WIDTH,
    GraphInputs,
    bounded_prior_logits,
    draw_weights,
    graph_inputs,
)


def test_sizes_are_the_problems_and_widths_are_not():
    for units, devices in ((5, 2), (9, 3)):
        problem = random_problem(np.random.default_rng(units), units, devices)
        inputs = graph_inputs(problem, landmarks=4, seed=0)
        assert inputs.unit_features.shape == (units, FIXED_WIDTH + 4)
        assert inputs.relative_features.shape == (units, RELATIVE_WIDTH)
        assert inputs.device_features.shape == (devices, DEVICE_WIDTH)
        assert inputs.edges.shape[1] == 2
        assert inputs.type_of_unit.shape == (units,) and int(tf.reduce_max(inputs.type_of_op)) < NUM_TYPES
        np.testing.assert_array_equal(inputs.unit_of_op, problem.unit_of_op)


def test_a_graph_without_edges_has_none():
    inputs = graph_inputs(problem_of([1, 2], [], cluster=small_cluster(1)), landmarks=0, seed=0)
    assert inputs.edges.shape == (0, 2)


def test_it_goes_through_a_function_and_comes_back():
    inputs = graph_inputs(random_problem(np.random.default_rng(0), 6, 2), landmarks=2, seed=0)
    again = tf.function(lambda given: given)(inputs)
    assert isinstance(again, GraphInputs)
    for ours, theirs in zip(tf.nest.flatten(again), tf.nest.flatten(inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


ALL = np.ones((1, 2), bool)


def probabilities(rows, legal, tanh_constant, temperature):
    weight = np.exp(tanh_constant * np.tanh(rows / temperature)) * legal
    return weight / weight.sum(axis=1, keepdims=True)


def test_the_device_is_drawn_as_often_as_asked():
    legal = np.array([[1, 1, 1], [0, 1, 1]], bool)
    rows = bounded_prior_logits(np.array([2, 1]), legal, 0.8, 5.0, 10.0)
    assert rows.dtype == np.float32
    found = probabilities(rows, legal, 5.0, 10.0)
    np.testing.assert_allclose(found, [[0.1, 0.1, 0.8], [0, 0.8, 0.2]], rtol=1e-5)


def test_the_bound_is_not_passed():
    # C = 1: logits 2 apart at most, so at most sigmoid(2); 0.99 of the way.
    rows = bounded_prior_logits(np.array([0]), ALL, 0.999, 1.0, 3.0)
    assert np.isfinite(rows).all()
    assert probabilities(rows, ALL, 1.0, 3.0)[0, 0] == pytest.approx(1 / (1 + math.exp(-1.98)), rel=1e-5)


def test_nothing_is_leaned_to():
    assert not bounded_prior_logits(np.array([0]), ALL, 0.0, 5.0, 10.0).any()


def drawn(seed):
    layer = snt.nets.MLP([400, 300])
    layer(tf.zeros([1, 100]))
    draw_weights(layer, seed)
    return {v.name: v.numpy() for v in layer.trainable_variables}


def test_weights_are_a_matter_of_the_seed_alone():
    tf.random.set_seed(1)
    first = drawn(7)
    tf.random.set_seed(2)
    again, other = drawn(7), drawn(8)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert (other[name] != first[name]).any() or "/b:" in name


def test_deviation_is_one_over_the_root_of_the_fan_in_and_biases_stay():
    for name, value in drawn(3).items():
        if value.ndim == 1:
            assert (value == 0).all(), name
            continue
        # Truncation at two deviations leaves 0.88 of the deviation (sqrt(1 - 4 phi(2) / (2 Phi(2) - 1))).
        deviation = value.std() * np.sqrt(value.shape[0])
        assert abs(deviation - 0.88) < 0.02, (name, deviation)
    matrices = [v for v in drawn(3).values() if v.ndim == 2]
    assert abs(np.corrcoef(matrices[0].ravel()[:30000], matrices[1].ravel()[:30000])[0, 1]) < 0.05


def test_the_fan_in_of_a_convolution_is_its_whole_window():
    layer = snt.Conv2D(200, 5)
    layer(tf.zeros([1, 8, 8, 16]))
    layer.w.assign(tf.zeros_like(layer.w))
    draw_weights(layer, 0)
    # 5 * 5 * 16 inputs; truncated as above.
    assert abs(layer.w.numpy().std() * np.sqrt(5 * 5 * 16) - 0.88) < 0.02


def test_what_has_no_fan_in_is_refused():
    class Scaled(snt.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable(1.0, name="scale")

    with pytest.raises(ValueError, match=r"weight '.*scale:0' is a number without dimensions"):
        draw_weights(Scaled(), 0)
