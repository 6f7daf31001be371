"""Deep Graph Infomax by hand, and on graphs that it was not taught."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.networks.graph_encoders import (
    DeepGraphInfomax,
    infomax_accuracy,
    infomax_loss,
    mixed_up,
    readout,
)


def test_the_readout_by_hand():
    # Means 0 and log 3: 1/2 and 3/4.
    rows = tf.constant([[1.0, 0.0], [-1.0, 2 * math.log(3.0)]])
    np.testing.assert_allclose(readout(rows), [0.5, 0.75], rtol=1e-6)


def test_the_discriminator_by_hand():
    network = DeepGraphInfomax(2)
    rows = tf.constant([[1.0, 0.0], [-1.0, 2 * math.log(3.0)]])
    network(rows, rows)
    weight, bias = network.trainable_variables[1], network.trainable_variables[0]
    weight.assign([[2.0, 0.0], [0.0, 4.0]])
    bias.assign([0.5])
    # s = (1/2, 3/4), s W = (1, 3).
    logits = network(rows, tf.constant([[1.0, 1.0], [0.0, -1.0]]))
    np.testing.assert_allclose(logits, [[1.5, -0.5 + 6 * math.log(3.0)], [4.5, -2.5]], rtol=1e-6)


def test_loss_and_accuracy_by_hand():
    # Sigmoid 3/4 and 1/2 as it is, 1/4 and 3/4 mixed up: -log of 3/4, 1/2, 3/4, 1/4.
    log3 = math.log(3.0)
    logits = tf.constant([[log3, 0.0], [-log3, log3]])
    expected = -(math.log(3 / 4) + math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 4)) / 4
    assert float(infomax_loss(logits)) == pytest.approx(expected, rel=1e-6)
    assert float(infomax_accuracy(logits)) == 0.5  # one of each two; 0 is not said to be of the graph


def test_mixing_up_keeps_all_rows_and_is_a_matter_of_the_seed():
    features = tf.random.stateless_normal([50, 3], [1, 2])
    one, same, other = (mixed_up(features, tf.constant([3, seed])).numpy() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other) and not np.array_equal(one, features)
    np.testing.assert_array_equal(one[np.lexsort(one.T)], features.numpy()[np.lexsort(features.numpy().T)])
