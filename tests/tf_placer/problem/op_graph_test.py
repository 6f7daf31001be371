"""Graphs between ops and between units, transfer times, and the multi-branch problem, against slow obvious ways."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import (
    LATENCY_NS,
    altered,
    multi_branch_bound_s,
    multi_branch_problem,
    problem_of,
    random_problem,
    small_cluster,
    without_overheads,
)
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import preset_names
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.problem.op_graph import TransferTimes, tensor_table
from tf_placer.problem.unit_graph import (
    breadth_first_rank,
    fastest_devices,
    landmark_distances,
    local_edges,
    order_of_use,
    slowness,
    unit_graph,
)

# Op 0 makes a tensor of 100 bytes for 1 and 2, and another of 30 for 2; 1 and 2 feed 3 with 20 bytes each.
EDGES = [(0, 1), (0, 2), (0, 2), (1, 3), (2, 3)]
DIAMOND = {"edges": EDGES, "edge_bytes": [100, 100, 30, 20, 20], "edge_tensor": [0, 0, 1, 2, 3]}


def diamond(compute_ns=(10, 50, 40, 5)):
    return problem_of(list(compute_ns), **DIAMOND)


def test_edges_are_one_for_each_tensor_and_reader_in_rows_of_what_an_op_makes_and_reads():
    graph = diamond().op_graph
    edges = zip(graph.producer.tolist(), graph.consumer.tolist(), graph.edge_bytes.tolist(), strict=True)
    assert list(edges) == [(0, 1, 100), (0, 2, 100), (0, 2, 30), (1, 3, 20), (2, 3, 20)]
    assert graph.tensor.tolist() == [0, 0, 1, 2, 3]

    assert graph.out_offset.tolist() == [0, 3, 4, 5, 5]
    assert graph.in_offset.tolist() == [0, 0, 1, 3, 5]
    assert graph.in_edge.tolist() == [0, 1, 2, 3, 4]
    assert [graph.predecessors(op).tolist() for op in range(4)] == [[], [0], [0], [1, 2]]
    assert [graph.successors(op).tolist() for op in range(4)] == [[1, 2], [3], [3], []]
    assert graph.readers() == [[1, 2], [2], [3], [3]]
    assert graph.inputs() == [[], [0], [0, 1], [2, 3]]


def test_levels_by_hand_of_the_problems_times_and_of_others():
    graph = diamond().op_graph
    # To 3 it is 10 + 50 over 1; from 0 it is 10 + 50 + 5.
    assert graph.top_level_ns.tolist() == [0, 10, 10, 60]
    assert graph.bottom_level_ns.tolist() == [65, 55, 45, 5]
    assert graph.top_level_ns.dtype == graph.bottom_level_ns.dtype == np.int64
    # 100 bytes take 110 ns, 30 take 40, 20 take 30: 5 + 30 + 50 from 1, 5 + 30 + 40 from 2, 10 + 110 more from 0.
    assert graph.mean_transfer_ns.tolist() == [110, 40, 30, 30]
    assert graph.bottom_level_with_transfers_ns.tolist() == [205, 85, 75, 5]

    # Over 2 it is longer with other times: 1 + 9 to 3, and where its second tensor takes 7, 1 + 7 + 10 from 0.
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
    chores = {"send_ns": 3, "send_ps_per_byte": 2000, "receive_ns": 4, "receive_ps_per_byte": 500}
    return altered(small_cluster(), links={name: [chore, 0] for name, chore in chores.items()})


def test_latency_bandwidth_and_both_ends_count():
    times = TransferTimes.of(cluster_with_chores())
    # 10 + 3 + 4 + 100 * (1 + 2 + 0.5) = 367 one way, 10 + 100 back.
    assert times.between_ns(100, 0, 1) == 367
    assert times.between_ns(100, 1, 0) == 110
    assert times.between_ns(np.array([0, 100]), 1, 0).tolist() == [10, 110]
    # The mean is over links: (367 + 110) / 2 for 100 bytes; (17 + 10) / 2 for none.
    assert times.mean_ns(np.array([100, 0])).tolist() == [238.5, 13.5]
    assert TransferTimes.of(small_cluster(1)).mean_ns(np.array([100, 0])).tolist() == [0, 0]


def test_nothing_crosses_to_where_it_is():
    times = TransferTimes.of(small_cluster())
    devices = np.arange(2)
    table = times.between_ns(np.array(5), devices[:, np.newaxis], devices)
    assert table.tolist() == [[0, LATENCY_NS + 5], [LATENCY_NS + 5, 0]]


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


def lists(neighbors):
    return [n.tolist() for n in neighbors]


def test_parallel_edges_add_up_and_edges_inside_a_unit_vanish():
    ops = [1] * 4, [(0, 1), (0, 1), (0, 2), (1, 3), (2, 3)], [10, 20, 40, 80, 160]
    # Units {0}, {1, 2}, {3}: 0 -> {1, 2} carries 10 + 20 + 40, {1, 2} -> 3 carries 80 + 160.
    graph = unit_graph(problem_of(*ops, unit_of_op=[0, 1, 1, 2]))
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.edge_bytes.tolist() == [70, 240]
    assert unit_graph(problem_of(*ops, unit_of_op=[0] * 4)).edges.shape == (0, 2)


def test_neighbors_by_direction():
    graph = unit_graph(problem_of([1] * 4, [(0, 2), (1, 2), (2, 3)]))
    assert lists(graph.neighbors("out")) == [[2], [2], [3], []]
    assert lists(graph.neighbors("in")) == [[], [], [0, 1], [2]]
    assert lists(graph.neighbors("both")) == [[2], [2], [0, 1, 3], [2]]


def linked(latency_ns=LATENCY_NS, **more):
    """Two devices with such links."""
    return altered(small_cluster(), links={"latency_ns": latency_ns, **more})


def test_thin_edges_do_not_count_as_near():
    # 50,000 ns at 1 byte a ns: a 750th of that is 66.7 bytes.
    problem = problem_of([1] * 3, [(0, 1), (1, 2)], [66, 67], cluster=linked(50_000))
    local = local_edges(problem, unit_graph(problem))
    assert local.edges.tolist() == [[1, 2]]
    assert local.edge_bytes.tolist() == [67]


CHORES_PS = ("send_ps_per_byte", "receive_ps_per_byte")


@pytest.mark.parametrize(
    ("links", "fewest"),
    [
        ({}, 10 / 750),
        ({"latency_ns": 0}, 0),
        ({"latency_ns": 5000, "bytes_per_s": 1e10}, 50_000 / 750),
        # 1 + 2 + 2 ns a byte, 1000 + 200 + 300 ns a message.
        ({"latency_ns": 1000, "send_ns": 200, "receive_ns": 300} | dict.fromkeys(CHORES_PS, 2000), 300 / 750),
    ],
)
def test_what_is_noticed_is_a_matter_of_what_a_message_costs(links, fewest):
    assert float(linked(**links).noticeable_bytes()) == pytest.approx(fewest)


def test_described_machines_notice_more_than_a_scalar_and_less_than_a_layers_bias():
    for name in preset_names():
        assert 8 < Cluster.preset(name).noticeable_bytes() < 512, name


def test_edges_without_bytes_are_thin_and_one_device_has_no_links():
    problem = problem_of([1] * 3, [(0, 1), (1, 2)], [0, 1], cluster=linked(0))
    assert local_edges(problem, unit_graph(problem)).edges.tolist() == [[1, 2]]
    assert small_cluster(1).noticeable_bytes() == 0


def test_breadth_first_rank_by_hand():
    # 0 - 3 - 1 and 0 - 4, and 2 by itself. From 0: 0, 3, 4, then 3's other neighbor 1; 2 starts anew.
    graph = unit_graph(problem_of([1] * 5, [(0, 3), (1, 3), (0, 4)]))
    assert breadth_first_rank(graph).tolist() == [0, 3, 4, 1, 2]


def test_distances_on_a_path_are_hops_over_the_longest():
    graph = unit_graph(problem_of([1] * 5, [(0, 1), (1, 2), (2, 3), (3, 4)]))
    distances = landmark_distances(graph, 3, np.random.default_rng(0))
    assert distances.shape == (5, 3) and distances.dtype == np.float32
    for column in distances.T:
        landmark = int(np.argmin(column))
        hops = np.abs(np.arange(5) - landmark)
        np.testing.assert_allclose(column, hops / hops.max(), rtol=1e-6)
    assert len({int(np.argmin(c)) for c in distances.T}) > 1, "landmarks must spread"


def test_what_a_landmark_does_not_reach_is_at_two():
    graph = unit_graph(problem_of([1] * 3, [(0, 1)]))
    distances = landmark_distances(graph, 8, np.random.default_rng(0))
    assert (distances[2][distances[0] < 2] == 2).all()
    # Both components get a landmark, and an isolated one is at distance 0 of itself.
    assert (distances[:2] < 2).any() and (distances[2] == 0).any()


def test_a_graph_of_one_unit():
    graph = unit_graph(problem_of([1], []))
    assert lists(graph.neighbors("both")) == [[]]
    assert breadth_first_rank(graph).tolist() == [0]
    assert landmark_distances(graph, 2, np.random.default_rng(0)).tolist() == [[0.0, 0.0]]


def test_a_chain_is_in_order_whatever_its_numbers_and_ops_without_edges_by_number():
    assert order_of_use(problem_of([1] * 4, [(2, 0), (0, 3), (3, 1)])).tolist() == [2, 0, 3, 1]
    assert order_of_use(problem_of([1] * 3, [])).tolist() == [0, 1, 2]


def test_a_variable_stands_before_its_first_reader_and_not_where_it_is_updated():
    # Ops 0 to 5 are a chain; op 6 is a read that op 3 reads, op 7 its update by op 5; both are one unit.
    edges = [*((i, i + 1) for i in range(5)), (6, 3), (5, 7)]
    order = order_of_use(problem_of([1] * 8, edges, unit_of_op=[0, 1, 2, 3, 4, 5, 6, 6])).tolist()
    assert order.index(2) < order.index(6) <= order.index(3) + 1 and order.index(6) < order.index(4)
    assert [unit for unit in order if unit != 6] == [0, 1, 2, 3, 4, 5]


def test_the_fastest_device_is_first_also_where_it_cannot_run_everything():
    # Device 0 takes twice as long; device 1 cannot run the last two units, device 2 nothing.
    allowed = np.array([[True, True, False], [True, True, False], [True, False, False], [True, False, False]])
    problem = problem_of([[2000, 1000, 1]] * 4, [], cluster=small_cluster(3), allowed=allowed)
    assert fastest_devices(problem).tolist() == [1, 0, 2]
    # 8000 ns for what takes 1000 twice and, having no choice, 2000 twice.
    np.testing.assert_allclose(slowness(problem), [8001 / 6001, 1.0, np.inf])


# 1 MiB over PCIe 3.0 in models.toml: 5,000 ns + 1,048,576 bytes at 10 bytes a ns, rounded up.
CROSSING_NS = 5_000 + 104_858


@pytest.mark.parametrize(("branches", "depth"), [(3, 1), (1, 3), (2, 1)])
def test_no_placement_on_four_gpus_beats_the_bound_for_four(branches, depth):
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x4")), branches, depth)
    every = np.array(list(itertools.product(range(4), repeat=problem.num_units)), np.int32)
    runtime_s = SimulatedEvaluator(problem).evaluate(every).runtime_s
    assert runtime_s.min() >= multi_branch_bound_s(branches, depth, devices=4)
    # The bound knows how many devices there are: for one GPU it is the time of one GPU.
    assert runtime_s[0] == pytest.approx(multi_branch_bound_s(branches, depth, devices=1))


def test_half_of_eight_chains_of_six_ops_exceeds_the_bound_by_one_crossing():
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x2")))
    assert problem.num_units == 50
    # Source and the first half of the chains on GPU:0, the other half and the sink on GPU:1.
    half_and_half = np.repeat([[0, 1]], 1 + 4 * 6, axis=1)
    [runtime_s] = SimulatedEvaluator(problem).evaluate(half_and_half).runtime_s
    bound_s = multi_branch_bound_s()
    assert bound_s == pytest.approx(24.2e-3)
    assert bound_s < runtime_s < 1.03 * bound_s
    # GPU:1 starts when the source's tensor has crossed; all results of GPU:0 are there before it ends.
    assert runtime_s - bound_s == pytest.approx(CROSSING_NS / 1e9)


def test_the_host_cpu_may_run_nothing():
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x2")), branches=2, depth=2)
    on_cpu = np.zeros((problem.num_units, problem.num_units), np.int32)
    np.fill_diagonal(on_cpu, 2)
    assert SimulatedEvaluator(problem).evaluate(on_cpu).status.tolist() == [Status.ILLEGAL] * 6
