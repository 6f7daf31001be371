"""Devices of groups become legal placements that fit."""

from __future__ import annotations

import numpy as np

from tests.tf_placer.planners.full_devices import full_problem, loads
from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.planners.grouped_plans import GroupedPlans


def test_units_are_where_their_groups_are() -> None:
    # A chain of equal ops: no slack, so that four parts are four groups.
    problem = problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100)
    plans = GroupedPlans(problem, parts=2, levels=2)
    assert [len(plans.level(level).allowed) for level in range(2)] == [2, 4]
    devices = np.array([[0, 1], [1, 1]])
    rows = plans.rows(0, devices)
    np.testing.assert_array_equal(rows, devices[:, plans.level(0).group])
    np.testing.assert_array_equal(plans.devices_of(0, rows[0]), devices[0])


def test_levels_end_where_every_unit_is_a_group() -> None:
    problem = problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100)
    # 4 and 8 parts; 16 would be no finer than 8.
    assert GroupedPlans(problem, parts=4, levels=5).count == 2
    assert GroupedPlans(problem, parts=100, levels=5).count == 1


def test_most_of_the_work_says_where_a_group_is() -> None:
    problem = problem_of([10, 10, 30], [(0, 1), (1, 2)], 100)
    assert GroupedPlans(problem, 1, 1).devices_of(0, np.array([0, 0, 1])).tolist() == [1]
    assert GroupedPlans(problem, 1, 1).devices_of(0, np.array([0, 1, 0])).tolist() == [0]


def test_every_plan_is_legal() -> None:
    for seed in range(5):
        problem = random_problem(np.random.default_rng(seed), 15, 3)
        plans = GroupedPlans(problem, 3, 3)
        for level in range(plans.count):
            devices = np.random.default_rng(seed).integers(3, size=(9, len(plans.level(level).allowed)))
            for row in plans.rows(level, devices):
                problem.check_legal(row)


def test_what_does_not_fit_is_moved() -> None:
    problem = full_problem(3, 0.8, seed=0)
    plans = GroupedPlans(problem, 4, 1)
    # The largest device has half of the memory, and 0.8 of all of it is in use.
    everything_there = np.full((4, len(plans.level(0).allowed)), 2)
    for row in plans.rows(0, everything_there):
        assert (loads(problem, row) <= problem.cluster.capacity_bytes()).all()


def test_groups_of_one_kind_are_legal_as_they_are() -> None:
    for seed in range(5):
        problem = random_problem(np.random.default_rng(seed), 15, 3)  # with masks
        plans = GroupedPlans(problem, 3, 1, one_kind=True)
        level = plans.level(0)
        np.testing.assert_array_equal(problem.allowed, level.allowed[level.group])
        coarse = GroupedPlans(problem, 3, 1).level(0).group
        pairs = np.unique(np.stack([level.group, coarse]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1], "each is a part of one group"
