"""Tensors, the graph between ops and transfer times: by hand, and against slow obvious ways to the same numbers."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import LATENCY_NS, problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.problem.op_graph import TransferTimes, tensor_table

# Op 0 makes a tensor of 100 bytes for 1 and 2, and another of 30 for 2; 1 and 2 feed 3 with 20 bytes each.
EDGES = [(0, 1), (0, 2), (0, 2), (1, 3), (2, 3)]
DIAMOND = {"edges": EDGES, "edge_bytes": [100, 100, 30, 20, 20], "edge_tensor": [0, 0, 1, 2, 3]}


def diamond(compute_ns=(10, 50, 40, 5)):
    return problem_of(list(compute_ns), **DIAMOND)


def test_edges_are_one_for_each_tensor_and_reader():
    graph = diamond().op_graph
    edges = zip(graph.producer.tolist(), graph.consumer.tolist(), graph.edge_bytes.tolist(), strict=True)
    assert list(edges) == [(0, 1, 100), (0, 2, 100), (0, 2, 30), (1, 3, 20), (2, 3, 20)]
    assert graph.tensor.tolist() == [0, 0, 1, 2, 3]


def test_rows_are_what_an_op_makes_and_reads():
    graph = diamond().op_graph
    assert graph.out_offset.tolist() == [0, 3, 4, 5, 5]
    assert graph.in_offset.tolist() == [0, 0, 1, 3, 5]
    assert graph.in_edge.tolist() == [0, 1, 2, 3, 4]
    assert [graph.predecessors(op).tolist() for op in range(4)] == [[], [0], [0], [1, 2]]
    assert [graph.successors(op).tolist() for op in range(4)] == [[1, 2], [3], [3], []]
    assert graph.readers() == [[1, 2], [2], [3], [3]]
    assert graph.inputs() == [[], [0], [0, 1], [2, 3]]


def test_levels_by_hand():
    graph = diamond().op_graph
    # To 3 it is 10 + 50 over 1; from 0 it is 10 + 50 + 5.
    assert graph.top_level_ns.tolist() == [0, 10, 10, 60]
    assert graph.bottom_level_ns.tolist() == [65, 55, 45, 5]
    assert graph.top_level_ns.dtype == graph.bottom_level_ns.dtype == np.int64
    # 100 bytes take 110 ns, 30 take 40, 20 take 30: 5 + 30 + 50 from 1, 5 + 30 + 40 from 2, 10 + 110 more from 0.
    assert graph.mean_transfer_ns.tolist() == [110, 40, 30, 30]
    assert graph.bottom_level_with_transfers_ns.tolist() == [205, 85, 75, 5]


def test_levels_of_other_times():
    graph = diamond().op_graph
    # Over 2 it is longer now: 1 + 9 to 3, and where its second tensor takes 7, 1 + 7 + 10 from 0.
    assert graph.top_levels(np.array([1, 2, 9, 1])).tolist() == [0, 1, 1, 10]
    assert graph.bottom_levels(np.array([1, 2, 9, 1]), np.array([0, 7, 0, 0])).tolist() == [18, 3, 10, 1]


def test_an_op_takes_its_time_on_the_fastest_device_that_it_may_run_on():
    problem = problem_of([[9, 3], [9, 3]], [(0, 1)], allowed=np.array([[True, False], [True, True]]))
    assert problem.op_graph.bottom_level_ns.tolist() == [12, 3]


def longest_ways(problem, tensor_ns):
    """Top and bottom levels over all paths, by brute force."""
    fastest = problem.fastest_ns().tolist()
    edges = [
        (int(problem.tensor_producer[t]), int(op), tensor_ns[t])
        for t, (a, b) in enumerate(itertools.pairwise(problem.consumer_offset.tolist()))
        for op in problem.consumer_op[a:b]
    ]

    def top(op):
        return max((top(a) + fastest[a] + ns for a, b, ns in edges if b == op), default=0)

    def bottom(op):
        return fastest[op] + max((ns + bottom(b) for a, b, ns in edges if a == op), default=0)

    return [top(op) for op in range(problem.num_ops)], [bottom(op) for op in range(problem.num_ops)]


@pytest.mark.parametrize("seed", range(8))
def test_levels_are_the_longest_of_all_ways(seed):
    problem = random_problem(np.random.default_rng(seed), 9, 3)
    graph = problem.op_graph
    tops, bottoms = longest_ways(problem, [0] * len(problem.tensor_bytes))
    assert (graph.top_level_ns.tolist(), graph.bottom_level_ns.tolist()) == (tops, bottoms), f"seed {seed}"
    # 10 ns and 1 ns a byte on every link of a small cluster, whole numbers all of them.
    _, bottoms = longest_ways(problem, (10 + problem.tensor_bytes).tolist())
    assert graph.bottom_level_with_transfers_ns.tolist() == bottoms, f"seed {seed}"


def test_ops_that_nothing_joins():
    graph = problem_of([3, 4], []).op_graph
    assert graph.top_level_ns.tolist() == [0, 0] and graph.bottom_level_ns.tolist() == [3, 4]
    assert graph.bottom_level_ns.dtype == np.int64
    assert graph.successors(0).tolist() == [] and graph.inputs() == [[], []]


def test_on_one_device_transfers_take_no_time():
    problem = problem_of([1, 2], [(0, 1)], 100, small_cluster(1))
    assert problem.op_graph.bottom_level_with_transfers_ns.tolist() == [3, 2]


def test_it_is_made_once_for_a_problem():
    problem = diamond()
    assert problem.op_graph is problem.op_graph
    assert problem.op_graph.in_edge is problem.op_graph.in_edge
    # What list_schedule asks for is this graph and no other.
    list_schedule(problem)
    assert "bottom_level_with_transfers_ns" in vars(problem.op_graph)
    other = dataclasses.replace(problem, tensor_bytes=problem.tensor_bytes * 2)
    assert other.op_graph.edge_bytes.tolist() == (2 * problem.op_graph.edge_bytes).tolist()


def cluster_with_chores():
    """0 -> 1: 10 ns and 1 ns a byte, sending 3 ns and 2 ns a byte, receiving 4 ns and 0.5 ns a byte; 1 -> 0: plain."""
    cluster = small_cluster()
    link = dataclasses.replace(
        cluster.links[0], send_ns=3, send_ps_per_byte=2000, receive_ns=4, receive_ps_per_byte=500
    )
    return dataclasses.replace(cluster, links=(link, cluster.links[1]))


def test_latency_bandwidth_and_both_ends_count():
    times = TransferTimes.of(cluster_with_chores())
    # 10 + 3 + 4 + 100 * (1 + 2 + 0.5) = 367 one way, 10 + 100 back.
    assert times.between_ns(100, 0, 1) == 367
    assert times.between_ns(100, 1, 0) == 110
    assert times.between_ns(np.array([0, 100]), 1, 0).tolist() == [10, 110]


def test_nothing_crosses_to_where_it_is():
    times = TransferTimes.of(small_cluster())
    devices = np.arange(2)
    table = times.between_ns(np.array(5), devices[:, np.newaxis], devices)
    assert table.tolist() == [[0, LATENCY_NS + 5], [LATENCY_NS + 5, 0]]


def test_the_mean_is_over_links():
    times = TransferTimes.of(cluster_with_chores())
    # (367 + 110) / 2 for 100 bytes; (17 + 10) / 2 for none.
    assert times.mean_ns(np.array([100, 0])).tolist() == [238.5, 13.5]
    assert TransferTimes.of(small_cluster(1)).mean_ns(np.array([100, 0])).tolist() == [0, 0]


@pytest.mark.parametrize("num_bytes", [0, 2, 1000])
def test_the_simulator_takes_as_long(num_bytes):
    cluster = cluster_with_chores()
    problem = problem_of([50, 70], [(0, 1)], num_bytes, cluster)
    step_s = SimulatedEvaluator(problem).evaluate(np.array([[0, 1]])).runtime_s[0]
    crossing_ns = float(TransferTimes.of(cluster).between_ns(num_bytes, 0, 1))
    assert round(step_s * 1e9) == round(50 + crossing_ns + 70)


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
