"""TensorFlow's own placer: the first GPU, else the CPU, and its two rules for single ops."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.planners.clusters_by_type import cluster_of
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.planners.plain import tf_default

GPU_FIRST = cluster_of("GPU", "GPU", "CPU")


@pytest.mark.parametrize(("types", "row"), [(("GPU", "CPU"), [0, 1, 0]), (("CPU", "GPU"), [1, 0, 1])])
def test_the_first_gpu_where_there_is_a_kernel_else_the_cpu(types, row):
    allowed = np.ones((3, 2), bool)
    allowed[1, types.index("GPU")] = False
    problem = problem_of([1] * 3, [(0, 1), (2, 1), (0, 2)], cluster=cluster_of(*types), allowed=allowed)
    assert tf_default(problem).tolist() == [row]


def test_other_gpus_stay_idle():
    problem = problem_of([[9, 1, 1]] * 3, [], cluster=GPU_FIRST, resident_bytes=10**12)
    assert tf_default(problem).tolist() == [[0, 0, 0]]


def test_without_a_gpu_everything_is_on_the_first_device():
    assert tf_default(problem_of([1] * 2, [], cluster=cluster_of("CPU", "CPU"))).tolist() == [[0, 0]]


def test_a_unit_is_where_all_of_its_ops_have_kernels():
    allowed = np.array([[True, True, True], [False, False, True]])
    problem = problem_of([1] * 2, [], cluster=GPU_FIRST, allowed=allowed, unit_of_op=np.zeros(2, np.int32))
    assert tf_default(problem).tolist() == [[2]]


@pytest.mark.parametrize(("edges", "device"), [([(0, 1)], 2), ([(0, 1), (0, 2)], 0)])
def test_a_source_goes_with_its_readers_where_they_are_together(edges, device):
    # 1 runs on the CPU only, 2 on the GPU.
    allowed = np.array([[True] * 3, [False, False, True], [True] * 3])
    problem = problem_of([1] * 3, edges, cluster=GPU_FIRST, allowed=allowed)
    assert tf_default(problem)[0].tolist() == [device, 2, 0]


@pytest.mark.parametrize(("op_type", "device"), [("Shape", 2), ("Relu", 0)])
def test_what_looks_at_a_shape_goes_with_what_it_reads(op_type, device):
    allowed = np.array([[False, False, True], [True] * 3, [True] * 3])
    problem = problem_of([1] * 3, [(0, 1), (1, 2)], cluster=GPU_FIRST, allowed=allowed)
    named = dataclasses.replace(problem, op_types=("Print", op_type, "Relu"))
    assert tf_default(named)[0].tolist() == [2, device, 0]
