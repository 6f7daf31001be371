"""A problem as tensors is a nest, with the problem's own sizes and nobody else's."""

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.agents.features import NUM_TYPES, RELATIVE_WIDTH
from tf_placer.agents.features.device_features import DEVICE_WIDTH
from tf_placer.agents.features.unit_features import FIXED_WIDTH
from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs, loads_on_devices, placements_of


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


def test_a_unit_goes_where_its_group_goes_or_to_its_only_device():
    rows = placements_of(tf.constant([[1, 0], [2, 1]]), tf.constant([1, 2, 0]), tf.constant([9, 7, 9]))
    assert rows.numpy().tolist() == [[0, 7, 1], [1, 7, 2]]


def test_loads_are_shares_and_slowness_is_in_decades():
    # Two units of a group: 30 ns on device 0, 300 on device 1, of 30 + 10 at best in all.
    problem = problem_of([[10, 100], [20, 200], [10, 10]], [])
    load, slowness = loads_on_devices(problem, np.array([0, 0, 1]), np.ones((2, 2), bool))
    np.testing.assert_allclose(load[:, :, 0], [[30 / 40, 300 / 40], [10 / 40, 10 / 40]])
    np.testing.assert_allclose(slowness, [[0, np.log10(301 / 31)], [0, 0]], rtol=1e-6)
