"""What can be proven not to fit, with the numbers that are told; and nothing is claimed that fits."""

import numpy as np
import pytest

from tests.tf_placer.evaluation.random_problems import random_problem
from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.bounds import bytes_while_running, shortage

GPU = "/job:localhost/replica:0/task:0/device:GPU:"


def test_a_unit_larger_than_every_device_is_named_with_what_is_missing():
    problem = problem_of(
        [1] * 3, [], cluster=sized_cluster([10, 25]), resident_bytes=[5, 40, 30], names=["a", "b", "c"]
    )
    assert shortage(problem) == (
        f"the unit of op 'b' (1 op) fits on no device: 40 bytes stay there, and {GPU}1 with 25 bytes is 15 bytes short"
    )


def test_a_device_that_is_large_enough_but_has_no_kernel_does_not_count():
    allowed = np.array([[True, False], [True, True]])
    problem = problem_of(
        [1] * 2,
        [],
        cluster=sized_cluster([10, 99]),
        resident_bytes=[15, 1],
        allowed=allowed,
        names=["a", "b"],
    )
    assert f"op 'a' (1 op) fits on no device: 15 bytes stay there, and {GPU}0 with 10 bytes is 5" in shortage(
        problem
    )


def test_what_an_op_reads_and_writes_is_there_while_it_runs():
    # Unit 2 reads 30 and 20 and writes 10, with 1 that stays: 61 of 60.
    problem = problem_of(
        [1] * 3,
        [(0, 2), (1, 2)],
        [30, 20],
        cluster=small_cluster(2, memory_bytes=60),
        resident_bytes=[0, 0, 1],
        output_bytes=[0, 0, 10],
        names=["a", "b", "c"],
    )
    told = shortage(problem)
    assert "'c' (1 op) fits on no device: 1 bytes stay there, 60 are held while op 'c' runs" in told
    assert told.endswith("with 60 bytes is 1 bytes short")
    assert (SimulatedEvaluator(problem).evaluate(np.array([[0, 1, 0], [0, 0, 0]])).status == 1).all()
    enough = problem_of(
        [1] * 3, [(0, 2), (1, 2)], [30, 20], cluster=small_cluster(2, memory_bytes=60), output_bytes=10
    )
    assert shortage(enough) is None


def test_more_than_all_devices_have_together():
    problem = problem_of(
        [1] * 5, [], cluster=sized_cluster([20, 25]), resident_bytes=[10, 9, 10, 10, 11], names=list("abcde")
    )
    assert shortage(problem) == (
        f"50 bytes stay with units and {GPU}0, {GPU}1 have together 45: 5 bytes short; "
        "most is with the variables in the unit of op 'e' (11), the unit of op 'a' (10), the unit of op 'c' (10)"
    )


def test_units_that_run_on_some_devices_only_against_those():
    allowed = np.array([[True, False, False], [True, False, False], [True, True, True]])
    problem = problem_of(
        [1] * 3,
        [],
        cluster=sized_cluster([15, 99, 99]),
        resident_bytes=[10, 10, 50],
        allowed=allowed,
        names=["a", "b", "c"],
    )
    assert f"20 bytes stay with units that run nowhere else and {GPU}0 has 15: 5 bytes short" in shortage(
        problem
    )


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_proven_where_something_fits(seed):
    generator = np.random.default_rng(seed)
    edges = [(i, j) for i in range(6) for j in range(i + 1, 6) if generator.random() < 0.4]
    problem = problem_of(
        generator.integers(0, 3, 6),
        edges,
        generator.integers(0, 30, len(edges)),
        cluster=sized_cluster(generator.integers(40, 90, 2).tolist()),
        resident_bytes=generator.integers(0, 30, 6),
    )
    every = np.array([[row >> unit & 1 for unit in range(6)] for row in range(64)])
    fits = (SimulatedEvaluator(problem).evaluate(every).status == 0).any()
    assert shortage(problem) is None or not fits


def test_no_simulated_step_has_less_than_what_one_of_its_ops_needs():
    shared = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng)
        running, _ = bytes_while_running(problem)
        row = rng.integers(0, problem.num_devices, problem.num_units).astype(np.int32)
        peak = SimulatedEvaluator(problem).evaluate(row[np.newaxis]).peak_bytes[0]
        units = np.arange(problem.num_units)
        assert (problem.resident_bytes + running[units, row] <= peak[row]).all(), seed
        shared += (problem.alias_of_tensor >= 0).any()
    assert shared > 50
