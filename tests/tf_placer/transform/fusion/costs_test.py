"""A cluster saves launches and the bytes that stay inside; a problem with clusters is simulated as one op for each."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import CLUSTER, Problem
from tf_placer.transform.fusion.costs import fused_ns, fused_plan, savings

LAUNCH_NS, BYTES_PER_S = 5_000, 1e9


@pytest.fixture
def problem() -> Problem:
    """A chain of four ops of 20, 30, 40 and 50 us, with tensors of 2, 4 and 6 kB, on one GPU."""
    device = Device(
        "/job:a/replica:0/task:0/device:GPU:0", "GPU", "k40", 10**9, 1, 1e12, BYTES_PER_S, LAUNCH_NS
    )
    return Problem.from_arrays(
        compute_ns=np.array([[20_000], [30_000], [40_000], [50_000]]),
        edges=np.array([[0, 1], [1, 2], [2, 3]]),
        edge_bytes=np.array([2_000, 4_000, 6_000]),
        resident_bytes=np.array([100, 0, 0, 10]),
        output_bytes=np.array([2_000, 4_000, 6_000, 0]),
        allowed=np.ones((4, 1), bool),
        cluster=Cluster("one", (device,), ()),
    )


def test_a_cluster_saves_launches_and_bytes_inside(problem):
    clusters = np.array([-1, 0, 0, 0], np.int32)
    saved = savings(problem, clusters)
    assert (saved.clusters, saved.ops, saved.kernels, saved.num_bytes) == (1, 3, 2, 10_000)
    # 120 us, less two launches of 5 us, less 10 kB written and read at 1 GB/s: 20 us.
    assert fused_ns(problem, clusters).tolist() == [[90_000]]


def test_a_cluster_takes_a_launch_at_least(problem):
    quick = Problem.from_arrays(
        compute_ns=np.full((2, 1), 6_000),
        edges=np.array([[0, 1]]),
        edge_bytes=np.array([10**6]),
        resident_bytes=np.zeros(2, np.int64),
        output_bytes=np.array([10**6, 0]),
        allowed=np.ones((2, 1), bool),
        cluster=problem.cluster,
    )
    assert fused_ns(quick, np.zeros(2, np.int32)).tolist() == [[LAUNCH_NS]]


def test_the_simulator_takes_each_cluster_for_one_op(problem):
    rows = [[0]]
    plain, fused = (
        SimulatedEvaluator(problem).evaluate(Decisions([[0] * 4], None, clusters))
        for clusters in (None, [[-1, 7, 7, 7]])
    )
    assert plain.runtime_s.tolist() == [pytest.approx(140e-6)]
    assert fused.runtime_s.tolist() == [pytest.approx(110e-6)]
    both = Decisions.joined([Decisions([[0] * 4]), Decisions([[0] * 4], None, [[-1, 7, 7, 7]])])
    together = SimulatedEvaluator(problem).evaluate(both)
    assert together.runtime_s.tolist() == [*plain.runtime_s, *fused.runtime_s]
    assert together.peak_bytes.shape == (2, len(rows[0]))
    assert fused.peak_bytes[0, 0] < plain.peak_bytes[0, 0], "what stays inside takes no memory"


def test_the_fused_problem_keeps_variables_and_what_leaves(problem):
    placement = Placement(problem, [0] * 4, None, [0, 0, -1, -1])
    plan, first = fused_plan(placement)
    found = plan.problem
    assert first.tolist() == [0, 2, 3] and plan.device_of_unit.tolist() == [0, 0, 0]
    assert found.compute_ns[:, 0].tolist() == [20_000 + 30_000 - LAUNCH_NS - 4_000, 40_000, 50_000]
    assert found.tensor_bytes.tolist() == [4_000, 6_000]
    assert found.resident_bytes.sum() == problem.resident_bytes.sum()


def test_a_cluster_has_the_name_of_its_call_and_says_how_many_ops_it_is(problem):
    named = dataclasses.replace(problem, op_names=("a/b/first", "a/second", "third", "a/fourth"))
    found = fused_plan(Placement(named, [0] * 4, None, [3, 3, -1, 5]))[0].problem
    assert found.op_names == ("a/b/fused_cluster_3", "third", "a/fused_cluster_5")
    assert found.op_types == ("fused, 2 ops", problem.op_types[2], "fused, 1 ops")
    assert [op_type.startswith(CLUSTER) for op_type in found.op_types] == [True, False, True]


def test_a_cluster_on_two_devices_is_refused(problem):
    two = problem_of([100, 50], [[0, 1]])
    with pytest.raises(
        InputError, match=r"cluster 4 has 'unit_0' on .*GPU:0 and 'unit_1' on .*; give all of a cluster"
    ):
        SimulatedEvaluator(two).evaluate(Decisions([[0, 1]], None, [[4, 4]]))


def test_a_cycle_is_refused(problem):
    with pytest.raises(InputError, match="cluster 0, of 'unit_0' and others, is in a cycle"):
        SimulatedEvaluator(problem).evaluate(Decisions([[0] * 4], None, [[0, -1, 0, -1]]))
