"""Groups of one legality each, on the plan that is best as groups."""

import numpy as np

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.start import HdpStart

CONFIG = HdpConfig(groups="min_cut", num_groups=3)


def mixed_problem():
    """Ten units in a chain; the first three may run on devices 0 and 1, the last one on 2 alone, the rest anywhere."""
    allowed = np.ones((10, 3), bool)
    allowed[:3, 2] = False
    allowed[9] = [False, False, True]
    edges = [(u, u + 1) for u in range(9)]
    return problem_of([10] * 10, edges, 100, cluster=small_cluster(3), allowed=allowed)


def first_is_best(rows):
    return np.arange(len(rows), dtype=float), np.ones(len(rows), bool)


def test_groups_hold_units_of_one_class():
    start = HdpStart.on_device(mixed_problem(), CONFIG, 2)
    # Classes by number of units: anything (6 units), then devices 0 and 1 (3 units). One group more goes to the first:
    # 5 : 2 of one.
    assert start.class_of_group.tolist() == [0, 0, 1]
    assert set(start.group_of_unit[3:9]) == {0, 1}
    assert start.group_of_unit[:3].tolist() == [2, 2, 2] and start.group_of_unit[9] == 3
    assert start.legal_of_group.tolist() == [[True] * 3, [True] * 3, [True, True, False]]
    # The last group may not run on device 2.
    assert start.device_of_group.tolist() == [2, 2, 0]


def test_more_classes_than_groups_get_a_group_each():
    config = HdpConfig(groups="min_cut", num_groups=1)
    assert HdpStart.on_device(mixed_problem(), config, 0).class_of_group.tolist() == [0, 1]


def test_every_plan_is_timed_as_groups_and_the_best_is_taken():
    problem = mixed_problem()
    plans = np.array([problem.everything_on(d) for d in range(3)])
    seen = []

    def simulate(rows):
        seen.append(rows)
        return np.array([3.0, 1.0, 2.0]), np.array([True, True, True])

    start = HdpStart.from_plans(problem, CONFIG, plans, simulate)
    for row in seen[0]:
        problem.check_legal(row)
    # Plan 1 has all on device 1 but for the last unit, which is on 2.
    assert start.device_of_group.tolist() == [1, 1, 1]
    assert seen[0][1].tolist() == [1] * 9 + [2]


def test_without_imitation_all_groups_of_a_class_are_alike():
    problem = branches_problem(2, 4)
    plan = np.arange(problem.num_units) % 2
    start = HdpStart.from_plans(
        problem,
        HdpConfig(num_groups=4, group_probability=0.0),
        plan[np.newaxis].astype(np.int32),
        first_is_best,
    )
    assert len(set(start.device_of_group)) == 1


def test_what_fits_is_preferred():
    problem = mixed_problem()
    plans = np.array([problem.everything_on(d) for d in range(2)])
    start = HdpStart.from_plans(
        problem, CONFIG, plans, lambda rows: (np.array([1.0, 2.0]), np.array([False, True]))
    )
    assert start.device_of_group.tolist() == [1, 1, 1]
