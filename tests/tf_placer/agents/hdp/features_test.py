"""Features by hand: nothing lost, nothing overlapping."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.hdp.features import GROUP_SHAPE_WIDTH, GroupEmbedder, costliest_op, unit_features

SIZES = 6 * 4


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
        output_shapes=(((2, 3),), ((),), ((4,), (5, 6, 7, 8)), ((9,) * 6,), tuple((n,) for n in range(11, 18))),
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
    sizes = unit_features(problem, 200, 3, seed=0).dense[:, :SIZES].reshape(4, 6, 4)
    log = lambda *dims: np.log1p(np.array(dims, np.float32)) / 10  # noqa: E731
    np.testing.assert_allclose(sizes[1, 0], [*log(4), -1, -1, -1], rtol=1e-6)
    np.testing.assert_allclose(sizes[1, 1], log(5, 6, 7, 8), rtol=1e-6)
    assert (sizes[1, 2:] == -1).all()
    np.testing.assert_allclose(sizes[2, 0], log(9, 9, 9, 9), rtol=1e-6)
    # Unit 3 has seven outputs: the sixth counts, the seventh has no column.
    np.testing.assert_allclose(sizes[3, :, 0], log(11, 12, 13, 14, 15, 16), rtol=1e-6)


def test_neighbors_are_ranks_padded_with_minus_one(problem):
    dense = unit_features(problem, 200, 3, seed=0).dense
    incoming, outgoing = dense[:, SIZES : SIZES + 6], dense[:, SIZES + 6 : SIZES + 12]
    # Breadth-first from unit 0: 0, 1, 2, 3 by number; ranks are divided by the 4 units.
    assert outgoing[0].tolist() == [0.25, 0.5, -1, -1, -1, -1]
    assert incoming[3].tolist() == [0.25, 0.5, -1, -1, -1, -1]
    assert (incoming[0] == -1).all() and (outgoing[3] == -1).all()


def test_features_are_of_a_size_that_networks_bear(problem):
    huge = dataclasses.replace(problem, output_shapes=(((2**31 - 1,) * 4,) * 6,) * 5)
    dense = unit_features(huge, 200, 5, seed=0).dense
    assert np.abs(dense).max() <= 2.2  # log(2^31) / 10 = 2.15


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
