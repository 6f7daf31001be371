"""The GCN is what its formula says, and linear in what a graph has."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.graph_inputs import draw_weights
from tf_placer.networks.graph_encoders import GraphConvolution, normalized_adjacency

F, H = 3, 4
EDGES = tf.constant([[0, 1], [1, 2], [0, 2], [2, 3]])
FEATURES = tf.random.stateless_normal([5, F], [1, 2])  # node 4 has no edge


@pytest.fixture(scope="module")
def network():
    network = GraphConvolution(H, 2)
    network(FEATURES, EDGES)
    draw_weights(network, 0)
    return network


def dense(edges, nodes):
    """The formula in NumPy."""
    table = np.eye(nodes)
    for one, other in edges:
        table[one, other] += 1
        table[other, one] += 1
    root = 1 / np.sqrt(table.sum(axis=1))
    return root[:, np.newaxis] * table * root


def test_the_adjacency_by_hand():
    # Degrees with the loops: 2 and 3. One edge: 1 / sqrt(2 * 3); loops 1/2, 1/3, 1/2.
    found = tf.sparse.to_dense(tf.sparse.reorder(normalized_adjacency(tf.constant([[0, 1], [1, 2]]), 3)))
    root = 6**-0.5
    np.testing.assert_allclose(found, [[1 / 2, root, 0], [root, 1 / 3, root], [0, root, 1 / 2]], rtol=1e-6)


def test_it_computes_the_formula(network):
    adjacency, expected = dense(EDGES.numpy(), 5), FEATURES.numpy()
    weights = {tuple(v.name.split("/")[-2:]): v.numpy() for v in network.trainable_variables}
    for layer in ("layer_0", "layer_1"):
        # The bias is inside: of a row whose sum is not 1 it is not the same as behind.
        expected = np.maximum(adjacency @ (expected @ weights[layer, "w:0"] + weights[layer, "b:0"]), 0)
    np.testing.assert_allclose(network(FEATURES, EDGES), expected, rtol=1e-5, atol=1e-6)


def test_a_node_knows_of_others_within_as_many_hops_as_there_are_layers(network):
    path = tf.constant([[0, 1], [1, 2], [2, 3], [3, 4]])
    more = tf.tensor_scatter_nd_add(FEATURES, [[0]], [[5.0] * F])
    moved = np.abs(network(more, path) - network(FEATURES, path)).max(axis=1)
    assert (moved[:3] > 1e-6).all() and (moved[3:] == 0).all()


def test_numbers_of_nodes_say_nothing(network):
    order = np.array([3, 0, 4, 2, 1])
    place = np.argsort(order)
    other = network(tf.gather(FEATURES, order), tf.constant(place[EDGES.numpy()]))
    np.testing.assert_allclose(other, tf.gather(network(FEATURES, EDGES), order), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nodes", [1, 2, 9])
def test_one_set_of_weights_reads_any_graph(network, nodes):
    edges = tf.constant([[0, 1]] * (nodes > 1), tf.int32, shape=[int(nodes > 1), 2])
    found = network(tf.ones([nodes, F]), edges)
    assert found.shape == (nodes, H) and np.isfinite(found).all()


def test_eighty_thousand_nodes_take_seconds():
    nodes, generator = 80_000, np.random.default_rng(0)
    edges = tf.constant(generator.integers(0, nodes, [2 * nodes, 2]), tf.int32)
    network = GraphConvolution(64, 3)
    begin_s = time.process_time()
    found = network(tf.constant(generator.normal(size=[nodes, 32]), tf.float32), edges)
    # 0.3 s of a core; a matrix [V, V] would be 24 GiB.
    assert found.shape == (nodes, 64) and time.process_time() - begin_s < 10
