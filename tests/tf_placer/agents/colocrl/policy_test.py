"""The policy scores exactly the placements that are executed, on whatever problem it is called with."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.colocrl import ColocRlConfig, ColocRlPolicy, colocated_groups, colocrl_inputs

CONFIG = ColocRlConfig(max_groups=6, hidden=8, largest_share=0.3)
SEED = tf.constant([11, 12])


def inputs_of(problem, config=CONFIG):
    groups = colocated_groups(problem, config)
    return colocrl_inputs(problem, groups, config, groups.legal.argmax(axis=1))


@pytest.fixture(scope="module")
def policy():
    return ColocRlPolicy(CONFIG, seed=5, groups=5)


def test_one_set_of_weights_serves_problems_of_any_size(policy):
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    masked = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 8, cluster=small_cluster(3), allowed=allowed)
    for problem in (branches_problem(4, 4), masked, problem_of([7], [])):
        inputs = inputs_of(problem)
        drawn = policy.sample(inputs, 5, SEED)
        for row in policy.placements(inputs, drawn.actions[0]).numpy():
            problem.check_legal(row)
        np.testing.assert_allclose(
            policy.score(inputs, drawn.actions[0]).log_prob(), drawn.log_prob(), rtol=1e-4, atol=1e-5
        )


def test_what_one_group_draws_the_next_ones_know(policy):
    inputs = inputs_of(branches_problem(4, 4))
    zeros = tf.zeros([1, 5], tf.int32)
    other = tf.constant([[1, 0, 0, 0, 0]])
    one, two = (policy.score(inputs, actions).logits[0, 0] for actions in (zeros, other))
    np.testing.assert_array_equal(one[0], two[0])
    assert np.abs(one[1:] - two[1:]).max() > 1e-6


def test_it_begins_as_it_is_asked_to(policy):
    problem = branches_problem(4, 4)
    share = {}
    for probability in (0.0, 0.9):
        config = ColocRlConfig(max_groups=6, hidden=8, largest_share=0.3, start_probability=probability)
        drawn = policy.sample(inputs_of(problem, config), 200, SEED).actions
        share[probability] = float(tf.reduce_mean(tf.cast(drawn == 0, tf.float32)))
    # Log-odds of untrained weights move by up to about 1.4, as with HDP's; 1,000 draws add up to 0.05.
    assert share[0.9] > 0.64
    assert 1 / (1 + math.exp(1.4)) - 0.05 < share[0.0] < 1 / (1 + math.exp(-1.4)) + 0.05
