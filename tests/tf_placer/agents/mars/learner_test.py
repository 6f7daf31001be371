"""Mars: groups and losses by hand; it pre-trains, learns from what was executed, and its encoder carries over."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    copy_weights,
    moved,
    off_device,
    small_learner,
    update,
    weights,
)
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.agents.features import RELATIVE_WIDTH, weights_bytes
from tf_placer.agents.mars import SUMMARY_WIDTH, MarsConfig, MarsPolicy, MarsStudent, mars_groups, mars_inputs
from tf_placer.base.arguments import InputError
from tf_placer.grouper.groups import Groups
from tf_placer.search.search import search
from tf_placer.training.teach import lesson_of

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


def test_it_is_pre_trained_before_the_first_proposal(eagerly):
    without, pretrained = (
        small_learner("mars", **{**PLAIN, "pretrain_iterations": count}).policy for count in (0, 2)
    )
    pairs = zip(weights(without.encoder), weights(pretrained.encoder), strict=True)
    assert all((ours != theirs).any() for ours, theirs in pairs)
    np.testing.assert_equal(weights(without.placer), weights(pretrained.placer))


@pytest.mark.medium
@pytest.mark.parametrize("preset", ["paper", "ours"])
def test_the_papers_encoder_learns_by_rewards_and_ours_stays(eagerly, preset):
    learner = small_learner("mars", **PLAIN, preset=preset)
    encoder, placer = weights(learner.policy.encoder), weights(learner.policy.placer)
    update(learner)
    assert moved(learner.policy.placer, placer)
    assert moved(learner.policy.encoder, encoder) == (preset == "paper")
    # What is kept of the graph is what the encoder says of it.
    np.testing.assert_allclose(learner._embedded(), learner.policy.embed(learner.inputs), 1e-5, 1e-6)


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
def test_what_was_learned_on_one_graph_is_of_use_on_another():
    settings = {"hidden": 32, "encoder_width": 16, "placements": 32, "minibatches": 2}
    taught = small_learner("mars", branches_problem(4, 8), **settings)
    for _ in range(60):
        update(taught, off_device(0))
    other, share = branches_problem(3, 6), []
    for is_taught in (False, True):
        learner = small_learner("mars", other, **settings)
        if is_taught:
            copy_weights(taught.policy, learner.policy)
            learner.groups.assign(learner.policy.embed(learner.inputs))
        share.append(float(tf.reduce_mean(tf.cast(learner.propose().placements == 0, tf.float32))))
    # It was taught to leave device 0, which half of the groups are to begin with.
    assert share[0] > 0.35 and share[1] < share[0] / 2


SIZES = {"encoder_width": 8, "hidden": 8, "segment": 3, "groups_per_step": 1}
CONFIG = MarsConfig(num_groups=6, **SIZES)


def inputs_of(problem, config=CONFIG):
    groups = mars_groups(problem, config)
    return mars_inputs(problem, groups, groups.legal.argmax(axis=1), config, 0)


@pytest.fixture(scope="module")
def policy():
    return MarsPolicy(CONFIG, seed=5)


@pytest.fixture(scope="module")
def branches():
    return inputs_of(branches_problem(4, 4))


def test_a_group_is_the_mean_and_the_largest_of_its_units(policy, branches):
    columns, edges = policy.encoder.columns(branches.graph), branches.graph.edges
    units, groups = policy.encoder.network(columns, edges).numpy(), branches.group_of_unit.numpy()
    rows = policy.embed(branches).numpy()
    for group in range(len(rows)):
        own = units[groups == group]
        share = branches.share_of_unit.numpy()[groups == group]
        np.testing.assert_allclose(rows[group, :8], share @ own, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(rows[group, 8:16], own.max(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(rows[:, 16:], branches.summaries)


def test_it_begins_as_it_is_asked_to(policy):
    share = {}
    for probability in (0.0, 0.9):
        config = MarsConfig(num_groups=6, start_probability=probability, **SIZES)
        drawn = policy.sample(inputs_of(branches_problem(4, 4), config), 200, tf.constant([11, 12])).actions
        share[probability] = float(tf.reduce_mean(tf.cast(drawn == 0, tf.float32)))
    # Log-odds of untrained weights move by up to about 1.4, as with HDP's; 1,000 draws add up to 0.05.
    assert share[0.9] > 0.64
    assert 1 / (1 + math.exp(1.4)) - 0.05 < share[0.0] < 1 / (1 + math.exp(-1.4)) + 0.05


@pytest.fixture(scope="module")
def inputs():
    # 0 -> 1 -> 2, of 10, 30 and 60 ns; 0 and 1 are one group.
    problem = problem_of([10, 30, 60], [(0, 1), (1, 2)], 0, resident_bytes=[0, 900, 2700])
    groups = Groups.of(problem, np.array([0, 0, 1]))
    return mars_inputs(problem, groups, np.array([0, 1]), MarsConfig(start_probability=0.9), seed=0)


def test_shares_of_work_add_up_to_one_in_each_group_and_the_start_is_leaned_to(inputs):
    np.testing.assert_allclose(inputs.share_of_unit, [0.25, 0.75, 1.0], rtol=1e-4)
    assert np.argmax(inputs.choices.prior_logits, axis=1).tolist() == [0, 1]


def test_summaries(inputs):
    relative, rows = inputs.graph.relative_features.numpy(), inputs.summaries.numpy()
    assert rows.shape == (2, SUMMARY_WIDTH) and rows.dtype == np.float32
    np.testing.assert_allclose(rows[0, :RELATIVE_WIDTH], 0.25 * relative[0] + 0.75 * relative[1], 1e-4, 1e-6)
    np.testing.assert_allclose(rows[1, :RELATIVE_WIDTH], relative[2], rtol=1e-6)
    # Work 40 and 60 of 100, bytes 1 and 3 of 4, 2 and 1 units.
    np.testing.assert_allclose(rows[:, -3], np.sqrt([0.4, 0.6]), rtol=1e-6)
    np.testing.assert_allclose(rows[:, -2], np.sqrt([0.25, 0.75]), rtol=1e-6)
    np.testing.assert_allclose(rows[:, -1], np.log2([3, 2]) / 8, rtol=1e-6)


def test_each_unit_is_a_group_in_the_order_of_the_step():
    # A chain, whose third unit has one device: 0, 1, -, 3 are of two kinds.
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 8, cluster=small_cluster(3), allowed=allowed)
    groups = mars_groups(problem, MarsConfig(num_groups=0))
    np.testing.assert_array_equal(groups.group_of_unit, [0, 1, 3, 2])
    np.testing.assert_array_equal(groups.legal, allowed[[0, 1, 3]])


def test_groups_come_by_when_the_step_needs_them():
    problem = branches_problem(4, 4)
    groups = mars_groups(problem, MarsConfig(num_groups=8))
    place = np.arange(problem.num_units)  # ops are in topological order
    means = [place[groups.group_of_unit == group].mean() for group in range(groups.count)]
    assert 4 <= groups.count <= 8 and means == sorted(means)


@pytest.mark.parametrize("most", [1, 5, 40])
def test_every_group_has_units_and_all_that_have_a_choice_are_in_one(most):
    problem = random_problem(np.random.default_rng(2), 40, 3)  # with masks
    groups = mars_groups(problem, MarsConfig(num_groups=most))
    assert set(groups.group_of_unit) - {groups.count} == set(range(groups.count))
    np.testing.assert_array_equal(groups.group_of_unit == groups.count, problem.allowed.sum(axis=1) == 1)


def test_where_nothing_is_to_be_decided_there_is_one_group_without_units():
    groups = mars_groups(problem_of([1, 2], [(0, 1)], 8, cluster=small_cluster(1)), MarsConfig(num_groups=0))
    assert groups.count == 1 and groups.group_of_unit.tolist() == [1, 1]


STUDENT = MarsConfig(encoder_width=16, hidden=4)
TYPES = ("Relu", "MatMul", "BiasAdd")  # by the place in a branch
ONE = tf.constant(1.0)


def graph_of(student, branches, length):
    """Branches of Relu, MatMul, BiasAdd, Relu ...: what stands beside what is no matter of chance."""
    problem = branches_problem(branches, length)
    place = (np.arange(problem.num_units) + branches - 1) // branches
    problem = dataclasses.replace(problem, op_types=tuple(TYPES[number % 3] for number in place))
    lesson, plans = lesson_of(student, problem, 1, 10, folder=None)  # nothing is searched, so nothing is kept
    assert plans is None
    return lesson


@pytest.fixture
def rate(monkeypatch):
    monkeypatch.setattr(MarsConfig, "pretrain_rate", 1e-2)


def accuracy(student, graph):
    """Share of the units that are told from an untaught shuffle."""
    original, shuffled = student.logits(graph, tf.constant([5, 6])).numpy()
    return (np.mean(original > 0) + np.mean(shuffled <= 0)) / 2


@pytest.mark.medium
def test_a_graph_that_was_held_out_is_told_from_itself_mixed_up(rate):
    student, untaught = MarsStudent(STUDENT, seed=0), MarsStudent(STUDENT, seed=0)
    lesson, held_out = graph_of(student, 6, 20), graph_of(student, 9, 31)
    before = float(student.loss_of(lesson))
    losses = [float(student.learn(lesson, ONE)) for _ in range(150)]
    assert losses[0] == pytest.approx(before, abs=0.1)  # the same graph, mixed up in another way
    assert float(student.loss_of(lesson)) < before - 0.02 and int(student.iterations) == 150
    # 281 units, twice: by chance 0.5, give or take 0.02.
    assert accuracy(untaught, held_out) == pytest.approx(0.5, abs=0.15)
    assert accuracy(student, held_out) > 0.8


def test_the_seed_says_what_is_learned_and_only_the_encoder_is_changed(eagerly, rate):
    results = []
    for seed in (1, 1, 2):
        policy = MarsPolicy(STUDENT, 0)
        encoder, placer = weights(policy.encoder), weights(policy.placer)
        student = MarsStudent(STUDENT, seed, policy.encoder)
        graph = graph_of(student, 2, 5)
        student.learn(graph, tf.constant(0.0))
        assert not moved(policy.encoder, encoder), "a step of no length"
        student.learn(graph, ONE)
        assert moved(policy.encoder, encoder) and not moved(policy.placer, placer)
        results.append(np.concatenate([value.ravel() for value in weights(policy)]))
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
