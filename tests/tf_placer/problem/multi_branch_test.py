"""The multi-branch problem: its bound holds, and half of the chains on each GPU is as near as one can get."""

import itertools

import numpy as np
import pytest

from tests.tf_placer.problem.multi_branch import multi_branch_bound_s, multi_branch_problem
from tests.tf_placer.problem.small_problems import without_overheads
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator

# 1 MiB over PCIe 3.0 in models.toml: 5,000 ns + 1,048,576 bytes at 10 bytes a ns, rounded up.
CROSSING_NS = 5_000 + 104_858


def half_and_half(branches, depth):
    """[U]: source and the first half of the chains on GPU:0, the other half and the sink on GPU:1."""
    of_chain = np.arange(branches) >= branches // 2
    return np.concatenate([[0], np.repeat(of_chain, depth), [1]]).astype(np.int32)


@pytest.fixture(scope="module")
def two_by_two():
    """Every placement on the two GPUs of 2 chains of 2 ops, and its step time."""
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x2")), branches=2, depth=2)
    every = np.array(list(itertools.product((0, 1), repeat=problem.num_units)), np.int32)
    return every, SimulatedEvaluator(problem).evaluate(every).runtime_s


def test_no_placement_of_two_chains_on_two_gpus_beats_the_bound(two_by_two):
    every, runtime_s = two_by_two
    assert len(every) == 2**6 and not np.isnan(runtime_s).any()
    # Source 0.1 ms, half of four ops of 1 ms, sink 0.1 ms.
    assert multi_branch_bound_s(2, 2) == pytest.approx(2.2e-3)
    assert runtime_s.min() >= multi_branch_bound_s(2, 2)


def test_one_chain_on_each_gpu_is_the_best_of_all_placements(two_by_two):
    every, runtime_s = two_by_two
    best = every[runtime_s == runtime_s.min()]
    # By symmetry also with the GPUs or the chains exchanged; the sink is never beside the source, where
    # it would wait for the far chain's result, sent last.
    expected = {(s, a, a, 1 - a, 1 - a, 1 - s) for s in (0, 1) for a in (0, 1)}
    assert set(map(tuple, best.tolist())) == expected
    assert tuple(half_and_half(2, 2).tolist()) in expected
    assert runtime_s.min() == pytest.approx((2_200_000 + CROSSING_NS) / 1e9, rel=1e-12)


@pytest.mark.parametrize(("branches", "depth"), [(3, 1), (1, 3), (2, 1)])
def test_no_placement_on_four_gpus_beats_the_bound_for_four(branches, depth):
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x4")), branches, depth)
    every = np.array(list(itertools.product(range(4), repeat=problem.num_units)), np.int32)
    runtime_s = SimulatedEvaluator(problem).evaluate(every).runtime_s
    assert runtime_s.min() >= multi_branch_bound_s(branches, depth, devices=4)
    # The bound knows how many devices there are: for one GPU it is the time of one GPU.
    assert runtime_s[0] == pytest.approx(multi_branch_bound_s(branches, depth, devices=1))


def test_half_of_eight_chains_of_six_ops_exceeds_the_bound_by_one_crossing():
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x2")))
    assert problem.num_units == 50
    [runtime_s] = SimulatedEvaluator(problem).evaluate(half_and_half(8, 6)[np.newaxis]).runtime_s
    bound_s = multi_branch_bound_s()
    assert bound_s == pytest.approx(24.2e-3)
    assert bound_s < runtime_s < 1.03 * bound_s
    # GPU:1 starts when the source's tensor has crossed; all results of GPU:0 are there before it ends.
    assert runtime_s - bound_s == pytest.approx(CROSSING_NS / 1e9)


def test_the_source_crosses_once_however_many_chains_are_over_there():
    problem = multi_branch_problem(
        without_overheads(Cluster.preset("k40x2")), branches=4, depth=1, tensor_bytes=1 << 26
    )
    # The source alone on GPU:0. It takes 6.7 ms to cross, an op 1 ms: four times would show.
    crossing_ns = 5_000 + 6_710_887  # 67,108,864 bytes at 10 bytes a ns, rounded up
    [runtime_s] = SimulatedEvaluator(problem).evaluate(np.array([[0, 1, 1, 1, 1, 1]])).runtime_s
    assert runtime_s == pytest.approx((100_000 + crossing_ns + 4_000_000 + 100_000) / 1e9, rel=1e-12)


def test_the_host_cpu_may_run_nothing():
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x2")), branches=2, depth=2)
    on_cpu = np.zeros((problem.num_units, problem.num_units), np.int32)
    np.fill_diagonal(on_cpu, 2)
    assert SimulatedEvaluator(problem).evaluate(on_cpu).status.tolist() == [Status.ILLEGAL] * 6
