"""Levels by hand, and against every path of random graphs."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.agents.features import op_levels


def test_levels_by_hand():
    # 0 (10) -> 1 (50) -> 3 (20), 0 -> 2 (5) -> 3; 4 (8) alone. The critical path is 0, 1, 3: 80.
    levels = op_levels(problem_of([10, 50, 5, 20, 8], [(0, 1), (0, 2), (1, 3), (2, 3)], 1000))
    # Ops stand in topological order, ties by number: as given.
    assert levels.path_ns == 80
    np.testing.assert_allclose(levels.top, np.array([0, 10, 10, 60, 0]) / 80)
    np.testing.assert_allclose(levels.bottom, np.array([80, 70, 25, 20, 8]) / 80)
    np.testing.assert_allclose(levels.slack, np.array([0, 0, 45, 0, 72]) / 80, atol=1e-12)


def test_a_step_that_takes_no_time_has_no_levels():
    levels = op_levels(problem_of([0, 0], [(0, 1)]))
    for level in levels[:3]:
        assert level.tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_levels_against_every_path(seed):
    problem = random_problem(np.random.default_rng(seed), units=8, num_devices=2)
    cost = problem.fastest_ns()
    producer = np.repeat(problem.tensor_producer, np.diff(problem.consumer_offset))
    readers = {op: set(problem.consumer_op[producer == op].tolist()) for op in range(8)}

    def paths_from(op):
        yield [op]
        for reader in readers[op]:
            for path in paths_from(reader):
                yield [op, *path]

    paths = [path for op in range(8) for path in paths_from(op)]
    levels = op_levels(problem)
    assert levels.path_ns == max(cost[path].sum() for path in paths)
    for op in range(8):
        bottom = max(cost[path].sum() for path in paths if path[0] == op)
        top = max(cost[path[:-1]].sum() for path in paths if path[-1] == op)
        assert round(levels.bottom[op] * levels.path_ns) == bottom
        assert round(levels.top[op] * levels.path_ns) == top
