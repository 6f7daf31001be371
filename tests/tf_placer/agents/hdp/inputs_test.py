"""What the policy is called with: standardized columns and prior logits of the asked strength."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.hdp_policy import (
    HdpConfig,
    HdpStart,
    group_prior_logits,
    hdp_inputs,
    hdp_start,
)
from tf_placer.grouper.groups import unit_groups

THREE = HdpConfig(groups="min_cut", num_groups=3)


def on_first(problem, config):
    """Every group on its first legal device."""
    groups = unit_groups(problem, config.num_groups, config.groups)
    return HdpStart(groups, groups.legal.argmax(axis=1))


def test_dense_columns_have_mean_0_and_deviation_1():
    problem = branches_problem(3, 4)
    config = HdpConfig(num_groups=3, landmarks=4)
    inputs = hdp_inputs(problem, config, on_first(problem, config), seed=0)
    dense, raw = inputs.dense.numpy(), inputs.graph.unit_features.numpy()
    varies = raw.std(axis=0) > 0
    assert varies.sum() > 10 and (np.abs(dense[:, ~varies]) < 1e-3).all()
    np.testing.assert_allclose(dense[:, varies].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(dense[:, varies].std(axis=0), 1, rtol=1e-2)
    # One of U standardized numbers is at most sqrt(U - 1).
    assert np.abs(dense).max() <= np.sqrt(problem.num_units - 1) + 1e-3


def test_it_is_a_nest_of_tensors():
    problem = branches_problem(2, 2)
    config = HdpConfig(num_groups=3, landmarks=4)
    inputs = hdp_inputs(problem, config, on_first(problem, config), seed=0)
    again = tf.function(lambda given: given)(inputs)
    assert type(again) is type(inputs)
    assert all(tf.is_tensor(tensor) for tensor in tf.nest.flatten(again))


def test_a_unit_that_leaves_its_group_goes_to_its_neighbors():
    # Unit 0 in group 0, units 1 and 2 in group 1, unit 3 in group 2; 0 - 1 - 2 - 3 and 0 - 3.
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], 9)
    start = on_first(problem, HdpConfig(num_groups=3))
    groups = dataclasses.replace(start.groups, group_of_unit=np.array([0, 1, 1, 2], np.int32))
    rows = np.exp(group_prior_logits(problem, start._replace(groups=groups), 0.8))
    # 0.2 of which 9 parts go by edges (1 and 3 are one each) and 1 part evenly.
    np.testing.assert_allclose(rows[0], [0.8, 0.1, 0.1], rtol=1e-5)
    # Unit 1: one edge to group 0, none to 2.
    np.testing.assert_allclose(rows[1], [0.18 + 0.01, 0.8, 0.01], rtol=1e-5)
    assert not group_prior_logits(problem, start, 0.0).any()


def mixed_problem():
    """Ten units in a chain; the first three may run on devices 0 and 1, the last one on 2 alone, the rest anywhere."""
    allowed = np.ones((10, 3), bool)
    allowed[:3, 2] = False
    allowed[9] = [False, False, True]
    edges = [(u, u + 1) for u in range(9)]
    return problem_of([10] * 10, edges, 100, cluster=small_cluster(3), allowed=allowed)


def first_is_best(rows):
    return np.arange(len(rows), dtype=float), np.ones(len(rows), bool)


def test_more_classes_than_groups_get_a_group_each():
    config = HdpConfig(groups="min_cut", num_groups=1)
    assert unit_groups(mixed_problem(), config.num_groups, config.groups).class_of_group.tolist() == [0, 1]


def test_every_plan_is_timed_as_groups_and_the_best_is_taken():
    problem = mixed_problem()
    plans = np.array([problem.everything_on(d) for d in range(3)])
    seen = []

    def simulate(rows):
        seen.append(rows)
        return np.array([3.0, 1.0, 2.0]), np.array([True, True, True])

    start = hdp_start(problem, THREE, plans, simulate)
    for row in seen[0]:
        problem.check_legal(row)
    # Plan 1 has all on device 1 but for the last unit, which is on 2.
    assert start.device_of_group.tolist() == [1, 1, 1]
    assert seen[0][1].tolist() == [1] * 9 + [2]


def test_without_imitation_all_groups_of_a_class_are_alike():
    problem = branches_problem(2, 4)
    plan = np.arange(problem.num_units) % 2
    start = hdp_start(
        problem,
        HdpConfig(num_groups=4, group_probability=0.0),
        plan[np.newaxis].astype(np.int32),
        first_is_best,
    )
    assert len(set(start.device_of_group)) == 1


def test_what_fits_is_preferred():
    problem = mixed_problem()
    plans = np.array([problem.everything_on(d) for d in range(2)])
    start = hdp_start(problem, THREE, plans, lambda rows: (np.array([1.0, 2.0]), np.array([False, True])))
    assert start.device_of_group.tolist() == [1, 1, 1]
