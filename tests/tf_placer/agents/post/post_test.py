"""Post: a table of probabilities over what is legal, and a learner that moves it."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import off_device, small_learner, update
from tf_placer.agents.tables import PostConfig, PostPolicy


def share_on_device_1(learner):
    return float(np.mean(learner.propose().placements.numpy() == 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"cross_every": 0, "levels": 1},
        {"epochs": 0, "levels": 1},
        {"cross_every": 2},
        {"preset": "paper", "cross_every": 2, "smoothing": 1.0},
    ],
    ids=["PPO alone", "cross-entropy alone", "both", "as in the paper"],
)
def test_it_learns(changes):
    learner = small_learner("post", **changes)
    before = share_on_device_1(learner)
    for _ in range(12):
        update(learner, off_device(0))
    assert before < 0.65
    assert share_on_device_1(learner) > 0.85


def test_the_cross_entropy_step_looks_at_the_batches_since_the_last_one(monkeypatch):
    monkeypatch.setattr(PostConfig, "elites", 1 / 128)
    learner = small_learner("post", epochs=0, cross_every=2, smoothing=1.0, levels=1)
    uniform = learner.policy.logits.numpy()
    first = update(learner, off_device(0))
    np.testing.assert_array_equal(learner.policy.logits, uniform)
    second = update(learner, off_device(0))
    both = np.concatenate([first.actions, second.actions])
    rows = np.concatenate([first.placements, second.placements])
    fastest = both[np.argmax(rows.mean(axis=1))]  # one elite of 128: the table is that plan
    np.testing.assert_array_equal(learner.policy.logits.numpy().argmax(axis=1), fastest)
    assert np.isinf(learner.times.numpy()).all()


def test_a_table_that_has_converged_goes_on_with_finer_groups(monkeypatch):
    monkeypatch.setattr(PostConfig, "elites", 1 / 64)
    learner = small_learner("post", epochs=0, smoothing=1.0)
    coarse = len(learner.policy.logits.numpy())
    proposal = update(learner, off_device(0))
    assert int(learner.level) == 1 and len(learner.policy.logits.numpy()) > coarse
    best = proposal.placements.numpy()[np.argmin(off_device(0)(proposal.placements)[0])]
    np.testing.assert_array_equal(learner.best.fastest[0], best)


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
