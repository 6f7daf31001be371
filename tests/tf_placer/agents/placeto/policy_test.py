"""Placeto's groups and policy: an episode decides one after the other, each seen as the placement is by then."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.agents.features import Mean
from tf_placer.agents.placeto import (
    Actions,
    MessagePassing,
    PlacetoConfig,
    PlacetoPolicy,
    device_states,
    episode_states,
    group_graph,
    placement_at,
    placeto_inputs,
    relatives,
    staying,
)

OURS = PlacetoConfig(parts=6, width=8, rounds=2, landmarks=2)
PAPER = PlacetoConfig(parts=6, rounds=2, preset="paper")
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
    return policy, inputs, *policy.sample(inputs, first_legal(inputs, 6), tf.constant([11, 12]))


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
    mean = Mean.of(np.array([[0, 1], [0, 2], [2, 0]]), np.array([2.0, 2.0, 9.0]), 3)
    values = tf.constant([[[1.0, 10.0]], [[2.0, 20.0]], [[4.0, 40.0]]])
    np.testing.assert_allclose(mean.over(values), [[[3, 30]], [[0, 0]], [[1, 10]]])


def test_messages_go_as_far_as_there_are_rounds():
    # A chain 0 -> 1 -> 2 -> 3: with two rounds group 3 hears of 1 and not of 0, and group 0 of 2 and not of 3.
    down = Mean(tf.constant([[1, 0], [2, 1], [3, 2]], tf.int64), tf.ones(3))
    up = Mean(tf.constant([[0, 1], [1, 2], [2, 3]], tf.int64), tf.ones(3))
    passing = MessagePassing(width=4, rounds=2)
    groups = tf.random.stateless_normal([4, 1, 4], seed=[1, 2])
    passing((down, up), groups)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(groups)
        told = passing((down, up), groups)
        last, first = tf.reduce_sum(told[3]), tf.reduce_sum(told[0])
    heard = [np.abs(tape.gradient(one, groups).numpy()).sum(axis=(1, 2)) > 0 for one in (last, first)]
    assert heard[0].tolist() == [False, True, True, True]
    assert heard[1].tolist() == [True, True, True, False]


def reached(problem, op):
    """Ops that wait for one, itself included, by walking."""
    found, left = {op}, [op]
    while left:
        for later in problem.op_graph.successors(left.pop()):
            if later not in found:
                found.add(int(later))
                left.append(int(later))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_three_sets_are_all_others(seed):
    problem = random_problem(np.random.default_rng(seed), 20, 2)
    leader = np.array([1, 4, 7, 8, 9, 13, 16, 18, 19])
    ancestors, descendants, parallel = kin = relatives(problem, leader)
    everyone = set(itertools.permutations(range(9), 2))
    after = {(i, j) for i, j in everyone if leader[j] in reached(problem, leader[i])}
    assert {tuple(pair) for pair in descendants} == after
    assert {tuple(pair) for pair in ancestors} == {(j, i) for i, j in after}
    assert {tuple(pair) for pair in parallel} == everyone - after - {(j, i) for i, j in after}
    for pairs in kin:
        assert pairs.dtype == np.int64 and (np.diff(pairs[:, 0]) >= 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_legal_for_a_group_is_legal_for_all_of_it(seed):
    problem = random_problem(np.random.default_rng(seed), 30, 3)  # with masks
    graph = group_graph(problem, parts=4)
    np.testing.assert_array_equal(graph.groups.legal[graph.groups.group_of_unit], problem.allowed)
    assert set(graph.groups.group_of_unit) == set(range(graph.groups.count))
    # Those with a choice are visited, by the start of their leaders, and an op after those it waits for.
    assert sorted(graph.visited) == np.flatnonzero(graph.groups.legal.sum(axis=1) > 1).tolist()
    assert (np.diff(graph.start[graph.visited]) >= 0).all()
    inside = graph.groups.group_of_unit[problem.unit_of_op[graph.leader]]
    np.testing.assert_array_equal(inside, np.arange(graph.groups.count))


def test_edges_between_groups_add_up():
    # As many parts as units: every unit is a group. 0 and 1 both give 9 bytes to 2, and 2 gives 9 to 3.
    graph = group_graph(problem_of([1, 2, 3, 4], [(0, 2), (1, 2), (2, 3)], 9), parts=4)
    assert graph.groups.edges.tolist() == [[0, 2], [1, 2], [2, 3]]
    assert graph.groups.edge_bytes.tolist() == [9, 9, 9]
    # Chains 1 -> 2 -> 3 ns of work after 0 or 1: the critical path is 2 + 3 + 4; 2 starts at 2 / 9, 3 at 5 / 9.
    np.testing.assert_allclose(graph.start, [0, 0, 2 / 9, 5 / 9])
    assert graph.visited.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(graph.groups.sums(np.array([1.0, 2.0, 4.0, 8.0])), [1, 2, 4, 8])


def test_where_nothing_is_to_be_decided_one_group_is_visited():
    graph = group_graph(problem_of([1, 1], [(0, 1)], cluster=small_cluster(1)), parts=2)
    assert graph.visited.tolist() == [0]


LARGER = random_problem(np.random.default_rng(5), 14, 3)
GRAPH = group_graph(LARGER, parts=6)
INPUTS = placeto_inputs(LARGER, PlacetoConfig(parts=6), GRAPH, seed=0)


def episodes(count):
    """Legal begins and ends [B, G]; groups that are not visited stay."""
    generator = np.random.default_rng(1)
    choices = [np.flatnonzero(legal) for legal in GRAPH.groups.legal]
    rows = [[generator.choice(devices) for devices in choices] for _ in range(2 * count)]
    return np.array(rows[:count], np.int32), np.array(rows[count:], np.int32)


def flows_by_hand(now, group):
    """[D, 2] shares of what a group reads and gives, by where the other end is."""
    table = np.zeros((3, 2))
    for (producer, consumer), size in zip(GRAPH.groups.edges, GRAPH.groups.edge_bytes, strict=True):
        if consumer == group:
            table[now[producer], 0] += size
        if producer == group:
            table[now[consumer], 1] += size
    return table / np.maximum(table.sum(axis=0), 1)


def test_every_turn_finds_what_was_decided_before_it():
    begin, end = episodes(2)
    turns = len(GRAPH.visited)
    assert turns > 5
    states = device_states(INPUTS, tf.constant(begin), tf.constant(end), tf.constant(0), turns).numpy()
    load = INPUTS.load.numpy()
    for b in range(2):
        now = begin[b].copy()
        for turn, group in enumerate(GRAPH.visited):
            state = states[turn, b]
            np.testing.assert_array_equal(state[:, 0], np.arange(3) == now[group])
            np.testing.assert_allclose(state[:, 1:3], flows_by_hand(now, group), rtol=1e-5, atol=1e-6)
            for device in range(3):
                others = [g for g in range(GRAPH.groups.count) if now[g] == device and g != group]
                expected = load[others, device].sum(axis=0)
                np.testing.assert_allclose(state[device, 3:5], expected, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(state[:, 5], INPUTS.slowness[group])
            now[group] = end[b, group]


def test_one_turn_alone_is_as_it_is_among_all():
    begin, end = (tf.constant(rows) for rows in episodes(2))
    whole = device_states(INPUTS, begin, end, tf.constant(0), len(GRAPH.visited))
    for turn in (0, 3):
        now = placement_at(INPUTS, begin, end, tf.constant(turn))
        # What is decided at this turn or later is not read: now is both.
        one = device_states(INPUTS, now, now, tf.constant(turn), 1)
        np.testing.assert_allclose(one[0], whole[turn], rtol=1e-4, atol=1e-6)


def test_loads_are_shares_of_all_work():
    # On the fastest devices all groups together are all work; elsewhere they take longer.
    total = INPUTS.load.numpy()[:, :, 0].sum(axis=0)
    np.testing.assert_allclose(total, LARGER.compute_ns.sum(axis=0) / LARGER.work_ns().sum(), rtol=1e-5)
