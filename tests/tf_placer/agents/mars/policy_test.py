"""The policy scores exactly the placements that are executed, on whatever problem it is called with."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.mars import MarsConfig, MarsPolicy, mars_groups, mars_inputs

SIZES = {"encoder_width": 8, "hidden": 8, "segment": 3, "groups_per_step": 1}
CONFIG = MarsConfig(num_groups=6, **SIZES)
SEED = tf.constant([11, 12])


def inputs_of(problem, config=CONFIG):
    groups = mars_groups(problem, config)
    return mars_inputs(problem, groups, groups.legal.argmax(axis=1), config, 0)


@pytest.fixture(scope="module")
def policy():
    return MarsPolicy(CONFIG, seed=5)


@pytest.fixture(scope="module")
def branches():
    return inputs_of(branches_problem(4, 4))


def test_one_set_of_weights_serves_problems_of_any_size(policy):
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    masked = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 8, cluster=small_cluster(3), allowed=allowed)
    for problem in (branches_problem(4, 4), masked, problem_of([7], [])):
        inputs = inputs_of(problem)
        groups = policy.embed(inputs)
        drawn = policy.sample(inputs, 5, SEED, groups)
        for row in policy.placements(inputs, drawn.actions[0]).numpy():
            problem.check_legal(row)
        np.testing.assert_allclose(
            policy.score(inputs, drawn.actions[0], groups).log_prob(), drawn.log_prob(), rtol=1e-4, atol=1e-5
        )


def test_a_group_is_the_mean_and_the_largest_of_its_units(policy, branches):
    units, groups = policy.encoder(branches.graph).numpy(), branches.group_of_unit.numpy()
    rows = policy.embed(branches).numpy()
    for group in range(len(rows)):
        own = units[groups == group]
        share = branches.share_of_unit.numpy()[groups == group]
        np.testing.assert_allclose(rows[group, :8], share @ own, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(rows[group, 8:16], own.max(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(rows[:, 16:], branches.summaries)


def test_where_nothing_is_to_be_decided_it_does_not_matter_what_is_drawn(policy):
    inputs = inputs_of(problem_of([1, 2], [(0, 1)], 8, cluster=small_cluster(1)))
    embedded = policy.embed(inputs)
    assert np.isfinite(embedded).all()
    assert policy.placements(
        inputs, policy.sample(inputs, 1, SEED, embedded).actions[0]
    ).numpy().tolist() == [[0, 0]]


def test_what_one_group_draws_the_next_ones_know_in_the_next_segment_too(policy, branches):
    count = branches.choices.legal.shape[0]
    assert count > CONFIG.segment
    zeros = tf.zeros([1, count], tf.int32)
    one, two = (
        policy.score(branches, actions).logits[0, 0]
        for actions in (zeros, tf.tensor_scatter_nd_update(zeros, [[0, 0]], [1]))
    )
    np.testing.assert_array_equal(one[0], two[0])
    assert (np.abs(one[1:] - two[1:]).max(axis=1) > 1e-7).all()


def test_it_begins_as_it_is_asked_to(policy):
    share = {}
    for probability in (0.0, 0.9):
        config = MarsConfig(num_groups=6, start_probability=probability, **SIZES)
        inputs = inputs_of(branches_problem(4, 4), config)
        drawn = policy.sample(inputs, 200, SEED).actions
        share[probability] = float(tf.reduce_mean(tf.cast(drawn == 0, tf.float32)))
    # Log-odds of untrained weights move by up to about 1.4, as with HDP's; 1,000 draws add up to 0.05.
    assert share[0.9] > 0.64
    assert 1 / (1 + math.exp(1.4)) - 0.05 < share[0.0] < 1 / (1 + math.exp(-1.4)) + 0.05
