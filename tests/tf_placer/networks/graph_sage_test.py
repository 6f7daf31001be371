"""Nodes hear the largest of what their neighbors say, in any graph, in time linear in its edges."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.graph_inputs import draw_weights
from tf_placer.networks.graph_encoders import GraphSage

F, H = 3, 4
EDGES = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])  # and node 4 by itself
NODES = np.random.default_rng(0).normal(size=(5, F)).astype(np.float32)


def encoder_of(width, layers, features=F):
    encoder = GraphSage(width, layers)
    encoder(tf.zeros([1, features]), tf.zeros([0, 2], tf.int32))
    draw_weights(encoder, seed=1)
    return encoder


@pytest.fixture(scope="module")
def encoder():
    return encoder_of(H, layers=1)


def by_hand(encoder, nodes, edges):
    """One layer, node by node."""
    down, up = ([one.w.numpy(), one.b.numpy()] for one in encoder._say[0])
    combine = encoder._combine[0]
    rows = []
    for node in range(len(nodes)):
        heard = []
        for neighbors, (w, b) in ((edges[edges[:, 1] == node, 0], down), (edges[edges[:, 0] == node, 1], up)):
            said = [1 / (1 + np.exp(-(nodes[one] @ w + b))) for one in neighbors]
            heard.append(np.max(said, axis=0) if said else np.zeros(H))
        rows.append(np.concatenate([nodes[node], *heard]) @ combine.w.numpy() + combine.b.numpy())
    return np.maximum(np.array(rows), 0)


def test_a_layer_is_the_formula(encoder):
    found = encoder(tf.constant(NODES), tf.constant(EDGES, tf.int32))
    np.testing.assert_allclose(found, by_hand(encoder, NODES, EDGES), rtol=1e-5, atol=1e-6)
    assert not np.allclose(found, encoder(tf.constant(NODES), tf.constant(EDGES[:, ::-1], tf.int32))), (
        "which way work flows is seen"
    )


def test_a_node_without_neighbors_hears_nothing(encoder):
    found = encoder(tf.constant(NODES), tf.zeros([0, 2], tf.int32))
    np.testing.assert_allclose(found, by_hand(encoder, NODES, np.zeros([0, 2], int)), rtol=1e-5, atol=1e-6)


def test_the_order_of_edges_and_the_names_of_nodes_do_not_matter(encoder):
    found = encoder(tf.constant(NODES), tf.constant(EDGES, tf.int32)).numpy()
    np.testing.assert_array_equal(encoder(tf.constant(NODES), tf.constant(EDGES[::-1], tf.int32)), found)
    name = np.array([3, 0, 4, 1, 2])  # of each node, now
    renamed = np.empty_like(NODES)
    renamed[name] = NODES
    other = encoder(tf.constant(renamed), tf.constant(name[EDGES], tf.int32)).numpy()
    np.testing.assert_allclose(other[name], found, rtol=1e-6)


def test_as_many_layers_as_hops_are_heard():
    chain = tf.constant([[0, 1], [1, 2], [2, 3]])
    nodes = NODES[:4]
    changed = np.concatenate([nodes[:1] + 1, nodes[1:]])
    one, two = (encoder_of(8, layers=2)(tf.constant(each), chain).numpy() for each in (nodes, changed))
    moved = np.abs(one - two).max(axis=1)
    assert (moved[:3] > 0).all() and moved[3] == 0


@pytest.mark.slow
def test_eighty_thousand_units_with_their_gradient():
    generator, units, edges = np.random.default_rng(0), 80_000, 240_000
    nodes = tf.constant(generator.normal(size=(units, 32)), tf.float32)
    pairs = tf.constant(np.sort(generator.integers(0, units, (edges, 2)), axis=1), tf.int32)
    encoder = encoder_of(64, layers=2, features=32)

    def gradients():
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.square(encoder(nodes, pairs)))
        return [
            tf.convert_to_tensor(one).numpy() for one in tape.gradient(total, encoder.trainable_variables)
        ]

    begin_s = time.process_time()
    first = gradients()
    assert time.process_time() - begin_s < 20, "of two cores together; 10 s on the clock"
    for one, again in zip(first, gradients(), strict=True):
        np.testing.assert_array_equal(one, again)
