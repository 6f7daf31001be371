"""Devices of groups become legal placements that fit, tables move to the fastest draws, and keys have children."""

import numpy as np

from tests.tf_placer.planners.full_devices import full_problem, loads
from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.grouper.group_search import GroupedPlans, children, joined, table_near, toward_elites

HALF = np.full((2, 2), 0.5)
DRAWN = np.array([[0, 1], [0, 0], [1, 1], [1, 0]])
KEYS = np.array([[0.1, 0.1], [0.2, 0.2], [0.7, 0.7], [0.8, 0.8]])


def test_units_are_where_their_groups_are() -> None:
    # A chain of equal ops: no slack, so that four parts are four groups.
    problem = problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100)
    plans = GroupedPlans(problem, parts=2, levels=2)
    assert [len(plans.level(level).legal) for level in range(2)] == [2, 4]
    devices = np.array([[0, 1], [1, 1]])
    rows = plans.rows(0, devices)
    np.testing.assert_array_equal(rows, devices[:, plans.level(0).group_of_unit])
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
            devices = np.random.default_rng(seed).integers(3, size=(9, len(plans.level(level).legal)))
            for row in plans.rows(level, devices):
                problem.check_legal(row)


def test_what_does_not_fit_is_moved() -> None:
    problem = full_problem(3, 0.8, seed=0)
    plans = GroupedPlans(problem, 4, 1)
    # The largest device has half of the memory, and 0.8 of all of it is in use.
    everything_there = np.full((4, len(plans.level(0).legal)), 2)
    for row in plans.rows(0, everything_there):
        assert (loads(problem, row) <= problem.cluster.capacity_bytes()).all()


def test_groups_of_one_kind_are_legal_as_they_are() -> None:
    for seed in range(5):
        problem = random_problem(np.random.default_rng(seed), 15, 3)  # with masks
        plans = GroupedPlans(problem, 3, 1, one_kind=True)
        level = plans.level(0)
        np.testing.assert_array_equal(problem.allowed, level.legal[level.group_of_unit])
        coarse = GroupedPlans(problem, 3, 1).level(0).group_of_unit
        pairs = np.unique(np.stack([level.group_of_unit, coarse]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1], "each is a part of one group"


def test_it_moves_to_the_frequencies_of_the_fastest() -> None:
    # The fastest two are rows 1 and 0: group 0 is on device 0 in both, group 1 on each once.
    moved = toward_elites(HALF, DRAWN, np.array([2.0, 1.0, 4.0, 3.0]), elites=2, smoothing=0.2)
    np.testing.assert_allclose(moved, [[0.8 * 0.5 + 0.2, 0.8 * 0.5], [0.5, 0.5]])


def test_what_does_not_run_is_no_elite() -> None:
    times = np.array([np.inf, np.nan, np.inf, 3.0])
    moved = toward_elites(HALF, DRAWN, times, elites=2, smoothing=1.0)
    np.testing.assert_array_equal(moved, [[0, 1], [1, 0]])  # row 3 alone


def test_where_nothing_runs_nothing_moves() -> None:
    moved = toward_elites(HALF, DRAWN, np.full(4, np.inf), elites=2, smoothing=1.0)
    np.testing.assert_array_equal(moved, HALF)
    assert moved is not HALF


def test_a_table_is_uniform_or_mostly_at_a_plan() -> None:
    legal = np.array([[True, True], [False, True]])
    np.testing.assert_array_equal(table_near(legal, None), [[0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(table_near(legal, np.array([0, 1])), np.array([[0.85, 0.15], [0, 1]]))


def test_a_child_has_its_keys_of_an_elite_and_another() -> None:
    generator = np.random.default_rng(0)
    born = children(KEYS, elites=2, count=4000, bias=0.7, mutation=0.0, generator=generator)
    of_elite = born < 0.5
    assert set(np.unique(born)) == {0.1, 0.2, 0.7, 0.8}
    # 8000 keys, each of the elite with probability 0.7: a deviation is sqrt(0.21 / 8000) = 0.005.
    assert abs(of_elite.mean() - 0.7) < 5 * 0.0052
    assert of_elite.all(axis=1).any() and (~of_elite).all(axis=1).any()


def test_all_keys_may_be_drawn_anew() -> None:
    born = children(KEYS, 2, 50, bias=0.7, mutation=1.0, generator=np.random.default_rng(0))
    assert len(np.unique(born)) == 100 and born.min() >= 0 and born.max() < 1


def test_the_keys_of_a_group_stay_together() -> None:
    keys = np.repeat(KEYS[:, :, np.newaxis], 3, axis=2)
    born = children(keys, 2, 200, bias=0.7, mutation=0.0, generator=np.random.default_rng(0))
    assert born.shape == (200, 2, 3) and (born == born[:, :, :1]).all()
    assert (born[:, 0] != born[:, 1]).any()


def test_the_fastest_of_elites_and_offered_live_on() -> None:
    keys, times = joined(KEYS[:1], np.array([2.0]), KEYS[1:], np.array([3.0, 1.0, 2.0]), population=3)
    np.testing.assert_array_equal(times, [1, 2, 2])
    np.testing.assert_array_equal(keys, KEYS[[2, 0, 3]])  # of equal ones the elite first
