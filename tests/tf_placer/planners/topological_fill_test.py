"""Devices filled in order: contiguous, the fastest first, never over what they hold."""

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import full_problem, sized_cluster
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.plain import topological_fill

CHAIN = [(i, i + 1) for i in range(5)]


def test_a_chain_is_cut_where_a_share_is_full():
    problem = problem_of([1] * 6, CHAIN, cluster=sized_cluster([40, 80]), resident_bytes=10)
    # To the brim: four and two. In proportion to memory: two and four. To the brim with half of the free half of all
    # memory kept free, so of 30 and 60: three and three.
    rows = [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]
    assert topological_fill(problem).tolist() == rows


def test_the_fastest_device_is_filled_first():
    problem = problem_of([[2, 1]] * 6, CHAIN, cluster=sized_cluster([40, 40]), resident_bytes=10)
    assert topological_fill(problem)[0].tolist() == [1, 1, 1, 1, 0, 0]


def test_where_nothing_needs_memory_everything_is_on_the_fastest_device():
    assert topological_fill(problem_of([[2, 1]] * 6, CHAIN)).tolist() == [[1] * 6]


def test_what_outputs_hold_counts_too():
    # Nothing stays, but every output waits for the last unit: no device holds all six of 10.
    problem = problem_of([1] * 6, [(i, 5) for i in range(5)], 10, cluster=sized_cluster([45, 60]))
    fits = SimulatedEvaluator(problem).evaluate(topological_fill(problem)).status == 0
    assert fits.any()


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("fill", [0.6, 0.75, 0.9])
def test_full_devices_hold_runs_and_not_crumbs(devices, fill):
    for seed in range(5):
        problem = full_problem(devices, fill, seed)
        rows = topological_fill(problem)
        crossings = [np.count_nonzero(np.diff(row)) for row in rows]
        assert min(crossings) < 2 * devices + 10


def test_many_devices_are_tried_in_powers_of_two():
    problem = problem_of([1] * 8, [(i, i + 1) for i in range(7)], cluster=small_cluster(5), resident_bytes=10)
    assert [len(np.unique(row)) for row in topological_fill(problem)] == [1, 2, 4, 5]
