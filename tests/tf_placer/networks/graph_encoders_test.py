"""Networks over graphs are what their formulas say, and linear in what a graph has."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.features import draw_weights
from tf_placer.networks.graph_encoders import (
    DeepGraphInfomax,
    GraphConvolution,
    GraphSage,
    SegmentAttention,
    infomax_loss,
    normalized_adjacency,
)

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


@pytest.mark.medium
def test_memory_is_linear_in_the_nodes_and_gradients_are_the_same_again():
    generator, units = np.random.default_rng(0), 80_000
    nodes = tf.constant(generator.normal(size=(units, 32)), tf.float32)
    pairs = tf.constant(np.sort(generator.integers(0, units, (2 * units, 2)), axis=1), tf.int32)
    # A matrix [V, V] would be 24 GiB.
    assert GraphConvolution(64, 3)(nodes, pairs).shape == (units, 64)
    encoder, gradients = encoder_of(64, layers=2, features=32), []
    for _ in range(2):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.square(encoder(nodes, pairs)))
        gradient = tape.gradient(total, encoder.trainable_variables)
        gradients.append([tf.convert_to_tensor(each).numpy() for each in gradient])
    for first, again in zip(*gradients, strict=True):
        np.testing.assert_array_equal(first, again)


SAGE_EDGES = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])  # and node 4 by itself
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


@pytest.mark.parametrize(
    "edges", [SAGE_EDGES, SAGE_EDGES[:, ::-1], np.zeros([0, 2], int)], ids=["as they are", "turned", "none"]
)
def test_a_layer_is_the_formula(encoder, edges):
    expected = by_hand(encoder, NODES, edges)
    np.testing.assert_allclose(encoder(NODES, tf.constant(edges, tf.int32)), expected, rtol=1e-5, atol=1e-6)


def test_as_many_layers_as_hops_are_heard():
    chain = tf.constant([[0, 1], [1, 2], [2, 3]])
    nodes = NODES[:4]
    changed = np.concatenate([nodes[:1] + 1, nodes[1:]])
    one, two = (encoder_of(8, layers=2)(tf.constant(each), chain).numpy() for each in (nodes, changed))
    moved = np.abs(one - two).max(axis=1)
    assert (moved[:3] > 0).all() and moved[3] == 0


def test_the_discriminator_by_hand():
    network = DeepGraphInfomax(2)
    rows = tf.constant([[1.0, 0.0], [-1.0, 2 * math.log(3.0)]])
    network(rows, rows)
    weight, bias = network.trainable_variables[1], network.trainable_variables[0]
    weight.assign([[2.0, 0.0], [0.0, 4.0]])
    bias.assign([0.5])
    # Means 0 and log 3: s = (1/2, 3/4), s W = (1, 3).
    logits = network(rows, tf.constant([[1.0, 1.0], [0.0, -1.0]]))
    np.testing.assert_allclose(logits, [[1.5, -0.5 + 6 * math.log(3.0)], [4.5, -2.5]], rtol=1e-6)


def test_the_loss_by_hand():
    # Sigmoid 3/4 and 1/2 as it is, 1/4 and 3/4 mixed up: -log of 3/4, 1/2, 3/4, 1/4.
    log3 = math.log(3.0)
    logits = tf.constant([[log3, 0.0], [-log3, log3]])
    expected = -(math.log(3 / 4) + math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 4)) / 4
    assert float(infomax_loss(logits)) == pytest.approx(expected, rel=1e-6)


K, S, HEADS, W = 3, 3, 2, 5
WHOLE = tf.constant([0.5, -1.0, 2.0])
SEQUENCE = tf.random.stateless_normal([2, 8, H], [1, 2])  # of three segments, the last one with two nodes


def attention_of(layers=1, segment=S):
    attention = SegmentAttention(H, layers, HEADS, W, 6, segment)
    attention(SEQUENCE, WHOLE)
    draw_weights(attention, seed=3)
    return attention


@pytest.fixture(scope="module")
def deep():
    return attention_of(layers=2)


def normed(rows):
    return (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)


# NumPy may warn of lanes of a vector that a small product does not use; a NaN in a result is unequal all the same.
@np.errstate(invalid="ignore")
def one_after_the_other(attention, nodes):
    """[V, H] of one layer: a loop over segments, nodes and heads."""
    layer = attention._layers[0]
    nodes = nodes * (WHOLE.numpy() @ layer._modulate.w.numpy() + layer._modulate.b.numpy())
    query, key, value, out = (getattr(layer, name).w.numpy() for name in ("_query", "_key", "_value", "_out"))
    first, last = layer._inner._layers
    rows = []
    for begin in range(0, len(nodes), S):
        seen = normed(nodes[max(begin - S, 0) : begin + S])
        for node in nodes[begin : begin + S]:
            heads = []
            for head in range(HEADS):
                part = slice(head * W, head * W + W)
                score = (seen @ key[:, part]) @ (normed(node) @ query[:, part]) / np.sqrt(W)
                weight = np.exp(score - score.max())
                heads.append(weight / weight.sum() @ (seen @ value[:, part]))
            row = node + np.concatenate(heads) @ out
            rows.append(normed(row + np.maximum(normed(row) @ first.w.numpy(), 0) @ last.w.numpy()))
    return np.array(rows)


def test_a_layer_is_what_a_loop_says():
    attention = attention_of()  # biases are 0, scales 1
    for sample, row in zip(SEQUENCE.numpy(), attention(SEQUENCE, WHOLE).numpy(), strict=True):
        np.testing.assert_allclose(row, one_after_the_other(attention, sample), rtol=1e-3, atol=1e-4)


def test_it_looks_back_a_segment_a_layer_and_never_ahead(deep):
    nodes = tf.random.stateless_normal([1, 12, H], [5, 6])
    before = deep(nodes, WHOLE).numpy()
    for segment, reached in ((0, [0, 1, 2]), (2, [2, 3]), (3, [3])):
        change = tf.one_hot(segment * S, 12)[tf.newaxis, :, tf.newaxis] * tf.constant([1.0, -1.0, 2.0, 0.0])
        moved = np.abs(deep(nodes + change, WHOLE).numpy() - before)[0].max(axis=1).reshape(4, S)
        assert np.flatnonzero(moved.max(axis=1) > 1e-5).tolist() == reached


def test_no_gradient_flows_to_the_segment_before(deep):
    with tf.GradientTape() as tape:
        tape.watch(SEQUENCE)
        last = tf.reduce_sum(deep(SEQUENCE, WHOLE)[:, 2 * S :, 0])
    by_node = np.abs(tape.gradient(last, SEQUENCE)).max(axis=(0, 2))
    assert (by_node[: 2 * S] == 0).all() and (by_node[2 * S :] > 0).all()


def test_one_node_and_fewer_than_a_segment():
    attention = attention_of(segment=100)
    whole = attention(SEQUENCE, WHOLE)
    np.testing.assert_allclose(attention_of(segment=8)(SEQUENCE, WHOLE), whole, rtol=1e-5)
    assert np.isfinite(attention(SEQUENCE[:, :1], WHOLE)).all()
