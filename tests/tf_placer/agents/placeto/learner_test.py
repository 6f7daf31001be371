"""The learner: whole episodes are proposed, and it is taught by what was executed; its weights are no problem's own."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    OTHER,
    PROBLEM,
    check_it_is_its_variables,
    off_device_1,
    warm_start_on,
)
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.placeto import PlacetoLearner
from tf_placer.agents.placeto_policy import PlacetoConfig, episode_states
from tf_placer.search.search import search

CONFIG = PlacetoConfig(parts=4, width=4, rounds=1, landmarks=2, episodes=5, keep_probability=0.5)
PAPER = PlacetoConfig(parts=4, width=4, rounds=1, episodes=3, preset="paper")


def learner_from(device, config=CONFIG, problem=PROBLEM, policy=None):
    """A learner that begins with everything on one device; rewards are relative to a second."""
    return PlacetoLearner(problem, config, warm_start_on(device, problem), seed=3, policy=policy)


def update(learner, evaluate):
    """One update; what was proposed and its times."""
    proposal = learner.propose()
    runtime_s, valid = evaluate(proposal.placements)
    learner.learn(proposal.actions, runtime_s, valid)
    return proposal, runtime_s


@pytest.fixture(scope="module")
def learner():
    """One for all tests that do not mind how far it is."""
    return learner_from(1)


@pytest.fixture(scope="module")
def stepwise():
    """The same of the paper's settings, where messages pass at every step."""
    return learner_from(1, PAPER)


@pytest.mark.medium
def test_all_states_of_all_episodes_are_proposed_each_once(learner):
    proposal = learner.propose()
    rows = proposal.placements.numpy()
    assert len(np.unique(rows, axis=0)) == len(rows)
    inputs = learner._of_problem.inputs
    states = episode_states(inputs, proposal.actions.episodes).numpy()
    np.testing.assert_array_equal(rows[proposal.actions.row], states[:, :, inputs.group_of_unit])
    assert proposal.actions.row.shape == (5, 1 + inputs.visited.shape[0])
    assert set(proposal.actions.row.ravel()) == set(range(len(rows)))


@pytest.mark.medium
def test_a_proposal_stays_until_it_is_learned_from(learner):
    first, again = learner.propose(), learner.propose()
    np.testing.assert_array_equal(first.placements, again.placements)
    before, updates = [v.numpy() for v in learner.policy.trainable_variables], int(learner.updates)
    learner.learn(first.actions, *off_device_1(first.placements))
    after = [v.numpy() for v in learner.policy.trainable_variables]
    assert any((a != b).any() for a, b in zip(after, before, strict=True))
    assert int(learner.updates) == updates + 1


def by_hand(learner, episodes, advantage):
    """Gradient of -mean A log p - w mean H, all turns in one tape."""
    inputs, policy = learner._of_problem.inputs, learner.policy
    count = policy.steps_at_once(inputs)
    loss = 0.0
    with tf.GradientTape() as tape:
        for first in range(0, advantage.shape[1], count):
            scores = policy.score(inputs, episodes, tf.constant(first), count)
            part = advantage[:, first : first + count]
            loss -= tf.reduce_sum(part * scores.log_prob + 0.01 * scores.entropy) / advantage.size
    return tape.gradient(loss, policy.trainable_variables, unconnected_gradients="zero")


@pytest.mark.medium
@pytest.mark.parametrize("which", ["learner", pytest.param("stepwise", marks=pytest.mark.slow)])
def test_the_gradient_is_of_exactly_the_executed_actions(which, request):
    one = request.getfixturevalue(which)
    one.updates.assign(0)  # where the entropy weighs 0.01
    episodes = one.propose().actions.episodes
    advantage = np.random.default_rng(0).normal(size=episodes.device.shape).astype(np.float32)
    ours = tf.function(
        lambda: one._gradients(episodes, tf.constant(advantage), one.policy.trainable_variables)
    )()
    wanted = by_hand(one, episodes, advantage)
    assert any(np.abs(tf.convert_to_tensor(gradient)).max() > 1e-4 for gradient in wanted)
    for gradient, expected in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(gradient, tf.convert_to_tensor(expected), rtol=1e-3, atol=1e-6)


