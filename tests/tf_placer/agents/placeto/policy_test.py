"""An episode decides one group after the other, each seen as the placement is by then, on whatever problem."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.agents.placeto_policy import (
    Actions,
    Mean,
    MessagePassing,
    PlacetoConfig,
    PlacetoPolicy,
    episode_states,
    group_graph,
    mean_over,
    placeto_inputs,
    staying,
)

OURS = PlacetoConfig(parts=6, width=8, rounds=2, landmarks=2)
PAPER = PlacetoConfig(parts=6, rounds=2, preset="paper")
SEED = tf.constant([11, 12])
PROBLEM = random_problem(np.random.default_rng(5), 10, 3)


def inputs_of(problem, config):
    return placeto_inputs(problem, config, group_graph(problem, config.parts), seed=5)


def first_legal(inputs, episodes):
    begin = tf.argmax(tf.cast(inputs.choices.legal, tf.int32), axis=1, output_type=tf.int32)
    return tf.tile(begin[tf.newaxis], [episodes, 1])


@pytest.fixture(scope="module", params=[OURS, PAPER], ids=["ours", "paper"])
def drawn(request):
    """A policy, its inputs, six episodes and their scores."""
    policy, inputs = PlacetoPolicy(request.param, seed=5), inputs_of(PROBLEM, request.param)
    return policy, inputs, *policy.sample(inputs, first_legal(inputs, 6), SEED)


def forced(policy, inputs, actions):
    """Scores by teacher forcing, as many turns together as can be."""
    count = policy.steps_at_once(inputs)
    parts = [
        policy.score(inputs, actions, tf.constant(first), count)
        for first in range(0, inputs.visited.shape[0], count)
    ]
    return tf.nest.map_structure(lambda *some: tf.concat(some, axis=1), *parts)


def test_what_is_scored_is_what_was_drawn(drawn):
    policy, inputs, actions, scores = drawn
    again = forced(policy, inputs, actions)
    np.testing.assert_allclose(again.log_prob, scores.log_prob, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(again.entropy, scores.entropy, rtol=1e-4, atol=1e-5)
    assert len(np.unique(actions.device.numpy(), axis=0)) > 1


def test_a_step_changes_the_group_of_its_turn_and_no_other(drawn):
    _, inputs, actions, _ = drawn
    states = episode_states(inputs, actions).numpy()
    np.testing.assert_array_equal(states[:, 0], actions.begin)
    for turn, group in enumerate(inputs.visited.numpy()):
        np.testing.assert_array_equal(states[:, turn + 1, group], actions.device[:, turn])
        others = np.arange(states.shape[2]) != group
        np.testing.assert_array_equal(states[:, turn + 1, others], states[:, turn, others])
        assert inputs.choices.legal.numpy()[group, states[:, turn + 1, group]].all()


def test_a_step_sees_what_was_decided_before_and_nothing_later(drawn):
    policy, inputs, actions, _ = drawn
    turns, devices = actions.device.shape[1], inputs.choices.legal.shape[1]
    middle = turns // 2
    other = actions.device.numpy().copy()
    legal = inputs.choices.legal.numpy()[inputs.visited[middle]]
    for row in other:
        row[middle] = next(d for d in range(devices) if legal[d] and d != row[middle])
    before, after = (
        forced(policy, inputs, Actions(actions.begin, tf.constant(device))).entropy.numpy()
        for device in (actions.device.numpy(), other)
    )
    np.testing.assert_allclose(after[:, : middle + 1], before[:, : middle + 1], rtol=1e-5, atol=1e-6)
    assert np.abs(after[:, middle + 1 :] - before[:, middle + 1 :]).max() > 1e-6


def test_probabilities_of_all_episodes_add_up_to_one_step_by_step():
    # Also where messages pass at every step; the other way is held by the conformance tests.
    problem = problem_of([1, 2, 3], [(0, 1), (1, 2)], 9)
    policy, inputs = PlacetoPolicy(PAPER, seed=0), inputs_of(problem, PAPER)
    episodes = list(itertools.product(range(2), repeat=3))
    actions = Actions(first_legal(inputs, 8), tf.constant(episodes, tf.int32))
    total = tf.reduce_sum(tf.exp(tf.reduce_sum(forced(policy, inputs, actions).log_prob, axis=1)))
    assert float(total) == pytest.approx(1, rel=1e-5)


def test_weights_of_one_problem_serve_another_of_more_devices(drawn):
    policy, _, _, _ = drawn
    problem = random_problem(np.random.default_rng(6), 17, 5)
    inputs = inputs_of(problem, policy.config)
    actions, scores = policy.sample(inputs, first_legal(inputs, 1), SEED)
    assert np.isfinite(scores.log_prob).all()
    problem.check_legal(tf.gather(episode_states(inputs, actions)[0, -1], inputs.group_of_unit).numpy())


def test_exploration_is_the_least_that_a_legal_device_gets(drawn):
    policy, inputs, _, _ = drawn
    generator = np.random.default_rng(0)
    legal = [np.flatnonzero(inputs.choices.legal.numpy()[group]) for group in inputs.visited]
    device = [[generator.choice(one) for one in legal] for _ in range(20)]
    actions = Actions(first_legal(inputs, 20), tf.constant(device, tf.int32))
    # 2 % among at most three devices.
    assert float(tf.reduce_min(forced(policy, inputs, actions).log_prob)) >= np.log(0.02 / 3) - 1e-5


def test_an_untrained_policy_stays_as_often_as_asked():
    legal = np.array([[True, True, True], [True, True, False], [False, True, False]])
    logits = staying(legal, 0.9)[:, 0]
    # e^x / (e^x + others) for 2, 1 and 0 others.
    for x, others in zip(logits[:2], (2, 1), strict=True):
        assert np.exp(x) / (np.exp(x) + others) == pytest.approx(0.9)
    assert not staying(legal, 0.0).any()


def test_means_are_over_those_that_are_named():
    mean = Mean(tf.constant([[0, 1], [0, 2], [2, 0]], tf.int64), tf.constant([0.5, 0.5, 1.0]))
    values = tf.constant([[[1.0, 10.0]], [[2.0, 20.0]], [[4.0, 40.0]]])
    np.testing.assert_allclose(mean_over(mean, values), [[[3, 30]], [[0, 0]], [[1, 10]]])


def test_messages_go_as_far_as_there_are_rounds():
    # A chain 0 -> 1 -> 2 -> 3: with two rounds group 3 hears of 1 and not of 0, and group 0 of 2 and not of 3.
    down = Mean(tf.constant([[1, 0], [2, 1], [3, 2]], tf.int64), tf.ones(3))
    up = Mean(tf.constant([[0, 1], [1, 2], [2, 3]], tf.int64), tf.ones(3))
    passing = MessagePassing(width=4, rounds=2)
    groups = tf.random.stateless_normal([4, 1, 4], seed=[1, 2])
    passing(down, up, groups)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(groups)
        told = passing(down, up, groups)
        last, first = tf.reduce_sum(told[3]), tf.reduce_sum(told[0])
    heard = [np.abs(tape.gradient(one, groups).numpy()).sum(axis=(1, 2)) > 0 for one in (last, first)]
    assert heard[0].tolist() == [False, True, True, True]
    assert heard[1].tolist() == [True, True, True, False]
