"""Groups of one legality each, of which a plan's devices are voted."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents import unit_groups as unit_groups_module
from tf_placer.agents.unit_groups import unit_groups


def mixed_problem():
    """Ten units in a chain; the first three may run on devices 0 and 1, the last one on 2 alone, the rest anywhere."""
    allowed = np.ones((10, 3), bool)
    allowed[:3, 2] = False
    allowed[9] = [False, False, True]
    edges = [(u, u + 1) for u in range(9)]
    return problem_of([10] * 10, edges, 100, cluster=small_cluster(3), allowed=allowed)


def slack_problem():
    """Four pairs in a chain, 100 ns an op; the second of each pair is of 1 ns and nobody waits for it.

    Heavy edges keep the pairs together in a min cut; the critical path is 400 ns, and the second ones can wait for
    all of it that is behind them, less 1 ns: 299, 199, 99 and (beside the end) -1 + 0 ns.
    """
    edges = [(0, 1), (1, 2), (2, 3), (0, 4), (1, 5), (2, 6)]
    edge_bytes = np.array([1, 1, 1, 10**6, 10**6, 10**6])
    return problem_of([100, 100, 100, 100, 1, 1, 1], edges, edge_bytes)


def test_groups_hold_units_of_one_class():
    groups = unit_groups(mixed_problem(), 3, "min_cut")
    # Classes by number of units: anything (6 units), then devices 0 and 1 (3 units). One group more goes to the first.
    assert groups.class_of_group.tolist() == [0, 0, 1] and groups.count == 3
    assert set(groups.group_of_unit[3:9]) == {0, 1}
    assert groups.group_of_unit[:3].tolist() == [2, 2, 2] and groups.group_of_unit[9] == 3
    assert groups.legal_of_group.tolist() == [[True] * 3, [True] * 3, [True, True, False]]


def test_what_can_wait_has_groups_of_its_own():
    problem = slack_problem()
    cut, slack = (unit_groups(problem, 5, kind).group_of_unit for kind in ("min_cut", "slack"))
    chain, waiting = [0, 1, 2, 3], [4, 5, 6]
    assert not set(slack[chain]) & set(slack[waiting])
    assert set(cut[chain]) & set(cut[waiting])


@pytest.mark.parametrize("count", [1, 2, 3, 6, 9, 20, 100])
def test_there_are_never_more_groups_than_asked_for(count):
    problem = branches_problem(3, 6)
    groups = unit_groups(problem, count, "slack")
    assert groups.count == min(count, problem.num_units)
    assert groups.group_of_unit.min() >= 0 and groups.group_of_unit.max() < groups.count
    # About as many as asked for are made use of.
    assert len(np.unique(groups.group_of_unit)) >= groups.count / 2


def test_rows_are_where_groups_are():
    groups = unit_groups(mixed_problem(), 3, "min_cut")
    (row,) = groups.rows(np.array([[1, 0, 1]], np.int32))
    assert row[:3].tolist() == [1] * 3 and row[9] == 2
    assert row[3:9].tolist() == [1 - g for g in groups.group_of_unit[3:9]]


def test_the_fastest_plan_as_groups_is_taken_if_it_fits():
    problem = mixed_problem()
    groups = unit_groups(problem, 3, "min_cut")
    plans = np.array([problem.everything_on(d) for d in range(3)])
    # Plan 2 is fastest and does not fit; plan 1 has what may not be there on its first legal device.
    best = groups.best_of(
        problem, plans, lambda rows: (np.array([3.0, 2.0, 1.0]), np.array([True, True, False]))
    )
    assert best.tolist() == [1, 1, 1]


def test_units_that_are_alike_are_in_the_first_group_of_their_class():
    assert unit_groups(mixed_problem(), 3, "min_cut").alike().group_of_unit.tolist() == [2] * 3 + [0] * 6 + [
        3
    ]


def test_a_group_without_units_has_a_legal_device_too(monkeypatch):
    # METIS may leave parts empty, for which no plan votes.
    monkeypatch.setattr(
        unit_groups_module, "min_cut_partition", lambda problem, graph, parts: np.zeros(4, np.int32)
    )
    problem = problem_of([1] * 4, [], cluster=small_cluster(3), allowed=np.array([[False, True, True]] * 4))
    groups = unit_groups(problem, 2, "min_cut")
    assert groups.group_of_unit.tolist() == [0] * 4
    assert groups.devices_of(problem, problem.everything_on(2)[np.newaxis]).tolist() == [[2, 1]]
