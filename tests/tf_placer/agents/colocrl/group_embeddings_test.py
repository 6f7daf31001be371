"""Embeddings of three groups, by hand."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.colocrl import (
    ColocRlConfig,
    colocated_groups,
    group_embeddings,
)
from tf_placer.agents.features import NUM_TYPES, type_numbers


@pytest.fixture(scope="module")
def problem():
    # 0 -> 1 -> 2, 0 -> 2: unit 0 by itself, 1 and 2 in the order of the chain.
    problem = problem_of([10, 30, 20], [(0, 1), (1, 2), (0, 2)], 9, resident_bytes=[0, 100, 300])
    shapes = (((4, 3),), ((7,), (2, 2, 2, 2, 2)), ())
    return dataclasses.replace(problem, op_types=("MatMul", "Relu", "Relu"), output_shapes=shapes)


@pytest.fixture(scope="module")
def groups(problem):
    return colocated_groups(problem, ColocRlConfig(colocate=False))


def test_types_sizes_and_neighbors(problem, groups):
    rows = group_embeddings(problem, groups, 5, work_features=False)
    assert rows.shape == (3, NUM_TYPES + 16 + 6 + 5) and rows.dtype == np.float32
    types, sizes, work, adjacency = np.split(rows, [NUM_TYPES, NUM_TYPES + 16, NUM_TYPES + 22], axis=1)
    matmul, relu = type_numbers(["MatMul", "Relu"])
    expected = np.zeros_like(types)
    expected[0, matmul] = expected[1, relu] = expected[2, relu] = np.log(2)
    np.testing.assert_allclose(types, expected, rtol=1e-6)
    np.testing.assert_allclose(sizes[0, :4], np.log([5, 4, 1, 1]) / 10, rtol=1e-6)
    np.testing.assert_allclose(sizes[1, :8], np.log([8, 1, 1, 1, 3, 3, 3, 3]) / 10, rtol=1e-6)
    assert not sizes[:, 8:].any() and not sizes[2].any() and not work.any()
    np.testing.assert_array_equal(adjacency, [[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 0, 0]])


def test_work(problem, groups):
    rows = group_embeddings(problem, groups, 3, work_features=True)
    work = rows[:, NUM_TYPES + 16 : NUM_TYPES + 22]
    np.testing.assert_allclose(work[:, 0], [1 / 6, 3 / 6, 2 / 6], rtol=1e-6)
    np.testing.assert_allclose(work[:, 1], [0, 0.25, 0.75], rtol=1e-6)
    # Unit 0 makes two tensors of 9 bytes, unit 1 one.
    np.testing.assert_allclose(work[:, 2], np.log10([19, 10, 1]) / 10, rtol=1e-6)
    # A chain: 60 ns, all critical.
    np.testing.assert_allclose(work[:, 3], [0, 10 / 60, 40 / 60], rtol=1e-6)
    np.testing.assert_allclose(work[:, 4], [1, 50 / 60, 20 / 60], rtol=1e-6)
    assert not work[:, 5].any()


def test_a_group_is_its_costliest_op(problem):
    together = dataclasses.replace(
        problem,
        unit_of_op=np.array([0, 1, 1], np.int32),
        resident_bytes=problem.resident_bytes[:2],
        allowed=problem.allowed[:2],
    )
    groups = colocated_groups(together, ColocRlConfig(colocate=False))
    rows = group_embeddings(together, groups, 2, work_features=False)
    relu = type_numbers(["Relu"])[0]
    assert rows[1, relu] == pytest.approx(np.log(3))
    np.testing.assert_allclose(rows[1, NUM_TYPES : NUM_TYPES + 2], [np.log(8) / 10, 0], rtol=1e-6)
