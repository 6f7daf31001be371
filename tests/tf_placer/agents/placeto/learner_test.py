"""The learner: whole episodes are proposed, and it is taught by what was executed; its weights are no problem's own."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    OTHER,
    PROBLEM,
    in_turn,
    off_device,
    small_learner,
    update,
    warm_start_on,
)
from tf_placer.agents.placeto import PlacetoConfig, PlacetoLearner, episode_states

PAPER = PlacetoConfig(parts=4, width=4, rounds=1, episodes=3, preset="paper")


def paper_learner(**changes):
    return PlacetoLearner(PROBLEM, dataclasses.replace(PAPER, **changes), warm_start_on(1), seed=3)


@pytest.fixture(scope="module")
def learner():
    """One for all tests that do not mind how far it is."""
    return small_learner("placeto", device=1)


@pytest.fixture(scope="module")
def stepwise():
    """The same of the paper's settings, where messages pass at every step."""
    return paper_learner()


@pytest.mark.medium
def test_all_states_of_all_episodes_are_proposed_each_once(learner):
    proposal = learner.propose()
    rows = proposal.placements.numpy()
    assert len(np.unique(rows, axis=0)) == len(rows)
    inputs = learner.inputs
    states = episode_states(inputs, proposal.actions.episodes).numpy()
    np.testing.assert_array_equal(rows[proposal.actions.row], states[:, :, inputs.group_of_unit])
    assert proposal.actions.row.shape == (5, 1 + inputs.visited.shape[0])
    assert set(proposal.actions.row.ravel()) == set(range(len(rows)))


def by_hand(learner, episodes, advantage):
    """Gradient of -mean A log p - w mean H, all turns in one tape."""
    inputs, policy = learner.inputs, learner.policy
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
    learner = paper_learner(discount=0.5)
    turns = learner.baseline.returns.shape[1]
    # Values of the states rise by 1, 0, 0 ... in one episode and by 0, 2, 0 ... in the other.
    value = np.zeros((2, turns + 1), np.float32)
    value[0, 1:], value[1, 2:] = 1.0, 2.0
    # Returns 1, 0 and 0.5 * 2 = 1, 2; their means 1, 1.
    expected = np.zeros((2, turns), np.float32)
    expected[:, :2] = [[0, -1], [0, 1]]
    np.testing.assert_allclose(learner._advantage(tf.constant(value)), expected, atol=1e-6)


@pytest.mark.medium
def test_episodes_begin_with_the_best_so_far(learner):
    def scaled(factor, runs=True):
        return lambda rows: (factor * off_device(1)(rows)[0], tf.fill([len(rows)], runs))

    placements = update(learner, scaled(0.01)).placements
    best = placements.numpy()[np.argmin(off_device(1)(placements)[0])]
    # What is slower, or does not run, is none.
    for evaluate in (None, scaled(100), scaled(0, runs=False)):
        if evaluate is not None:
            update(learner, evaluate)
        np.testing.assert_array_equal(learner.best.fastest[0].numpy()[learner.inputs.group_of_unit], best)


def test_where_the_end_alone_counts_only_ends_are_evaluated():
    learner = small_learner("placeto", reward="end")
    proposal = learner.propose()
    assert proposal.actions.row.shape == (5, 1)
    ends = episode_states(learner.inputs, proposal.actions.episodes).numpy()[:, -1]
    units = ends[:, learner.inputs.group_of_unit]
    np.testing.assert_array_equal(proposal.placements.numpy()[proposal.actions.row[:, 0]], units)


@pytest.mark.slow
def test_one_set_of_weights_learns_on_two_problems_in_turn():
    changes = {"learning_rate": 1e-2, "begin": "plan", "keep_probability": 0.0}
    learners = small_learner("placeto", device=1, **changes), small_learner("placeto", OTHER, 1, **changes)
    means = []
    for pair in in_turn(*learners, off_device(1), 40):
        runtime_s = [off_device(1)(proposal.placements)[0].numpy() for proposal in pair]
        means.append([t[p.actions.row[:, -1]].mean() for p, t in zip(pair, runtime_s, strict=True)])
    # At the start half and a third of the groups are on device 1.
    assert min(means[0]) > 1.2 and np.mean(means[-5:], axis=0).max() < 1.1, means[::5]
