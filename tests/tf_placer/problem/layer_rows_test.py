"""Tests the rows of a table of layers: they add up, and there are no more than there is room for."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.problem.layers import layer_rows, layers_of

NAMES = ["a/x/1", "a/x/2", "a/y/1", "b/1", "b/2", "alone"]


def rows_of(row, most=30, **more):
    chain = [(op, op + 1) for op in range(4)]
    problem = problem_of(
        [1, 2, 4, 8, 16, 0], chain, 10, names=NAMES, resident_bytes=[1, 2, 4, 8, 16, 32], **more
    )
    return problem, layer_rows(problem, layers_of(problem), np.array(row, np.int32), most)


def test_a_row_has_all_that_is_inside_it() -> None:
    problem, rows = rows_of([0, 1, 0, 1, 1, 0])
    found = {
        row.name: (row.num_ops, row.compute_ns.tolist(), row.resident_bytes, row.output_bytes) for row in rows
    }
    assert found == {
        "a": (3, [5, 2], 7, 30),
        "a/x": (2, [1, 2], 3, 20),
        "a/y": (1, [4, 0], 4, 10),
        "b": (2, [0, 24], 24, 10),
        "(no layer)": (1, [0, 0], 32, 0),
    }
    assert [row.depth for row in rows] == [0, 1, 1, 0, 0]
    labels = problem.cluster.labels
    parted = ["GPU:0 71.4%, GPU:1 28.6%", "GPU:1 66.7%, GPU:0 33.3%"]
    assert [row.on(labels) for row in rows] == [*parted, "GPU:0", "GPU:1", "GPU:0"]


def test_ops_that_cost_nothing_are_counted_where_they_are() -> None:
    _, rows = rows_of([0, 0, 0, 1, 1, 0])
    names = ["g", "h"]
    assert [row.on(names) for row in rows] == ["g", "g", "g", "h", "g"]
    free = problem_of([1, 0], [(0, 1)], names=["a/1", "a/2"])
    assert layer_rows(free, layers_of(free), np.array([0, 1], np.int32))[0].on(names) == "g, 1 ops on h"


@pytest.mark.parametrize("most", range(1, 7))
def test_there_are_no_more_rows_than_there_is_room_for_and_the_tree_adds_up(most: int) -> None:
    _, rows = rows_of([0, 1, 0, 1, 1, 0], most)
    assert 1 <= len(rows) <= most
    assert sum(row.num_ops for row in rows if row.depth == 0) == 6


def test_what_takes_least_is_one_row() -> None:
    _, rows = rows_of([0] * 6, most=2)
    assert [(row.name, row.num_ops) for row in rows] == [("b", 2), ("(2 more)", 4)]
