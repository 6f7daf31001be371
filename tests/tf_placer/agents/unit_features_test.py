"""Features by hand: nothing lost, nothing overlapping."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.features import FIXED_WIDTH, UNIT_COLUMNS, costliest_ops, unit_features
from tf_placer.problem.unit_graph import unit_graph


@pytest.fixture
def problem():
    """Units 0 = {a}, 1 = {b, c}, 2 = {d}, 3 = {e}; edges a->b, a->d, c->e, d->e."""
    ops = problem_of([10, 1, 50, 20, 5], [(0, 1), (0, 3), (2, 4), (3, 4)], 1000, names=list("abcde"))
    return dataclasses.replace(
        ops,
        unit_of_op=np.array([0, 1, 1, 2, 3], np.int32),
        resident_bytes=np.array([0, 300, 100, 0], np.int64),
        allowed=np.ones((4, 2), bool),
        op_types=("Relu", "Const", "MatMul", "MatMul", "Relu"),
        output_shapes=(
            ((2, 3),),
            ((),),
            ((4,), (5, 6, 7, 8)),
            ((9,) * 6,),
            tuple((n,) for n in range(11, 18)),
        ),
    )


def columns(problem, name, landmarks=3):
    features = unit_features(problem, unit_graph(problem), landmarks, seed=0)
    assert features.shape == (problem.num_units, FIXED_WIDTH + landmarks) and features.dtype == np.float32
    return features[:, UNIT_COLUMNS[name]]


def test_the_columns_cover_the_fixed_width_once():
    covered = [i for columns in UNIT_COLUMNS.values() for i in range(columns.start, columns.stop)]
    assert covered == list(range(FIXED_WIDTH))


def test_the_costliest_op_speaks_for_its_unit(problem):
    assert costliest_ops(problem).tolist() == [0, 2, 3, 4]


def test_sizes_of_six_outputs_of_four_dimensions(problem):
    sizes = np.full((4, 6, 4), -1.0)
    sizes[0, 0, :2] = np.log1p([2, 3]) / 10
    sizes[1, 0, 0] = np.log1p(4) / 10  # of op c, which costs more than b
    sizes[1, 1] = np.log1p([5, 6, 7, 8]) / 10
    sizes[2, 0] = np.log1p([9, 9, 9, 9]) / 10  # four of its six dimensions
    sizes[3, :, 0] = np.log1p([11, 12, 13, 14, 15, 16]) / 10  # six of its seven outputs, the sixth among them
    np.testing.assert_allclose(columns(problem, "sizes"), sizes.reshape(4, 24), rtol=1e-5)


def test_neighbors_are_ranks_padded_with_minus_one(problem):
    # Breadth-first from unit 0: 0, 1, 2, 3 by number; ranks are divided by the 4 units.
    none, pad = [-1] * 6, [-1] * 4
    producers = [none, [0, -1, *pad], [0, -1, *pad], [0.25, 0.5, *pad]]
    consumers = [[0.25, 0.5, *pad], [0.75, -1, *pad], [0.75, -1, *pad], none]
    np.testing.assert_allclose(columns(problem, "producers"), producers)
    np.testing.assert_allclose(columns(problem, "consumers"), consumers)


def test_levels_work_and_memory_are_shares(problem):
    # a (10) -> b (1), c (50) -> e (5), a -> d (20) -> e: the paths are a d e = 35 and c e = 55, the critical one.
    np.testing.assert_allclose(columns(problem, "top")[:, 0], np.array([0, 0, 10, 50]) / 55, rtol=1e-6)
    np.testing.assert_allclose(columns(problem, "bottom")[:, 0], np.array([35, 55, 25, 5]) / 55, rtol=1e-6)
    np.testing.assert_allclose(
        columns(problem, "slack")[:, 0], np.array([20, 0, 20, 0]) / 55, rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(columns(problem, "work")[:, 0], np.array([10, 51, 20, 5]) / 55, rtol=1e-6)
    np.testing.assert_allclose(columns(problem, "resident")[:, 0], [0, 0.75, 0.25, 0])


def test_landmarks_are_a_matter_of_the_seed_and_come_last(problem):
    graph = unit_graph(problem)
    one, same = (unit_features(problem, graph, 5, seed=1) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one[:, :FIXED_WIDTH], unit_features(problem, graph, 0, seed=2))
    # Hops over those of the farthest unit: each landmark is at 0 from itself.
    assert (one[:, FIXED_WIDTH:].min(axis=0) == 0).all() and one[:, FIXED_WIDTH:].max() == 1
