"""What Mars decides for, in which order."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.agents.learner import Beginning
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.groups import mars_groups


def grouped(problem, plans=None, **changes):
    plans = np.zeros((1, problem.num_units), np.int32) if plans is None else plans
    beginning = Beginning(plans, 1.0, lambda rows: (np.arange(len(rows)), np.ones(len(rows), bool)))
    return mars_groups(problem, MarsConfig(**changes), beginning)


def test_each_unit_by_itself_in_the_order_of_the_step():
    # A chain, whose third unit has one device: 0, 1, -, 3 are of two kinds.
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 8, cluster=small_cluster(3), allowed=allowed)
    plan = np.array([[1, 2, 2, 0]], np.int32)
    groups = grouped(problem, plan, num_groups=0)
    np.testing.assert_array_equal(groups.group_of_unit, [0, 1, 3, 2])
    np.testing.assert_array_equal(groups.legal, allowed[[0, 1, 3]])
    np.testing.assert_array_equal(groups.device_of_group, [1, 2, 0])
    assert groups.only_device[2] == 2 and groups.group_of_unit.dtype == np.int32


def test_groups_come_by_when_the_step_needs_them():
    problem = branches_problem(4, 4)
    groups = grouped(problem, num_groups=8)
    place = np.arange(problem.num_units)  # ops are in topological order
    means = [place[groups.group_of_unit == group].mean() for group in range(groups.count)]
    assert 4 <= groups.count <= 8 and means == sorted(means)


@pytest.mark.parametrize("most", [1, 5, 40])
def test_every_group_has_units_and_what_is_legal_for_it_is_for_all_of_them(most):
    problem = random_problem(np.random.default_rng(2), 40, 3)  # with masks
    groups = grouped(problem, num_groups=most)
    assert set(groups.group_of_unit) - {groups.count} == set(range(groups.count))
    for group in range(groups.count):
        np.testing.assert_array_equal(
            problem.allowed[groups.group_of_unit == group].all(axis=0), groups.legal[group]
        )
        assert groups.legal[group, groups.device_of_group[group]]
    alone = problem.allowed.sum(axis=1) == 1
    np.testing.assert_array_equal(groups.group_of_unit == groups.count, alone)


def test_where_nothing_is_to_be_decided_there_is_one_group_without_units():
    groups = grouped(problem_of([1, 2], [(0, 1)], 8, cluster=small_cluster(1)), num_groups=0)
    assert groups.count == 1 and groups.group_of_unit.tolist() == [1, 1]
