"""The learner: pre-trains, proposes, is taught by what was executed, and it learns."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    PROBLEM,
    check_a_proposal_stays,
    check_it_is_its_variables,
    update,
    warm_start_on,
)
from tests.tf_placer.problem.small_problems import branches_optimum_ns, branches_problem
from tf_placer.agents.mars import MarsConfig, MarsLearner
from tf_placer.search.search import search

CONFIG = MarsConfig(
    num_groups=8,
    encoder_width=8,
    hidden=8,
    segment=4,
    groups_per_step=2,
    placements=7,
    minibatches=3,
    elites=2,
    start_probability=0.5,
    pretrain_iterations=2,
)


def learner_of(config=CONFIG, policy=None, problem=PROBLEM):
    """A learner that begins with everything on device 0; rewards are relative to a second."""
    return MarsLearner(problem, config, warm_start_on(0, problem), seed=3, policy=policy)


@pytest.fixture(scope="module")
def learner():
    """One for all tests that do not mind how far it is."""
    return learner_of(dataclasses.replace(CONFIG, pretrain_iterations=0))


@pytest.mark.medium
def test_a_proposal_stays_until_it_is_learned_from(learner):
    check_a_proposal_stays(learner, 7)


@pytest.mark.medium
def test_each_call_is_traced_once_and_what_was_drawn_is_what_is_scored(learner):
    for _ in range(2):
        update(learner)
    assert learner.propose.experimental_get_tracing_count() == 1
    assert learner._step.experimental_get_tracing_count() == 1
    inputs, proposal = learner._of_problem.inputs, learner.propose()
    executed = proposal.actions.device_of_group
    np.testing.assert_array_equal(learner.policy.placements(inputs, executed), proposal.placements)
    scored = learner.policy.score(inputs, executed, learner._embedded()).decision_log_prob()[0]
    np.testing.assert_allclose(scored, proposal.actions.log_prob, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
def test_each_epoch_takes_every_sample_once(learner):
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


@pytest.mark.medium
def test_how_sure_it_is_changes_nothing(learner):
    before = [v.numpy() for v in learner.variables]
    assert 0 < float(learner.entropy()) <= np.log(2) + 1e-6
    for variable, old in zip(learner.variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)


@pytest.fixture
def eagerly():
    """Without graphs, whose tracing takes longer than the few steps of a test."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


PLAIN = dataclasses.replace(CONFIG, pretrain_iterations=0, entropy=0.0, elites=0)


def test_failures_of_any_cause_get_the_failing_reward_and_are_not_imitated(eagerly):
    learner = learner_of(dataclasses.replace(PLAIN, standardize=False, failing_reward=-7.0, elites=2))
    learner.learn(learner.propose().actions, tf.fill([7], float("nan")), tf.zeros([7], tf.bool))
    assert float(learner.baseline.average[0]) == pytest.approx(-7)
    assert not np.any(learner.best.known)
    for variable in learner.policy.trainable_variables:
        assert np.isfinite(variable.numpy()).all(), variable.name


@pytest.mark.parametrize("apart", [False, True])
def test_the_loss_is_ppos_over_exactly_the_executed_actions(eagerly, apart):
    plain = learner_of(dataclasses.replace(PLAIN, decisions_apart=apart))
    actions, old = (each[:3] for each in plain.propose().actions)
    advantage, weight = tf.constant([1.0, -2.0, 5.0]), tf.constant([1.0, 1.0, 0.0])
    # Before any step the ratios are 1: -mean A over samples, times the decisions where those are apart.
    times, shift = (actions.shape[1], 1.0) if apart else (1, 1.0 / actions.shape[1])
    loss = plain._loss(actions, old, advantage, weight)
    assert float(loss) == pytest.approx(times * (2 - 1) / 3, rel=1e-4)
    # Half as likely then: a ratio of 2, of which 1.2 count where that is a gain.
    loss = plain._loss(actions, old - shift * tf.math.log(2.0), advantage, weight)
    assert float(loss) == pytest.approx(times * (2 * 2 - 1.2) / 3, rel=1e-4)


def test_the_best_plans_and_the_entropy_are_in_the_loss(eagerly):
    full = learner_of(dataclasses.replace(PLAIN, entropy=0.5, elites=2))
    actions, old = full.propose().actions
    full.best.take(actions, tf.constant([5.0, 1.0, 2.0, 9.0, 9.0, 9.0, np.inf]))
    assert full.best.runtime_s.numpy().tolist() == [1, 2]
    decoded = full.policy.score(full._of_problem.inputs, actions, full._embedded())
    expected = -np.mean(decoded.log_prob()[0, 1:3])
    expected -= 0.5 * np.mean(decoded.entropy()) / actions.shape[1]
    assert float(full._loss(actions, old, tf.zeros([7]), tf.ones([7]))) == pytest.approx(expected, rel=1e-4)


