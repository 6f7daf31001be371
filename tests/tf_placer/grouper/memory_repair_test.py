"""Placements brought within memory: what fits stays, and what can fit does."""

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import full_problem, loads, sized_cluster
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.grouper.memory_repair import MemoryRepair


def within(problem, need=None):
    need = problem.resident_bytes if need is None else need
    return MemoryRepair(problem, need, np.arange(problem.num_units))


def test_what_fits_is_left_alone():
    problem = problem_of([1] * 4, [], cluster=sized_cluster([20, 20]), resident_bytes=10)
    row = np.array([0, 1, 0, 1], np.int32)
    assert within(problem)(row) is row and within(problem).fits(row)


def test_only_as_much_goes_as_has_to_and_from_the_end():
    problem = problem_of([1] * 5, [], cluster=sized_cluster([30, 30]), resident_bytes=10)
    assert within(problem)(np.zeros(5, np.int32)).tolist() == [0, 0, 0, 1, 1]


def test_large_units_go_first_and_small_ones_find_room_between_them():
    # In order, 5 and 5 would fill half of each device and leave no room for the 20.
    problem = problem_of([1] * 4, [], cluster=sized_cluster([20, 15]), resident_bytes=[5, 5, 20, 5])
    assert within(problem)(np.zeros(4, np.int32)).tolist() == [1, 1, 0, 1]


def test_units_go_only_where_they_may_and_those_without_a_choice_come_first():
    allowed = np.array([[True, False], [True, True], [True, False]])
    problem = problem_of(
        [1] * 3, [], cluster=sized_cluster([20, 20]), resident_bytes=[10, 20, 10], allowed=allowed
    )
    assert within(problem)(np.zeros(3, np.int32)).tolist() == [0, 1, 0]


def test_devices_in_use_come_before_others_and_the_fast_before_the_slow():
    costs = [[1, 1, 9, 2]] * 4
    problem = problem_of(costs, [], cluster=sized_cluster([10, 20, 99, 99]), resident_bytes=10)
    assert within(problem)(np.array([0, 0, 1, 0], np.int32)).tolist() == [0, 1, 1, 3]


def test_units_that_need_nothing_go_with_the_one_before_them():
    need = np.array([10, 0, 10, 0, 0])
    problem = problem_of([1] * 5, [], cluster=sized_cluster([10, 10]), resident_bytes=need)
    assert within(problem)(np.zeros(5, np.int32)).tolist() == [0, 0, 1, 1, 1]


def test_what_finds_room_nowhere_stays_and_is_not_called_fitting():
    problem = problem_of([1, 1], [], cluster=sized_cluster([10, 10]), resident_bytes=[10, 30])
    row = within(problem)(np.zeros(2, np.int32))
    assert row[1] == 0 and not within(problem).fits(row)


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("fill", [0.6, 0.75, 0.9])
def test_whatever_is_drawn_fits_in_devices_of_different_sizes(devices, fill):
    for seed in range(10):
        problem = full_problem(devices, fill, seed)
        bring = within(problem)
        for row in np.random.default_rng(seed).integers(0, devices, (10, problem.num_units)):
            brought = bring(row.astype(np.int32))
            assert (loads(problem, brought) <= problem.cluster.capacity_bytes()).all(), f"seed {seed}"
