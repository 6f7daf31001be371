"""List schedules: where an op ends first, by hand; within memory; and what a variable does."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import (
    branches_optimum_ns,
    branches_problem,
    problem_of,
    small_cluster,
)
from tf_placer.base.method_spec import NoSettings
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.problem.problem import Problem, made_once


def simulated_ns(problem, rows):
    return (1e9 * SimulatedEvaluator(problem).evaluate(rows).runtime_s).min()


def test_independent_units_go_where_they_end_first():
    # Longest first: 5 to device 0, 4 to 1, 3 to 1 (7 < 8), 2 to 0 (7), 1 to the first of two that end at 8.
    assert list_schedule(problem_of([5, 4, 3, 2, 1], [])).tolist() == [[0, 1, 1, 0, 0]]


def test_a_branch_crosses_only_where_that_ends_earlier():
    # 0 feeds 1 and 2 with 100 bytes, 110 ns to the other device. Beside 50 ns of work that is not worth it, beside 500.
    edges = [(0, 1), (0, 2)]
    assert list_schedule(problem_of([10, 50, 50], edges, 100)).tolist() == [[0, 0, 0]]
    split = list_schedule(problem_of([10, 500, 500], edges, 100))
    assert sorted(split[0].tolist()) == [0, 0, 1]


def test_transfers_wait_for_their_channel():
    # Two outputs of 1000 bytes to the same device: the second arrives at 10 + 2 * 1010, later than unit 2 ends at home.
    problem = problem_of([10, 1100, 900, 900], [(0, 1), (0, 2), (0, 3)], 1000)
    row = list_schedule(problem)[0]
    assert np.bincount(row).tolist() == [3, 1]


@pytest.mark.parametrize(("branches", "length"), [(4, 6), (2, 3)])
def test_branches_are_spread_over_equal_devices(branches, length):
    problem = branches_problem(branches, length)
    assert simulated_ns(problem, list_schedule(problem)) <= 1.05 * branches_optimum_ns(branches, length)


def test_a_variable_goes_with_its_first_reader():
    # Two heavy chains side by side; 4 and 5 are free reads that open the step, of 900 bytes, read by 1 and by 3.
    edges = [(0, 1), (2, 3), (4, 1), (5, 3)]
    problem = problem_of([1000, 1000, 1000, 1000, 0, 0], edges, [1, 1, 900, 900])
    row = list_schedule(problem)[0]
    assert row[0] == row[1] == row[4] and row[2] == row[3] == row[5] and row[0] != row[2]


def test_a_unit_that_opens_and_closes_the_step_is_no_cycle():
    # A read (op 6) of unit 0's weights at the start, its update (op 7) at the end.
    problem = problem_of([100] * 6 + [0, 100], [*((i, i + 1) for i in range(5)), (6, 2), (5, 7)], 10)
    units = np.array([0, 1, 2, 3, 4, 5, 6, 6])
    variable = dataclasses.replace(
        problem,
        unit_of_op=units[problem.unit_of_op].astype(np.int32),
        resident_bytes=np.full(7, 10),
        allowed=np.ones((7, 2), bool),
    )
    assert list_schedule(variable).tolist() == [[0] * 7]


def test_a_much_slower_device_is_also_left_out():
    # The host's end is a little earlier for one of many short units, and everything after it is late.
    problem = problem_of([[10, 10, 25]] * 6, [], cluster=small_cluster(3))
    assert {len(np.unique(row)) for row in list_schedule(problem)} == {2, 3}


def test_work_grows_with_edges_and_not_faster(monkeypatch):
    """Counted, not timed: how often an arrival is asked for."""
    from tf_placer.planners.list_schedule import Schedule

    asked = []
    arrives = Schedule._arrives
    monkeypatch.setattr(Schedule, "_arrives", lambda *a: asked.append(1) or arrives(*a))
    counts = []
    for units in (200, 400):
        edges = [(i, j) for i in range(units) for j in (i + 1, i + 3) if j < units]
        asked.clear()
        list_schedule(problem_of([100] * units, edges, 1))
        counts.append(len(asked))
    assert counts[1] < 2.1 * counts[0]


def test_what_was_made_of_a_problem_is_kept_as_long_as_it_is() -> None:
    calls: list[int] = []

    def counted(problem: Problem, config: NoSettings, seed: int) -> np.ndarray:
        calls.append(seed)
        return np.full([1, problem.num_units], seed, np.int32)

    one, other = (dataclasses.replace(problem_of([5, 4], []), name=name) for name in ("one", "other"))
    first = made_once(counted, one, NoSettings(), 0)
    assert made_once(counted, one, NoSettings(), 0) is first and calls == [0]
    assert made_once(counted, one, NoSettings(), 1)[0, 0] == 1 and calls == [0, 1]
    made_once(counted, other, NoSettings(), 0)
    assert calls == [0, 1, 0]
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 3
