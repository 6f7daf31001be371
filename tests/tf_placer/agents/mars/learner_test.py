"""The learner of Mars: pre-trains, is taught by what was executed, and it learns."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    check_it_learns,
    moved,
    off_device,
    small_learner,
    update,
    weights,
)
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.mars import MarsStudent
from tf_placer.agents.weights import weights_bytes
from tf_placer.base.arguments import InputError
from tf_placer.search.search import search

PLAIN = {"pretrain_iterations": 0, "entropy": 0.0, "elites": 0}


@pytest.fixture
def eagerly():
    """Without graphs, whose tracing takes longer than the few steps of a test."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.medium
def test_each_epoch_takes_every_sample_once_and_what_was_drawn_is_what_is_scored():
    learner = small_learner("mars", pretrain_iterations=0)
    update(learner)
    executed, log_prob = learner.propose().actions
    scored = learner.policy.score(learner.inputs, executed, learner._embedded()).decision_log_prob()[0]
    np.testing.assert_allclose(scored, log_prob, rtol=1e-4, atol=1e-5)
    # 7 samples in 3 minibatches: 3 places each, of which 2 are padding.
    minibatches = list(learner._minibatches())
    assert [rows.shape for rows, _ in minibatches] == [(3,)] * 9
    epochs = []
    for begin in (0, 3):
        rows, weight = (np.concatenate(each) for each in zip(*minibatches[begin : begin + 3], strict=True))
        assert sorted(rows[weight > 0].tolist()) == list(range(7)) and weight.sum() == 7
        assert all(weight.numpy().sum() >= 2 for _, weight in minibatches)
        epochs.append(rows.tolist())
    assert epochs[0] != epochs[1]


def test_failures_get_the_failing_reward_and_are_not_imitated(eagerly):
    learner = small_learner("mars", **{**PLAIN, "elites": 2}, preset="paper", failing_reward=-7.0)
    learner.learn(learner.propose().actions, tf.fill([7], float("nan")), tf.zeros([7], tf.bool))
    assert float(learner.baseline.average[0]) == pytest.approx(-7)
    assert not np.any(learner.best.known)


@pytest.mark.parametrize("preset", ["paper", "ours"])
def test_the_loss_is_ppos_over_exactly_the_executed_actions(eagerly, preset):
    learner = small_learner("mars", **PLAIN, preset=preset)
    actions, old = (each[:3] for each in learner.propose().actions)
    advantage, weight = tf.constant([1.0, -2.0, 5.0]), tf.constant([1.0, 1.0, 0.0])
    # Before any step the ratios are 1: -mean A over samples, times the decisions where each is clipped by itself.
    times, shift = (1, 1.0 / actions.shape[1]) if preset == "paper" else (actions.shape[1], 1.0)
    loss = learner._loss(actions, old, advantage, weight)
    assert float(loss) == pytest.approx(times * (2 - 1) / 3, rel=1e-4)
    # Half as likely then: a ratio of 2, of which 1.2 count where that is a gain.
    loss = learner._loss(actions, old - shift * tf.math.log(2.0), advantage, weight)
    assert float(loss) == pytest.approx(times * (2 * 2 - 1.2) / 3, rel=1e-4)


def test_the_best_plans_and_the_entropy_are_in_the_loss(eagerly):
    learner = small_learner("mars", **{**PLAIN, "entropy": 0.5, "elites": 2})
    actions, old = learner.propose().actions
    learner.best.take([actions], tf.constant([5.0, 1.0, 2.0, 9.0, 9.0, 9.0, np.inf]))
    assert learner.best.runtime_s.numpy().tolist() == [1, 2]
    decoded = learner.policy.score(learner.inputs, actions, learner._embedded())
    expected = -np.mean(decoded.log_prob()[0, 1:3])
    expected -= 0.5 * np.mean(decoded.entropy()) / actions.shape[1]
    loss = learner._loss(actions, old, tf.zeros([7]), tf.ones([7]))
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_it_is_pre_trained_before_the_first_proposal_unless_the_weights_are_given(eagerly):
    without, pretrained = (
        small_learner("mars", **{**PLAIN, "pretrain_iterations": count}).policy for count in (0, 2)
    )
    pairs = zip(weights(without.encoder), weights(pretrained.encoder), strict=True)
    assert all((ours != theirs).any() for ours, theirs in pairs)
    np.testing.assert_equal(weights(without.placer), weights(pretrained.placer))
    before = weights(pretrained)
    small_learner("mars", branches_problem(2, 7, num_devices=3), policy=pretrained)
    np.testing.assert_equal(weights(pretrained), before)


@pytest.mark.medium
@pytest.mark.parametrize("preset", ["paper", "ours"])
def test_the_papers_encoder_learns_by_rewards_and_ours_stays(eagerly, preset):
    learner = small_learner("mars", **PLAIN, preset=preset)
    encoder, placer = weights(learner.policy.encoder), weights(learner.policy.placer)
    update(learner)
    assert moved(learner.policy.placer, placer)
    assert moved(learner.policy.encoder, encoder) == (preset == "paper")
    # What is kept of the graph is what the encoder says of it.
    np.testing.assert_allclose(
        learner._embedded(), learner.policy.embed(learner.inputs), rtol=1e-5, atol=1e-6
    )


def test_a_search_begins_with_a_given_encoder(tmp_path):
    student = MarsStudent(small_learner("mars", **PLAIN)._config, seed=9)
    path = tmp_path / "mars.npz"
    path.write_bytes(weights_bytes(student.kind, student.policy, {}))
    learner = small_learner("mars", weights=str(path))
    np.testing.assert_equal(weights(learner.policy.encoder), weights(student.policy))
    with pytest.raises(InputError, match="encoder_width=8"):
        small_learner("mars", encoder_width=4, weights=str(path))


@pytest.mark.slow
def test_the_papers_settings_learn_a_small_problem():
    problem = branches_problem(4, 4)
    config = {"preset": "paper", "hidden": 32, "encoder_width": 32, "pretrain_iterations": 20, "segment": 6}
    start = problem.everything_on(0)
    learned = search(problem, "mars", budget_evaluations=600, seed=0, config=config, start=start)
    first, last = (np.mean([e.mean_s for e in part]) for part in (learned.history[1:6], learned.history[-5:]))
    assert last < first, f"{first} to {last}"


@pytest.mark.slow
def test_what_is_learned_is_better_than_what_was_sampled_at_first():
    small = {"encoder_width": 16, "hidden": 32, "num_groups": 48, "placements": 32}
    # One device takes 1.98 times the optimum: more than half of the way, each unit decided by itself.
    check_it_learns("mars", 3200, most=1.49, config=small)


@pytest.mark.slow
def test_what_was_learned_on_one_graph_is_of_use_on_another():
    settings = {"hidden": 32, "encoder_width": 16, "placements": 32, "minibatches": 2}
    taught = small_learner("mars", branches_problem(4, 8), **settings)
    for _ in range(60):
        update(taught, off_device(0))
    other, share = branches_problem(3, 6), []
    for policy in (None, taught.policy):
        learner = small_learner("mars", other, policy=policy, **settings)  # a traced method holds it weakly
        share.append(float(tf.reduce_mean(tf.cast(learner.propose().placements == 0, tf.float32))))
    # It was taught to leave device 0, which half of the groups are to begin with.
    assert share[0] > 0.35 and share[1] < share[0] / 2
