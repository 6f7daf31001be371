"""A coarse problem's placements take as long as the finer one's."""

from __future__ import annotations

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.coarse_problem import coarse_problem


def test_a_group_holds_what_its_units_hold_and_is_split_where_they_may_not_be_together() -> None:
    allowed = np.array([[True, True], [True, False], [True, True], [True, True]])
    problem = problem_of(
        [1] * 4, [(0, 1), (1, 2), (2, 3)], resident_bytes=np.array([1, 2, 4, 8]), allowed=allowed
    )
    coarse, unit = coarse_problem(problem, np.array([0, 0, 0, 5]))
    # Units 0 and 2 hold 1 + 4 bytes; unit 1 may only be on device 0.
    assert unit[0] == unit[2] and len(set(unit.tolist())) == 3
    assert coarse.resident_bytes[unit].tolist() == [5, 2, 5, 8]
    np.testing.assert_array_equal(coarse.allowed[unit], allowed)


def test_placements_take_as_long_and_as_much_memory() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        problem = random_problem(rng, 15, 3)
        coarse, unit = coarse_problem(problem, rng.integers(0, 5, problem.num_units))
        rows = np.stack(
            [[rng.choice(np.flatnonzero(may)) for may in coarse.allowed] for _ in range(4)]
        ).astype(np.int32)
        whole, parts = (
            SimulatedEvaluator(problem).evaluate(rows[:, unit]),
            SimulatedEvaluator(coarse).evaluate(rows),
        )
        np.testing.assert_array_equal(whole.runtime_s, parts.runtime_s)
        np.testing.assert_array_equal(whole.peak_bytes, parts.peak_bytes)
