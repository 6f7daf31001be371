"""The Grouper is a real network: types are embedded, and it bends."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.features import draw_weights
from tf_placer.grouper.feed_forward import FeedForwardGrouper

GROUPS, TYPES, UNITS, FEATURES = 5, 7, 9, 4


@pytest.fixture
def grouper():
    grouper = FeedForwardGrouper(GROUPS, TYPES, type_embedding_width=3, hidden_width=16)
    grouper(tf.zeros([UNITS], tf.int32), tf.zeros([UNITS, FEATURES]))
    draw_weights(grouper, seed=1)
    return grouper


def test_shapes_and_biases(grouper):
    logits = grouper(tf.zeros([UNITS], tf.int32), tf.zeros([UNITS, FEATURES]))
    assert logits.shape == (UNITS, GROUPS)
    shapes = sorted(tuple(v.shape) for v in grouper.trainable_variables)
    # Embedding, two matrices, and a bias for each of the two layers.
    assert shapes == sorted([(TYPES, 3), (3 + FEATURES, 16), (16,), (16, GROUPS), (GROUPS,)])


def test_it_is_not_linear_in_its_features(grouper):
    types = tf.zeros([UNITS], tf.int32)
    x = tf.random.stateless_normal([UNITS, FEATURES], seed=[0, 1])
    # A linear (or affine) network has f(x) + f(-x) = 2 f(0).
    bend = grouper(types, x) + grouper(types, -x) - 2 * grouper(types, tf.zeros_like(x))
    assert float(tf.reduce_max(tf.abs(bend))) > 0.1


def test_an_op_type_is_a_name_and_not_a_number(grouper):
    logits = grouper(tf.range(TYPES), tf.zeros([TYPES, FEATURES])).numpy()
    # As a scalar feature, types t, t + 1, t + 2 would lie on one ray of hidden activations almost everywhere.
    assert len(np.unique(logits.round(5), axis=0)) == TYPES
    second_difference = np.abs(np.diff(logits, n=2, axis=0)).max(axis=1)
    assert (second_difference > 1e-3).all()


def test_each_type_learns_for_itself(grouper):
    embedding = next(v for v in grouper.trainable_variables if tuple(v.shape) == (TYPES, 3))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(grouper(tf.constant([2, 2, 4]), tf.ones([3, FEATURES]))[:, 0])
    gradient = tf.convert_to_tensor(tape.gradient(loss, embedding)).numpy()
    assert set(np.flatnonzero(np.abs(gradient).sum(axis=1))) == {2, 4}


def test_units_are_grouped_independently(grouper):
    types = tf.range(UNITS) % TYPES
    x = tf.random.stateless_normal([UNITS, FEATURES], seed=[0, 2])
    changed = tf.tensor_scatter_nd_add(x, [[3]], [[1.0] * FEATURES])
    moved = np.abs(grouper(types, changed) - grouper(types, x)).max(axis=1)
    assert moved[3] > 0 and (np.delete(moved, 3) == 0).all()
