"""A table of probabilities over what is legal."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.post import PostPolicy

LEGAL = tf.constant([[True, True, True], [False, True, True], [False, False, True]])
TABLE = np.array([[0.5, 0.25, 0.25], [0.9, 0.025, 0.075], [0.4, 0.4, 0.2]])


@pytest.fixture(name="policy")
def fixture_policy():
    policy = PostPolicy(devices=3)
    policy.become(TABLE)
    return policy


def test_the_legal_ones_share_what_there_is(policy):
    expected = [[0.5, 0.25, 0.25], [0, 0.25, 0.75], [0, 0, 1]]  # 0.025 and 0.075 are one to three
    np.testing.assert_allclose(policy.probability(LEGAL), expected, rtol=1e-5)


def test_draws_are_legal_and_as_often_as_the_table_says(policy):
    drawn = policy.sample(LEGAL, 4000, tf.constant([1, 2])).numpy()
    assert drawn.shape == (4000, 3)
    for group, row in enumerate(policy.probability(LEGAL).numpy()):
        share = np.bincount(drawn[:, group], minlength=3) / 4000
        # Five standard deviations of a share of 4000.
        assert (np.abs(share - row) <= 5 * np.sqrt(row * (1 - row) / 4000)).all()
    np.testing.assert_array_equal(policy.sample(LEGAL, 4000, tf.constant([1, 2])), drawn)


def test_a_decision_has_the_probability_of_the_table(policy):
    scores = policy.score(LEGAL, tf.constant([[0, 1, 2], [2, 2, 2]]))
    np.testing.assert_allclose(np.exp(scores), [[0.5, 0.25, 1], [0.25, 0.75, 1]], rtol=1e-5)


def test_what_had_no_probability_can_come_back(policy):
    policy.become(np.array([[1.0, 0.0, 0.0]] * 4))  # of any number of groups
    assert policy.logits.numpy().shape == (4, 3)
    assert np.isfinite(policy.logits.numpy()).all()
