"""Lower bounds: by hand, and never above what brute force finds."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.bounds import lower_bounds


def test_critical_path_takes_each_op_at_its_fastest_and_transfers_free():
    # 0 -> 1 -> 3 costs 10 + 20 + 5; 0 -> 2 -> 3 costs 10 + 40 + 5, each at the faster device.
    compute_ns = [[10, 99], [99, 20], [40, 50], [5, 5]]
    bounds = lower_bounds(problem_of(compute_ns, [(0, 1), (0, 2), (1, 3), (2, 3)], 10**6))
    assert bounds.critical_path_ns == 10 + 40 + 5


def test_a_device_without_kernel_is_no_fastest_device():
    problem = problem_of([[100, 1]], [], allowed=np.array([[True, False]]))
    bounds = lower_bounds(problem)
    assert (bounds.critical_path_ns, bounds.largest_unit_ns) == (100, 100)
    assert bounds.best_s == pytest.approx(100e-9)


def test_total_work_is_shared_among_devices():
    # Six ops of 100 ns on three equal devices: 200 ns each, to one part in 10^9 and rounding down.
    bounds = lower_bounds(problem_of([100] * 6, [], cluster=small_cluster(3)))
    assert bounds.total_work_ns in (199, 200)
    assert bounds.critical_path_ns == bounds.largest_unit_ns == 100
    # Two streams a device halve it.
    assert lower_bounds(problem_of([100] * 6, [], cluster=small_cluster(3, streams=2))).total_work_ns in (
        99,
        100,
    )


def test_total_work_of_unequal_devices_is_the_fractional_assignment():
    # Ops of (100, 300) ns: x of 12 ops on device 0 gives 100 x = 300 (12 - x), x = 9: 900 ns. The dual ascent
    # may stop a little below, never above.
    total = lower_bounds(problem_of([[100, 300]] * 12, [])).total_work_ns
    assert 0.98 * 900 <= total <= 900


def test_largest_unit_counts_all_its_ops_on_one_device():
    problem = dataclasses.replace(
        problem_of([[10, 80], [10, 80], [70, 10]], [(0, 1), (1, 2)]),
        unit_of_op=np.zeros(3, np.int32),
        resident_bytes=np.zeros(1, np.int64),
        allowed=np.ones((1, 2), bool),
    )
    # Together: 10 + 10 + 70 on device 0, 80 + 80 + 10 on device 1.
    assert lower_bounds(problem).largest_unit_ns == 90


@pytest.mark.parametrize("seed", range(40))
def test_no_legal_placement_beats_the_bounds(seed):
    generator = np.random.default_rng(seed)
    devices = int(generator.integers(1, 4))
    problem = random_problem(
        generator, int(generator.integers(1, 6)), devices, streams=int(generator.integers(1, 3))
    )
    every = np.array(list(itertools.product(range(devices), repeat=problem.num_units)), np.int32)
    legal = problem.allowed[np.arange(problem.num_units), every].all(axis=1)
    best_s = np.nanmin(SimulatedEvaluator(problem).evaluate(every[legal]).runtime_s)
    bounds = lower_bounds(problem)
    assert bounds.best_s <= best_s + 1e-15, f"seed {seed}: {bounds} against {best_s}"