def values(module):
    return [variable.numpy() for variable in module.trainable_variables]


def test_it_is_pre_trained_before_the_first_proposal_unless_the_weights_are_given(eagerly):
    without, taught = learner_of(PLAIN), learner_of(dataclasses.replace(PLAIN, pretrain_iterations=2))
    pairs = zip(values(without.policy.encoder), values(taught.policy.encoder), strict=True)
    assert all((one != other).any() for one, other in pairs)
    np.testing.assert_equal(values(without.policy.placer), values(taught.policy.placer))
    weights, other_problem = values(taught.policy), branches_problem(2, 7, num_devices=3)
    other = learner_of(taught._config, taught.policy, other_problem)
    assert other.policy is taught.policy
    np.testing.assert_equal(values(other.policy), weights)


@pytest.mark.medium
@pytest.mark.parametrize("goes_on", [False, True])
def test_the_encoder_goes_on_or_stays(eagerly, goes_on):
    learner = learner_of(dataclasses.replace(PLAIN, encoder_goes_on=goes_on))
    encoder, placer = values(learner.policy.encoder), values(learner.policy.placer)
    update(learner)
    assert any((one != other).any() for one, other in zip(values(learner.policy.placer), placer, strict=True))
    changed = [
        (one != other).any() for one, other in zip(values(learner.policy.encoder), encoder, strict=True)
    ]
    assert any(changed) == goes_on
    # What is kept of the graph is what the encoder says of it.
    embedded = learner.policy.embed(learner._of_problem.inputs)
    np.testing.assert_allclose(learner._embedded(), embedded, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_learner_is_its_variables(tmp_path):
    check_it_is_its_variables(learner_of, tmp_path)


@pytest.mark.slow
def test_the_papers_settings_learn_a_small_problem():
    problem = branches_problem(4, 4)
    config = {"preset": "paper", "hidden": 32, "encoder_width": 32, "pretrain_iterations": 20, "segment": 6}
    learned = search(
        problem, "mars", budget_evaluations=600, seed=0, config=config, start=problem.everything_on(0)
    )
    first, last = (np.mean([e.mean_s for e in part]) for part in (learned.history[1:6], learned.history[-5:]))
    assert last < first, f"{first} to {last}"


@pytest.mark.slow
def test_what_is_learned_is_better_than_what_was_sampled_at_first():
    problem, evaluations = branches_problem(4, 10), 3200
    small = {"encoder_width": 16, "hidden": 32, "num_groups": 48, "placements": 32}
    # From one device: the list schedule, where it would begin by itself, is the optimum here.
    learned = search(
        problem, "mars", budget_evaluations=evaluations, config=small, start=problem.everything_on(0)
    )
    random = search(problem, "random", budget_evaluations=evaluations)
    optimum_s = branches_optimum_ns(4, 10) / 1e9
    first_s = next(e.best_s for e in reversed(learned.history) if e.evaluations <= 100)
    last_mean_s = np.mean([e.mean_s for e in learned.history[-5:]])
    report = (
        f"optimum {optimum_s}, learned {learned.runtime_s}, random {random.runtime_s}, mean {last_mean_s}"
    )
    assert learned.runtime_s < random.runtime_s, report
    assert last_mean_s < first_s, report
    # One device takes 1.98 times the optimum: more than half of the way, each unit decided by itself.
    assert optimum_s * (1 - 1e-9) <= learned.runtime_s <= 1.49 * optimum_s, report


@pytest.mark.slow
def test_what_was_learned_on_one_graph_is_of_use_on_another():
    config = dataclasses.replace(CONFIG, hidden=32, encoder_width=16, placements=32, minibatches=2)
    taught = learner_of(config, problem=branches_problem(4, 8))
    for _ in range(60):
        proposal = taught.propose()
        times = 1.0 + tf.reduce_mean(tf.cast(proposal.placements == 0, tf.float32), axis=1)
        taught.learn(proposal.actions, times, tf.ones([32], tf.bool))
    other = branches_problem(3, 6)
    share = []
    for policy in (None, taught.policy):
        learner = learner_of(config, policy, other)
        share.append(float(tf.reduce_mean(tf.cast(learner.propose().placements == 0, tf.float32))))
    # It was taught to leave device 0, which half of the groups are to begin with.
    assert share[0] > 0.35 and share[1] < share[0] / 2
