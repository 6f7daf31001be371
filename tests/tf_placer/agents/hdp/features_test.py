"""Features by hand: nothing lost, nothing overlapping."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.hdp.features import GROUP_SHAPE_WIDTH, GroupEmbedder, costliest_op, unit_features

SIZES = 6 * 4


def standardized(rows):
    """Columns with mean 0 and deviation 1 over the units; constant ones are 0."""
    columns = np.array(rows, float).reshape(len(rows), -1)
    return (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-6)


@pytest.fixture
def problem():
    """Units 0 = {a}, 1 = {b, c}, 2 = {d}, 3 = {e}; edges a->b, a->d, c->e, d->e."""
    ops = problem_of([10, 1, 50, 20, 5], [(0, 1), (0, 3), (2, 4), (3, 4)], 1000, names=list("abcde"))
    return dataclasses.replace(
        ops,
        unit_of_op=np.array([0, 1, 1, 2, 3], np.int32),
        resident_bytes=np.zeros(4, np.int64),
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


def test_the_costliest_op_speaks_for_its_unit(problem):
    assert costliest_op(problem).tolist() == [0, 2, 3, 4]
    features = unit_features(problem, 200, 3, seed=0)
    assert [features.vocabulary[t] for t in features.type_of_unit] == ["Relu", "MatMul", "MatMul", "Relu"]
    assert features.type_of_unit.dtype == np.int32


def test_rare_types_share_the_last_entry(problem):
    features = unit_features(problem, 2, 3, seed=0)
    assert len(features.vocabulary) == 3 and "Const" not in features.vocabulary
    assert features.type_of_op[1] == 2


def test_sizes_of_six_outputs_of_four_dimensions(problem):
    sizes = np.full((4, 6, 4), -1.0)
    sizes[0, 0, :2] = np.log1p([2, 3]) / 10
    sizes[1, 0, 0] = np.log1p(4) / 10  # of op c, which costs more than b
    sizes[1, 1] = np.log1p([5, 6, 7, 8]) / 10
    sizes[2, 0] = np.log1p([9, 9, 9, 9]) / 10  # four of its six dimensions
    sizes[3, :, 0] = np.log1p([11, 12, 13, 14, 15, 16]) / 10  # six of its seven outputs, the sixth among them
    features = unit_features(problem, 200, 3, seed=0)
    np.testing.assert_allclose(features.dense[:, :SIZES], standardized(sizes), atol=1e-4)


def test_neighbors_are_ranks_padded_with_minus_one(problem):
    dense = unit_features(problem, 200, 3, seed=0).dense
    # Breadth-first from unit 0: 0, 1, 2, 3 by number; ranks are divided by the 4 units.
    none, pad = [-1] * 6, [-1] * 4
    incoming = [none, [0, -1, *pad], [0, -1, *pad], [0.25, 0.5, *pad]]
    outgoing = [[0.25, 0.5, *pad], [0.75, -1, *pad], [0.75, -1, *pad], none]
    np.testing.assert_allclose(dense[:, SIZES : SIZES + 6], standardized(incoming), atol=1e-4)
    np.testing.assert_allclose(dense[:, SIZES + 6 : SIZES + 12], standardized(outgoing), atol=1e-4)


def test_features_are_of_a_size_that_networks_bear(problem):
    shapes = (((2**31 - 1,) * 4,) * 6, *problem.output_shapes[1:])
    dense = unit_features(dataclasses.replace(problem, output_shapes=shapes), 200, 5, seed=0).dense
    # One of U standardized numbers is at most sqrt(U - 1).
    assert np.abs(dense).max() <= np.sqrt(3) + 1e-3


def test_group_embedding_by_hand(problem):
    features = unit_features(problem, 200, 3, seed=0)
    groups = 3
    embed = GroupEmbedder(problem, features, groups)
    # Units 0 and 3 in group 2, units 1 and 2 in group 0, group 1 empty.
    embedding = embed(np.array([2, 0, 0, 2], np.int32)).numpy()
    types = len(features.vocabulary)
    assert embedding.shape == (groups, types + GROUP_SHAPE_WIDTH + groups) == (groups, embed.width)
    counts = np.expm1(embedding[:, :types])
    column = {t: i for i, t in enumerate(features.vocabulary)}
    expected = np.zeros((groups, types))
    expected[0, column["MatMul"]], expected[0, column["Const"]], expected[2, column["Relu"]] = 2, 1, 2
    np.testing.assert_allclose(counts, expected, atol=1e-5)
    sizes = np.expm1(embedding[:, types : types + GROUP_SHAPE_WIDTH])
    np.testing.assert_allclose(sizes[0], features.group_columns[1] + features.group_columns[2], rtol=1e-5)
    np.testing.assert_allclose(sizes[2], features.group_columns[0] + features.group_columns[3], rtol=1e-5)
    assert (embedding[1] == 0).all()
    # All four edges run between groups 0 and 2.
    assert embedding[:, -groups:].tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_group_adjacency_keeps_every_edge():
    # A hub read by 30 units: the old open-source file kept one edge of them.
    problem = problem_of([1] * 31, [(0, u) for u in range(1, 31)], 1000)
    embed = GroupEmbedder(problem, unit_features(problem, 200, 3, seed=0), 31)
    adjacency = embed(np.arange(31, dtype=np.int32)).numpy()[:, -31:]
    expected = np.zeros((31, 31))
    expected[0, 1:] = expected[1:, 0] = 1
    np.testing.assert_array_equal(adjacency, expected)
