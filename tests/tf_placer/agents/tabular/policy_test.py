"""The table's distribution by hand."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.tabular import TabularInputs, TabularPolicy

# Groups 0 and 1 of units 0 and 2, and 1; unit 3 is on device 2. Group 1 may not be on device 2.
INPUTS = TabularInputs(
    group_of_unit=tf.constant([0, 1, 0, 2]),
    only_device=tf.constant([0, 0, 0, 2]),
    legal=tf.constant([[True, True, True], [True, True, False]]),
    prior_logits=tf.zeros([2, 3]),
)


@pytest.fixture
def policy():
    table = TabularPolicy(2, 3)
    table.logits.assign(np.log([[1.0, 2.0, 1.0], [3.0, 1.0, 7.0]]))
    return table


def test_probabilities_by_hand(policy):
    expected = [[0.25, 0.5, 0.25], [0.75, 0.25, 0.0]]
    np.testing.assert_allclose(np.exp(policy.log_probabilities(INPUTS)), expected, rtol=1e-6)


def test_what_can_be_decided_is_certain_together(policy):
    every = np.array(list(itertools.product(range(3), range(2))), np.int32)
    assert float(tf.reduce_sum(tf.exp(policy.score(INPUTS, tf.constant(every))))) == pytest.approx(1)


def test_draws_are_as_often_as_scored(policy):
    drawn = policy.sample(INPUTS, 20_000, tf.constant([1, 2])).numpy()
    expected = np.exp(policy.log_probabilities(INPUTS))
    for group in range(2):
        frequency = np.bincount(drawn[:, group], minlength=3) / 20_000
        # Deviation sqrt(p (1 - p) / 20,000) < 0.0036; four of them.
        np.testing.assert_allclose(frequency, expected[group], atol=0.015)


def test_units_go_where_their_groups_go(policy):
    rows = policy.placements(INPUTS, tf.constant([[2, 1], [0, 0]]))
    assert rows.numpy().tolist() == [[2, 1, 2, 2], [0, 0, 0, 2]]
