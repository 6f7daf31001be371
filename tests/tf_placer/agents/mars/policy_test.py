"""Inputs and policy of Mars: groups in numbers, by hand; and what an untrained policy draws."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.agents.features import RELATIVE_WIDTH
from tf_placer.agents.mars import SUMMARY_WIDTH, MarsConfig, MarsPolicy, mars_groups, mars_inputs
from tf_placer.grouper.groups import Groups

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


def test_a_group_is_the_mean_and_the_largest_of_its_units(policy, branches):
    units, groups = policy.encoder(branches.graph).numpy(), branches.group_of_unit.numpy()
    rows = policy.embed(branches).numpy()
    for group in range(len(rows)):
        own = units[groups == group]
        share = branches.share_of_unit.numpy()[groups == group]
        np.testing.assert_allclose(rows[group, :8], share @ own, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(rows[group, 8:16], own.max(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(rows[:, 16:], branches.summaries)


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


@pytest.fixture(scope="module")
def inputs():
    # 0 -> 1 -> 2, of 10, 30 and 60 ns; 0 and 1 are one group.
    problem = problem_of([10, 30, 60], [(0, 1), (1, 2)], 0, resident_bytes=[0, 900, 2700])
    groups = Groups.of(problem, np.array([0, 0, 1]))
    return mars_inputs(problem, groups, np.array([0, 1]), MarsConfig(start_probability=0.9), seed=0)


def test_shares_of_work_add_up_to_one_in_each_group(inputs):
    np.testing.assert_allclose(inputs.share_of_unit, [0.25, 0.75, 1.0], rtol=1e-4)


def test_summaries(inputs):
    relative, rows = inputs.graph.relative_features.numpy(), inputs.summaries.numpy()
    assert rows.shape == (2, SUMMARY_WIDTH) and rows.dtype == np.float32
    np.testing.assert_allclose(
        rows[0, :RELATIVE_WIDTH], 0.25 * relative[0] + 0.75 * relative[1], rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(rows[1, :RELATIVE_WIDTH], relative[2], rtol=1e-6)
    # Work 40 and 60 of 100, bytes 1 and 3 of 4, 2 and 1 units.
    np.testing.assert_allclose(rows[:, -3], np.sqrt([0.4, 0.6]), rtol=1e-6)
    np.testing.assert_allclose(rows[:, -2], np.sqrt([0.25, 0.75]), rtol=1e-6)
    np.testing.assert_allclose(rows[:, -1], np.log2([3, 2]) / 8, rtol=1e-6)


def test_the_start_is_leaned_to_and_all_is_a_nest_of_tensors(inputs):
    assert np.argmax(inputs.choices.prior_logits, axis=1).tolist() == [0, 1]
    again = tf.function(lambda given: given)(inputs)
    assert type(again) is type(inputs)
    assert all(tf.is_tensor(tensor) for tensor in tf.nest.flatten(again))


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
    alone = problem.allowed.sum(axis=1) == 1
    np.testing.assert_array_equal(groups.group_of_unit == groups.count, alone)


def test_where_nothing_is_to_be_decided_there_is_one_group_without_units():
    problem = problem_of([1, 2], [(0, 1)], 8, cluster=small_cluster(1))
    groups = mars_groups(problem, MarsConfig(num_groups=0))
    assert groups.count == 1 and groups.group_of_unit.tolist() == [1, 1]
