"""Edges are grouped to tensors."""

import numpy as np

from tf_placer.problem.op_graph import tensor_table


def test_edges_are_grouped_by_producer_and_tensor():
    edges = np.array([[3, 4], [0, 2], [0, 1], [0, 2], [0, 3]])
    table = tensor_table(edges, np.array([0, 5, 5, 5, 9]), np.array([8, 10, 30, 20, 40]))
    # Op 0's tensor 5 is read by 1 and (twice) by 2 and has its largest edge's bytes; then its tensor 9, then
    # op 3's.
    assert table.producer.tolist() == [0, 0, 3]
    assert table.num_bytes.tolist() == [30, 40, 8]
    assert table.consumer_offset.tolist() == [0, 2, 3, 4]
    assert table.consumer_op.tolist() == [1, 2, 3, 4]


def test_a_self_edge_is_a_tensor_without_readers():
    table = tensor_table(np.array([[0, 0], [0, 1], [1, 1]]), np.array([2, 2, 0]), np.array([7, 7, 9]))
    assert table.num_bytes.tolist() == [7, 9]
    assert table.consumer_offset.tolist() == [0, 1, 1]
    assert table.consumer_op.tolist() == [1]


def test_no_edges():
    table = tensor_table(np.zeros((0, 2), int), np.zeros(0, int), np.zeros(0, np.int64))
    assert (len(table.producer), table.consumer_offset.tolist(), len(table.consumer_op)) == (0, [0], 0)
