"""Segments are computed side by side, and see what they would one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.graph_inputs import draw_weights
from tf_placer.networks.graph_encoders import SegmentAttention

H, K, S, HEADS, W = 4, 3, 3, 2, 5
WHOLE = tf.constant([0.5, -1.0, 2.0])
NODES = tf.random.stateless_normal([2, 8, H], [1, 2])  # of three segments, the last one with two nodes


def attention_of(layers=1, segment=S):
    attention = SegmentAttention(H, layers, HEADS, W, 6, segment)
    attention(NODES, WHOLE)
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
    query, key, value, out = (
        getattr(layer, f"_{name}").w.numpy() for name in ("query", "key", "value", "out")
    )
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
            inner = np.maximum(normed(row) @ first.w.numpy(), 0) @ last.w.numpy()
            rows.append(normed(row + inner))
    return np.array(rows)


def test_a_layer_is_what_a_loop_says():
    attention = attention_of()  # biases are 0, scales 1
    found = attention(NODES, WHOLE).numpy()
    for sample, row in zip(NODES.numpy(), found, strict=True):
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
        tape.watch(NODES)
        last = tf.reduce_sum(deep(NODES, WHOLE)[:, 2 * S :, 0])
    by_node = np.abs(tape.gradient(last, NODES)).max(axis=(0, 2))
    assert (by_node[: 2 * S] == 0).all() and (by_node[2 * S :] > 0).all()


def test_there_are_no_positions_inside_a_segment(deep):
    order = [2, 0, 1, 3, 5, 4, 6, 7]
    shuffled = deep(tf.gather(NODES, order, axis=1), WHOLE)
    np.testing.assert_allclose(shuffled, tf.gather(deep(NODES, WHOLE), order, axis=1), rtol=1e-4, atol=1e-5)


def test_the_graph_as_a_whole_has_a_part(deep):
    assert not np.allclose(deep(NODES, WHOLE), deep(NODES, -WHOLE))


def test_one_node_and_fewer_than_a_segment():
    attention = attention_of(segment=100)
    whole = attention(NODES, WHOLE)
    np.testing.assert_allclose(attention_of(segment=8)(NODES, WHOLE), whole, rtol=1e-5)
    assert np.isfinite(attention(NODES[:, :1], WHOLE)).all()


def test_one_trace_serves_all_lengths(deep):
    traced = tf.function(
        deep, autograph=False, input_signature=[tf.TensorSpec([None, None, H]), tf.TensorSpec([K])]
    )
    for count in (1, 3, 7, 8):
        nodes = NODES[:1, :count]
        np.testing.assert_allclose(traced(nodes, WHOLE), deep(nodes, WHOLE), rtol=1e-4, atol=1e-5)
