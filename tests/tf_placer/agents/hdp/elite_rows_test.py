"""Logits that bring the policy's probabilities part of the way to the elites' frequencies."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.hdp import LEAST_PROBABILITY, shift_to_elites
from tf_placer.base import masked


def test_a_table_moves_to_the_frequencies():
    table = tf.math.log([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]])
    devices = tf.constant([[0, 0], [1, 0], [2, 2], [2, 1]])
    elite = tf.constant([1.0, 1.0, 0.0, 0.0])
    shift = shift_to_elites(tf.repeat(table[tf.newaxis], 4, axis=0), devices, elite, 0.2)
    # Frequencies among the first two are 1/2, 1/2, 0 and 1, 0, 0: 0.8 p + 0.2 f.
    expected = [[0.5, 0.3, 0.2], [0.84, 0.08, 0.08]]
    np.testing.assert_allclose(tf.nn.softmax(table + shift), expected, rtol=1e-5)


def test_what_the_network_says_is_averaged_over_the_elites():
    logits = tf.math.log([[[0.9, 0.1]], [[0.5, 0.5]]])
    shift = shift_to_elites(logits, tf.constant([[1], [1]]), tf.ones([2]), 0.5)
    # The mean 0.7, 0.3 goes half of the way to 0, 1.
    np.testing.assert_allclose(shift, np.log([[0.35 / 0.7, 0.65 / 0.3]]), rtol=1e-5)


@pytest.mark.parametrize("step", [0.3, 1.0])
def test_what_is_masked_stays_and_nothing_is_infinite(step):
    logits = masked.masked(tf.zeros([2, 1, 3]), tf.constant([[True, False, True]]))
    shift = shift_to_elites(logits, tf.constant([[0], [0]]), tf.ones([2]), step).numpy()
    assert shift[0, 1] == 0 and shift[0, 0] > 0 > shift[0, 2] and np.isfinite(shift).all()


def test_without_elites_nothing_moves():
    assert (
        not shift_to_elites(tf.zeros([2, 1, 3]), tf.zeros([2, 1], tf.int32), tf.zeros([2]), 0.5).numpy().any()
    )


def test_what_is_rare_falls_no_more():
    table = tf.math.log([[1.0 - LEAST_PROBABILITY / 2, LEAST_PROBABILITY / 2]])
    shift = shift_to_elites(table[tf.newaxis], tf.constant([[0]]), tf.ones([1]), 0.5).numpy()
    assert shift[0, 1] == 0 and shift[0, 0] == pytest.approx(0, abs=1e-3)
