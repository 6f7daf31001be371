"""Group embeddings by hand."""

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.features import NUM_TYPES, type_numbers
from tf_placer.agents.graph_inputs import graph_inputs
from tf_placer.agents.hdp_policy import group_embeddings


def inputs_by_hand():
    """Units 0 = {a}, 1 = {b, c}, 2 = {d}, 3 = {e}; edges 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""
    problem = problem_of([1] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)], 1000)
    inputs = graph_inputs(problem, landmarks=3, seed=0)
    return inputs._replace(
        type_of_op=tf.constant(type_numbers(["Relu", "Const", "MatMul", "MatMul", "Relu"])),
        unit_of_op=tf.constant([0, 1, 1, 2, 3]),
        unit_features=tf.random.stateless_uniform(inputs.unit_features.shape, [1, 2], -1.0, 1.0),
    )


def test_group_embedding_by_hand():
    inputs = inputs_by_hand()
    # Units 0 and 3 in group 2, units 1 and 2 in group 0, group 1 empty; two groups more in the policy.
    embedding = group_embeddings(inputs, tf.constant([[2, 0, 0, 2]]), 3, 5)[0].numpy()
    assert embedding.shape == (3, NUM_TYPES + 16 + 5) == (3, NUM_TYPES + 16 + 5)
    relu, const, matmul = type_numbers(["Relu", "Const", "MatMul"])
    expected = np.zeros((3, NUM_TYPES))
    expected[0, matmul], expected[0, const], expected[2, relu] = 2, 1, 2
    np.testing.assert_allclose(np.expm1(embedding[:, :NUM_TYPES]), expected, atol=1e-5)
    sizes = np.expm1(embedding[:, NUM_TYPES : NUM_TYPES + 16])
    columns = np.maximum(inputs.unit_features.numpy()[:, :16], 0)  # what is absent is -1
    np.testing.assert_allclose(sizes[0], columns[1] + columns[2], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(sizes[2], columns[0] + columns[3], rtol=1e-4, atol=1e-6)
    assert (embedding[1] == 0).all()
    # All four edges run between groups 0 and 2.
    assert embedding[:, -5:].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_units_of_no_group_are_not_seen():
    inputs = inputs_by_hand()
    embedding = group_embeddings(inputs, tf.constant([[0, 2, 1, 2]]), 2, 2)[0].numpy()
    # Of the ops, a in group 0 and d in group 1 are left; of the edges 0 -> 2.
    assert np.expm1(embedding[:, :NUM_TYPES]).sum() == 2
    assert embedding[:, -2:].tolist() == [[0, 1], [1, 0]]


def test_group_adjacency_keeps_every_edge():
    # A hub read by 30 units: the old open-source file kept one edge of them.
    problem = problem_of([1] * 31, [(0, u) for u in range(1, 31)], 1000)
    inputs = graph_inputs(problem, landmarks=3, seed=0)
    adjacency = group_embeddings(inputs, tf.range(31)[tf.newaxis], 31, 31)[0].numpy()[:, -31:]
    expected = np.zeros((31, 31))
    expected[0, 1:] = expected[1:, 0] = 1
    np.testing.assert_array_equal(adjacency, expected)


def test_numbers_of_units_do_not_matter():
    inputs = inputs_by_hand()
    order = np.array([2, 0, 3, 1])  # unit order[i] becomes unit i
    place = np.argsort(order)
    other = inputs._replace(
        unit_features=tf.gather(inputs.unit_features, order),
        unit_of_op=tf.gather(tf.constant(place, tf.int32), inputs.unit_of_op),
        edges=tf.gather(tf.constant(place, tf.int32), inputs.edges),
    )
    groups = np.array([2, 0, 1, 2], np.int32)
    np.testing.assert_allclose(
        group_embeddings(inputs, tf.constant([groups]), 3, 3),
        group_embeddings(other, tf.constant([groups[order]]), 3, 3),
        rtol=1e-5,
        atol=1e-6,
    )
