"""What devices hold at each step, against a walk over the episode that keeps everything in plain lists."""

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import random_problem
from tf_placer.agents.placeto_policy import (
    PlacetoConfig,
    device_states,
    group_graph,
    placement_at,
    placeto_inputs,
)

PROBLEM = random_problem(np.random.default_rng(5), 14, 3)
GRAPH = group_graph(PROBLEM, parts=6)
INPUTS = placeto_inputs(PROBLEM, PlacetoConfig(parts=6), GRAPH, seed=0)


def episodes(count):
    """Legal begins and ends [B, G]; groups that are not visited stay."""
    generator = np.random.default_rng(1)
    rows = [
        [generator.choice(np.flatnonzero(legal)) for legal in GRAPH.groups.legal] for _ in range(2 * count)
    ]
    begin, end = np.array(rows[:count], np.int32), np.array(rows[count:], np.int32)
    return begin, end


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
    expected = PROBLEM.compute_ns.sum(axis=0) / PROBLEM.work_ns().sum()
    np.testing.assert_allclose(total, expected, rtol=1e-5)
