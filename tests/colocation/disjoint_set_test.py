"""DisjointSet against the obvious: sets of Python integers."""

import numpy as np
import pytest

from colocation.units import DisjointSet


def test_union_reports_whether_it_joined():
    sets = DisjointSet(3)
    assert sets.union(0, 2)
    assert not sets.union(2, 0)
    assert sets.find(0) == sets.find(2) != sets.find(1)


def test_labels_follow_the_smallest_element():
    sets = DisjointSet(5)
    sets.union(4, 1)
    sets.union(3, 0)
    # {0, 3}, {1, 4}, {2}: smallest elements 0, 1, 2.
    np.testing.assert_array_equal(sets.labels(), [0, 1, 2, 0, 1])


def test_empty():
    assert DisjointSet(0).labels().shape == (0,)


@pytest.mark.parametrize("seed", range(20))
def test_equals_naive_partition(seed: int):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 40))
    sets, naive = DisjointSet(size), [{i} for i in range(size)]
    for a, b in rng.integers(size, size=(size, 2)).tolist():
        assert sets.union(a, b) == (naive[a] is not naive[b])
        joined = naive[a] | naive[b]
        for element in joined:
            naive[element] = joined
    labels = sets.labels()
    for a in range(size):
        for b in range(size):
            assert (labels[a] == labels[b]) == (b in naive[a]), f"seed {seed}: {a}, {b}"


def test_steps_grow_linearly_on_a_chain():
    def steps_per_element(size: int) -> float:
        sets = DisjointSet(size)
        for i in range(size - 1):
            sets.union(i, i + 1)
        sets.labels()
        return sets.steps / size

    # Each find is at least one step: 2 a union and 1 a label. Path halving keeps the rest constant.
    assert 3 - 1e-2 <= steps_per_element(1_000) <= 6
    assert steps_per_element(100_000) <= 1.1 * steps_per_element(1_000)