def test_advantages_are_what_follows_a_step_less_what_is_usual_there():
    learner = learner_from(0, dataclasses.replace(PAPER, discount=0.5))
    turns = learner.baseline.returns.shape[1]
    # Values of the states rise by 1, 0, 0 ... in one episode and by 0, 2, 0 ... in the other.
    value = np.zeros((2, turns + 1), np.float32)
    value[0, 1:], value[1, 2:] = 1.0, 2.0
    # Returns 1, 0 and 0.5 * 2 = 1, 2; their means 1, 1.
    expected = np.zeros((2, turns), np.float32)
    expected[:, :2] = [[0, -1], [0, 1]]
    np.testing.assert_allclose(learner._advantage(tf.constant(value)), expected, atol=1e-6)


@pytest.mark.slow  # and the conformance tests go on after a kill
def test_a_learner_is_its_variables(tmp_path):
    check_it_is_its_variables(lambda: learner_from(1), tmp_path, off_device_1)


@pytest.mark.medium
def test_episodes_begin_with_the_best_so_far(learner):
    proposal, runtime_s = update(
        learner, lambda rows: (off_device_1(rows)[0] / 100, tf.ones(len(rows), tf.bool))
    )
    best = proposal.placements.numpy()[np.argmin(runtime_s)]
    begin = learner.begin.numpy()[learner._of_problem.inputs.group_of_unit]
    np.testing.assert_array_equal(begin, best)
    # What is slower, or does not run, is none.
    update(learner, lambda rows: (off_device_1(rows)[0] * 100, tf.ones(len(rows), tf.bool)))
    update(learner, lambda rows: (off_device_1(rows)[0] * 0, tf.zeros(len(rows), tf.bool)))
    np.testing.assert_array_equal(learner.begin.numpy()[learner._of_problem.inputs.group_of_unit], best)


def test_where_the_end_alone_counts_only_ends_are_evaluated():
    learner = learner_from(0, dataclasses.replace(CONFIG, reward="end"))
    proposal = learner.propose()
    assert proposal.actions.row.shape == (5, 1)
    ends = episode_states(learner._of_problem.inputs, proposal.actions.episodes).numpy()[:, -1]
    units = ends[:, learner._of_problem.inputs.group_of_unit]
    np.testing.assert_array_equal(proposal.placements.numpy()[proposal.actions.row[:, 0]], units)


@pytest.mark.slow
def test_one_set_of_weights_learns_on_two_problems_in_turn():
    config = dataclasses.replace(CONFIG, learning_rate=1e-2, begin="plan", keep_probability=0.0)
    first = learner_from(1, config)
    second = learner_from(1, config, OTHER, first.policy)
    means = []
    for _ in range(40):
        pair = [update(learner, off_device_1) for learner in (first, second)]
        ends = [runtime_s.numpy()[proposal.actions.row[:, -1]].mean() for proposal, runtime_s in pair]
        means.append(ends)
    # At the start half and a third of the groups are on device 1.
    assert min(means[0]) > 1.2 and np.mean(means[-5:], axis=0).max() < 1.1, means[::5]


@pytest.mark.slow
def test_what_is_learned_is_better_than_what_was_sampled_at_first():
    problem = branches_problem(4, 10)
    config = PlacetoConfig(parts=42, landmarks=8)
    found = search(problem, "placeto", budget_evaluations=6400, start=problem.everything_on(0), config=config)
    means = [entry.mean_s for entry in found.history[1:]]
    single_s = found.single_device_s
    assert np.mean(means[-5:]) < 0.9 * np.mean(means[:5]), means[:: len(means) // 10]
    assert found.runtime_s < 0.7 * single_s
