"""A problem as tensors is a nest, with the problem's own sizes and nobody else's."""

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.agents.features import DEVICE_WIDTH, FIXED_WIDTH, NUM_TYPES, RELATIVE_WIDTH
from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs


def test_sizes_are_the_problems_and_widths_are_not():
    for units, devices in ((5, 2), (9, 3)):
        problem = random_problem(np.random.default_rng(units), units, devices)
        inputs = graph_inputs(problem, landmarks=4, seed=0)
        assert inputs.unit_features.shape == (units, FIXED_WIDTH + 4)
        assert inputs.relative_features.shape == (units, RELATIVE_WIDTH)
        assert inputs.device_features.shape == (devices, DEVICE_WIDTH)
        assert inputs.allowed.shape == (units, devices)
        assert inputs.edges.shape == (*inputs.edge_bytes.shape, 2)
        assert inputs.type_of_unit.shape == (units,) and int(tf.reduce_max(inputs.type_of_op)) < NUM_TYPES
        np.testing.assert_array_equal(inputs.unit_of_op, problem.unit_of_op)


def test_a_graph_without_edges_has_none():
    inputs = graph_inputs(problem_of([1, 2], [], cluster=small_cluster(1)), landmarks=0, seed=0)
    assert inputs.edges.shape == (0, 2) and inputs.edge_bytes.shape == (0,)


def test_it_goes_through_a_function_and_comes_back():
    inputs = graph_inputs(random_problem(np.random.default_rng(0), 6, 2), landmarks=2, seed=0)
    again = tf.function(lambda given: given)(inputs)
    assert isinstance(again, GraphInputs)
    for ours, theirs in zip(tf.nest.flatten(again), tf.nest.flatten(inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)
