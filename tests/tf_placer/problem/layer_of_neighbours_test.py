"""Tests the layers that ops take from what they read and feed."""

import numpy as np

from tf_placer.problem.layers import layer_of_neighbours

A, B, NONE = ("a",), ("b",), ()


def found(given, edges):
    pairs = np.array(edges, np.int32).reshape(-1, 2)
    return layer_of_neighbours(given, pairs[:, 0], pairs[:, 1])


def test_an_op_is_in_the_layer_of_all_that_it_reads() -> None:
    assert found([A, NONE, NONE, B], [(0, 1), (1, 2), (2, 3)]) == [A, A, A, B]


def test_an_op_whose_inputs_disagree_is_in_the_layer_that_it_feeds() -> None:
    assert found([A, B, NONE, NONE, A], [(0, 2), (1, 2), (2, 3), (3, 4)]) == [A, B, A, A, A]


def test_a_constant_disagrees_with_nothing_and_goes_where_it_is_read() -> None:
    assert found([NONE, A, NONE], [(0, 2), (1, 2)]) == [A, A, A]


def test_where_all_disagree_there_is_no_layer() -> None:
    assert found([A, B, NONE, A, B], [(0, 2), (1, 2), (2, 3), (2, 4)])[2] == NONE


def test_an_op_without_neighbours_has_none() -> None:
    assert found([NONE], []) == [NONE]
