"""The learner: proposes, is taught by what was executed, and it learns."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import PROBLEM, check_it_is_its_variables, warm_start_on
from tf_placer.agents.post import PostConfig, PostLearner

CONFIG = PostConfig(samples=64, parts=4, levels=2, epochs=2, learning_rate=0.5)


def learner_of(seed=3, **changes):
    return PostLearner(PROBLEM, dataclasses.replace(CONFIG, **changes), warm_start_on(0), seed)


def on_device_1(placements):
    """Best where everything is on device 1; all run."""
    times = 1.0 + np.mean(placements.numpy() == 0, axis=1)
    return tf.constant(times), tf.ones(len(times), tf.bool)


def update(learner, evaluate=on_device_1):
    proposal = learner.propose()
    learner.learn(proposal.actions, *evaluate(proposal.placements))
    return proposal


def share_on_device_1(learner):
    return float(np.mean(learner.propose().placements.numpy() == 1))


@pytest.fixture(scope="module", name="learner")
def fixture_learner():
    """One for tests that do not mind how far it is."""
    return learner_of()


def test_a_proposal_stays_until_it_is_learned_from(learner):
    first, again = learner.propose(), learner.propose()
    np.testing.assert_array_equal(first.placements, again.placements)
    assert first.placements.shape == (64, PROBLEM.num_units)
    update(learner)
    assert not np.array_equal(learner.propose().placements, first.placements)


@pytest.mark.parametrize(
    "changes",
    [
        {"cross_every": 0, "levels": 1},
        {"epochs": 0, "levels": 1},
        {"cross_every": 2},
        {"preset": "paper", "samples": 64, "cross_every": 2},
    ],
    ids=["PPO alone", "cross-entropy alone", "both", "as in the paper"],
)
def test_it_learns(changes):
    learner = learner_of(**changes)
    before = share_on_device_1(learner)
    for _ in range(12):
        update(learner)
    assert before < 0.65
    assert share_on_device_1(learner) > 0.85


def test_shuffled_times_teach_nothing():
    generator = np.random.default_rng(0)

    def shuffled(placements):
        times, valid = on_device_1(placements)
        return tf.constant(generator.permutation(times.numpy())), valid

    learner = learner_of(levels=1)
    for _ in range(12):
        update(learner, shuffled)
    assert share_on_device_1(learner) < 0.8


def test_the_cross_entropy_step_looks_at_the_batches_since_the_last_one(monkeypatch):
    monkeypatch.setattr(PostConfig, "elites", 1 / 128)
    learner = learner_of(epochs=0, cross_every=2, smoothing=1.0, levels=1)
    uniform = learner.policy.logits.numpy()
    first = update(learner)
    np.testing.assert_array_equal(learner.policy.logits, uniform)
    second = update(learner)
    both = np.concatenate([first.actions, second.actions])
    rows = np.concatenate([first.placements, second.placements])
    fastest = both[np.argmax(rows.mean(axis=1))]  # one elite of 128: the table is that plan
    np.testing.assert_array_equal(learner.policy.logits.numpy().argmax(axis=1), fastest)
    assert np.isinf(learner.times.numpy()).all()


def test_a_table_that_has_converged_goes_on_with_finer_groups(monkeypatch):
    monkeypatch.setattr(PostConfig, "elites", 1 / 64)
    learner = learner_of(epochs=0, smoothing=1.0)
    coarse = len(learner.policy.logits.numpy())
    proposal = update(learner)
    assert int(learner.level) == 1 and len(learner.policy.logits.numpy()) > coarse
    best = proposal.placements.numpy()[np.argmin(on_device_1(proposal.placements)[0])]
    np.testing.assert_array_equal(learner.best.decisions[0], best)


def test_a_learner_is_its_variables(tmp_path, monkeypatch):
    monkeypatch.setattr(PostConfig, "elites", 2 / 64)

    def make():
        return learner_of(seed=5, epochs=1, smoothing=1.0)

    first = check_it_is_its_variables(make, tmp_path, on_device_1)
    assert int(first.level) == 1, "it reaches the finer level"


def test_where_nothing_runs_it_goes_on(learner):
    def nothing(placements):
        return tf.fill([len(placements)], np.nan), tf.zeros(len(placements), tf.bool)

    for _ in range(2):
        update(learner, nothing)
    assert np.isfinite(learner.policy.logits.numpy()).all()
