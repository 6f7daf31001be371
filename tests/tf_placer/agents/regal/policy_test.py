"""A graph network and the distributions that it chooses."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.regal import (
    MEANS,
    SIZES,
    Choices,
    RegalPolicy,
    draw_actions,
    draw_keys,
    regal_inputs,
    score,
)
from tf_placer.grouper.group_search import GroupedPlans


def inputs_of(problem):
    return regal_inputs(problem, GroupedPlans(problem, 64, 1, one_kind=True).level(0))


@pytest.fixture(scope="module", name="policy")
def fixture_policy():
    return RegalPolicy(hidden=8, rounds=2, seed=1)


def test_one_set_of_weights_serves_problems_of_all_sizes(policy):
    for problem in (branches_problem(2, 2), branches_problem(3, 4, num_devices=3)):
        inputs = inputs_of(problem)
        choices = policy(inputs)
        groups, devices = inputs.legal.shape
        assert choices.means.shape == (groups, devices, len(MEANS))
        assert choices.sizes.shape == (groups, devices, len(SIZES))


def test_weights_are_a_matter_of_the_seed(policy):
    inputs = inputs_of(branches_problem(2, 2))
    same, other = RegalPolicy(8, 2, seed=1)(inputs), RegalPolicy(8, 2, seed=2)(inputs)
    np.testing.assert_array_equal(policy(inputs).means, same.means)
    assert not np.allclose(policy(inputs).means, other.means)


def test_all_weights_have_a_part(policy):
    inputs = inputs_of(branches_problem(2, 3))
    with tf.GradientTape() as tape:
        choices = policy(inputs)
        total = tf.reduce_sum(tf.square(choices.means)) + tf.reduce_sum(tf.square(choices.sizes))
    for variable, gradient in zip(
        policy.trainable_variables, tape.gradient(total, policy.trainable_variables), strict=True
    ):
        assert gradient is not None and np.any(tf.convert_to_tensor(gradient) != 0), variable.name


def test_messages_travel_as_many_edges_as_there_are_rounds():
    problem = branches_problem(1, 6)  # a chain
    policy, inputs = RegalPolicy(hidden=8, rounds=2, seed=1), inputs_of(problem)
    features = inputs.graph.unit_features.numpy()
    features[0] += 10
    changed = policy(inputs._replace(graph=inputs.graph._replace(unit_features=tf.constant(features))))
    moved = np.abs(changed.means - policy(inputs).means).max(axis=(1, 2)) > 1e-6
    # Groups are numbered by their first units: unit 0 is in group 0, two edges reach two units on.
    edges = inputs.edges.numpy()
    near = {0}
    for _ in range(2):
        near |= {int(b) for a, b in edges if a in near} | {int(a) for a, b in edges if b in near}
    assert set(np.flatnonzero(moved)) <= near < set(range(len(moved)))
    assert moved[0]


CHOICES = Choices(
    tf.math.log(tf.constant([[[0.5, 0.125, 0.125, 0.125, 0.125]]])),
    tf.math.log(tf.constant([[[0.25, 0.75]]])),
)


def test_actions_are_drawn_as_often_as_the_logits_say():
    drawn = draw_actions(CHOICES, 4000, np.random.default_rng(0))
    assert drawn.shape == (4000, 1, 1, 2)
    # Five standard deviations of a share of 4000 by 0.5 and by 0.75.
    assert abs((drawn[..., 0] == 0).mean() - 0.5) < 5 * 0.0079
    assert abs((drawn[..., 1] == 1).mean() - 0.75) < 5 * 0.0069


def test_an_action_has_the_probability_of_both_choices():
    scored = score(CHOICES, tf.constant([[[[0, 1]]], [[[4, 0]]]]))
    np.testing.assert_allclose(np.exp(scored), [0.5 * 0.75, 0.125 * 0.25], rtol=1e-5)


def test_keys_have_the_mean_and_the_spread_of_their_action():
    actions = np.tile(np.array([[[[0, 1]], [[2, 0]]]], np.int32), (4000, 1, 1, 1))
    keys = draw_keys(actions, np.random.default_rng(0))[:, :, 0]
    # Mean m and variance m (1 - m) / (size + 1): 0.1 of size 8, and 0.5 of size 2, which is uniform.
    np.testing.assert_allclose(keys.mean(axis=0), [0.1, 0.5], atol=5 * 0.29 / 4000**0.5)
    np.testing.assert_allclose(keys.var(axis=0), [0.1 * 0.9 / 9, 1 / 12], rtol=0.15)
