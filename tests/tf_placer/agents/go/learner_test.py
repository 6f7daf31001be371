"""The learner: chains are proposed, it is taught by what was executed, and its weights are no problem's own."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    PROBLEM,
    SMALL,
    moved,
    off_device,
    update,
    warm_start_on,
    weights,
)
from tf_placer.agents.features import weights_bytes
from tf_placer.agents.go.learner import GoLearner, GoStudent, chunk_of
from tf_placer.agents.go.policy import NOWHERE, Chain, GoConfig, committed
from tf_placer.base.arguments import InputError

CONFIG = SMALL["go"]
PAPER = dataclasses.replace(
    CONFIG, granularity="units", begin="nothing", keep_probability=0.0, exploration=0.0, passes=2,
    minibatches=3, epochs=2, standardize=False,
)  # fmt: skip


def learner_of(config=CONFIG, problem=PROBLEM):
    """A learner that begins with everything on device 0; rewards are relative to a second."""
    return GoLearner(problem, config, warm_start_on(0, problem), seed=4)


def on_device_1(placements):
    """Fastest where everything is on device 1; all valid."""
    return off_device(0)(placements)


@pytest.fixture(scope="module")
def learner():
    """One for all tests that do not mind how far it is."""
    return learner_of()


@pytest.mark.medium
def test_the_first_sample_of_all_is_what_is_begun_with(learner):
    first = learner.propose()
    assert first.placements.shape == (6, PROBLEM.num_units)
    np.testing.assert_array_equal(first.placements[0], PROBLEM.everything_on(0))
    assert (first.placements[1:] != 0).numpy().any(axis=1).all()
    learner.learn(first.actions, *on_device_1(first.placements))
    assert (learner.propose().placements[0] != 0).numpy().any()


@pytest.mark.medium
def test_refinement_goes_on_from_the_best_that_runs(learner):
    proposal = learner.propose()
    best_s = float(learner.best.runtime_s[0])
    runtime_s, valid = on_device_1(proposal.placements)
    # The fastest does not run: it is nothing to go on from.
    runs = tf.range(6) != tf.argmin(runtime_s, output_type=tf.int32)
    learner.learn(proposal.actions, runtime_s, tf.logical_and(valid, runs))
    second_s = float(tf.reduce_min(tf.boolean_mask(runtime_s, runs)))
    assert float(learner.best.runtime_s[0]) == pytest.approx(min(best_s, second_s))
    best = learner.inputs.placements(learner.best.decisions[0])
    assert float(on_device_1(best)[0][0]) == pytest.approx(float(learner.best.runtime_s[0]), rel=1e-6)


@pytest.mark.medium
def test_the_loss_is_ppos_over_each_decision_and_less_the_entropy(learner):
    chain = Chain(learner.best.fastest[0], learner.propose().actions.chain.steps)
    scores = learner.policy.score(learner.inputs, chain)
    advantage = np.array([1.0, -1, 2, 0, 0.5, -2], np.float32)
    # Ratios of 1: the loss is minus the mean over samples of A times the number of decisions.
    told = (scores.log_prob, tf.constant(advantage), tf.zeros([6]))
    decisions = scores.log_prob.shape[2]
    entropy = float(tf.reduce_mean(scores.entropy))
    expected = -advantage.mean() * decisions - CONFIG.entropy * entropy
    assert float(learner._loss(chain, *told)) == pytest.approx(expected, rel=1e-4)
    # Decisions that were half as likely: a ratio of 2, which where it pays counts as 1.2.
    told = (scores.log_prob - np.log(2), tf.constant(advantage), tf.zeros([6]))
    gain = np.where(advantage > 0, 1.2 * advantage, 2 * advantage)
    expected = -gain.mean() * decisions - CONFIG.entropy * entropy
    assert float(learner._loss(chain, *told)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_the_papers_way():
    """Minibatches, two passes from nothing, and a mean of all trials."""
    learner = learner_of(PAPER)
    proposal = update(learner, on_device_1)
    assert proposal.actions.chain.steps.shape == (6, 2, PROBLEM.num_units)
    assert (learner.best.fastest[0] == NOWHERE).numpy().all(), "what was best is not looked at"
    rewards = -np.sqrt(on_device_1(proposal.placements)[0])
    assert float(learner.baseline.average[0]) == pytest.approx(rewards.mean(), rel=1e-5)


@pytest.mark.medium
def test_chunks_of_samples_add_up_to_a_minibatch(learner):
    actions = learner.propose().actions
    elite = tf.constant([0.0, 3, 0, 3, 0, 0])
    lesson = [actions.chain.steps, actions.log_prob, tf.constant([1.0, -1, 2, 0, 0.5, -2]), elite]
    whole, parts = [], []
    for chunk, found in ((6, whole), (2, parts)):
        learner._chunk = chunk
        learner._config = dataclasses.replace(CONFIG, elite_share=0.3)
        found += learner._gradients(actions.chain.begin, lesson, 6)
    learner._chunk, learner._config = 6, CONFIG
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    assert any(np.abs(one).max() > 0.1 for one in whole)


def test_chunks_divide_a_minibatch_and_fit():
    config = GoConfig(preset="paper")  # minibatches of 20; 3 heads, 512 keys, two passes after the first
    # 7,423 * 512 * 3 * 2 numbers a sample: 1 of them in 2^25.
    assert chunk_of(config, 7423) == 1
    # 700 nodes: 15 would fit, and 10 divides 20.
    assert chunk_of(config, 700) == 10
    assert chunk_of(config, 3) == 20


@pytest.mark.slow
def test_with_weights_the_first_placements_are_made_from_nothing_and_teach_nothing(tmp_path, monkeypatch):
    student = GoStudent(CONFIG, seed=9)
    path = tmp_path / "go.npz"
    path.write_bytes(weights_bytes(student.kind, student.policy, {}))
    # Nothing but rewards could move the weights.
    monkeypatch.setattr(GoConfig, "entropy", 0.0)
    learner = learner_of(dataclasses.replace(CONFIG, weights=str(path)))
    taught = weights(student.policy)
    assert not moved(learner.policy, taught)
    first = learner.propose()
    cold = committed(learner.policy, learner.inputs, 1, 12, tf.constant(0.0), tf.constant([0, 0]))
    np.testing.assert_array_equal(first.placements[0], PROBLEM.everything_on(0))
    np.testing.assert_array_equal(first.placements[1], learner.inputs.placements(cold)[0])
    learner.learn(first.actions, *on_device_1(first.placements))
    assert not moved(learner.policy, taught)
    fastest = int(tf.argmin(on_device_1(first.placements)[0]))
    np.testing.assert_array_equal(learner.best.fastest[0], first.actions.chain.steps[fastest, -1])
    update(learner, on_device_1)
    assert moved(learner.policy, taught)


def test_weights_that_are_not_there_are_told():
    with pytest.raises(InputError, match="nowhere"):
        learner_of(dataclasses.replace(CONFIG, weights="nowhere"))
