"""The graph between units, distances in it, orders of units and devices, on graphs drawn by hand."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import LATENCY_NS, problem_of, small_cluster
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import preset_names
from tf_placer.problem.unit_graph import (
    breadth_first_rank,
    fastest_devices,
    landmark_distances,
    local_edges,
    order_of_use,
    slowness,
    unit_graph,
)


def lists(neighbors):
    return [n.tolist() for n in neighbors]


def test_parallel_edges_add_up_and_edges_inside_a_unit_vanish():
    problem = problem_of([1] * 4, [(0, 1), (0, 1), (0, 2), (1, 3), (2, 3)], [10, 20, 40, 80, 160])
    # Units {0}, {1, 2}, {3}: 0 -> {1, 2} carries 10 + 20 + 40, {1, 2} -> 3 carries 80 + 160.
    graph = unit_graph(
        dataclasses.replace(
            problem,
            unit_of_op=np.array([0, 1, 1, 2], np.int32),
            resident_bytes=np.zeros(3, np.int64),
            allowed=np.ones((3, 2), bool),
        )
    )
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.edge_bytes.tolist() == [70, 240]
    merged = dataclasses.replace(
        problem,
        unit_of_op=np.zeros(4, np.int32),
        resident_bytes=np.zeros(1, np.int64),
        allowed=np.ones((1, 2), bool),
    )
    assert unit_graph(merged).edges.shape == (0, 2)


def test_neighbors_by_direction():
    graph = unit_graph(problem_of([1] * 4, [(0, 2), (1, 2), (2, 3)]))
    assert lists(graph.neighbors("out")) == [[2], [2], [3], []]
    assert lists(graph.neighbors("in")) == [[], [], [0, 1], [2]]
    assert lists(graph.neighbors("both")) == [[2], [2], [0, 1, 3], [2]]


def linked(latency_ns=LATENCY_NS, bytes_per_s=1e9, **chores):
    """Two devices with such links."""
    cluster = small_cluster()
    links = tuple(
        dataclasses.replace(link, latency_ns=latency_ns, bytes_per_s=bytes_per_s, **chores)
        for link in cluster.links
    )
    return dataclasses.replace(cluster, links=links)


def test_thin_edges_do_not_count_as_near():
    # 50,000 ns at 1 byte a ns: a 750th of that is 66.7 bytes.
    problem = problem_of([1] * 3, [(0, 1), (1, 2)], [66, 67], cluster=linked(50_000))
    local = local_edges(problem, unit_graph(problem))
    assert local.edges.tolist() == [[1, 2]]
    assert local.edge_bytes.tolist() == [67]


@pytest.mark.parametrize(
    ("links", "fewest"),
    [
        ({}, 10 / 750),
        ({"latency_ns": 0}, 0),
        ({"latency_ns": 5000, "bytes_per_s": 1e10}, 50_000 / 750),
        # 1 + 2 + 2 ns a byte, 1000 + 200 + 300 ns a message.
        (
            {
                "latency_ns": 1000, "send_ns": 200, "receive_ns": 300,
                "send_ps_per_byte": 2000, "receive_ps_per_byte": 2000,
            },
            300 / 750,
        ),
    ],
)  # fmt: skip
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


def test_distances_are_a_matter_of_the_seed():
    graph = unit_graph(problem_of([1] * 20, [(i, i + 1) for i in range(19)]))
    same = [landmark_distances(graph, 4, np.random.default_rng(5)) for _ in range(2)]
    np.testing.assert_array_equal(same[0], same[1])
    assert (landmark_distances(graph, 4, np.random.default_rng(6)) != same[0]).any()


def test_a_graph_of_one_unit():
    graph = unit_graph(problem_of([1], []))
    assert lists(graph.neighbors("both")) == [[]]
    assert breadth_first_rank(graph).tolist() == [0]
    assert landmark_distances(graph, 2, np.random.default_rng(0)).tolist() == [[0.0, 0.0]]


def test_a_chain_is_in_order_whatever_its_numbers():
    problem = problem_of([1] * 4, [(2, 0), (0, 3), (3, 1)])
    assert order_of_use(problem).tolist() == [2, 0, 3, 1]


def test_a_variable_stands_before_its_first_reader_and_not_where_it_is_updated():
    # Ops 0 to 5 are a chain; op 6 is a read that op 3 reads, op 7 its update by op 5; both are one unit.
    problem = problem_of([1] * 8, [*((i, i + 1) for i in range(5)), (6, 3), (5, 7)])
    unit_of_unit = np.array([0, 1, 2, 3, 4, 5, 6, 6])
    variable = dataclasses.replace(
        problem,
        unit_of_op=unit_of_unit[problem.unit_of_op].astype(np.int32),
        resident_bytes=np.zeros(7, np.int64),
        allowed=np.ones((7, 2), bool),
    )
    order = order_of_use(variable).tolist()
    assert order.index(2) < order.index(6) <= order.index(3) + 1 and order.index(6) < order.index(4)
    assert [unit for unit in order if unit != 6] == [0, 1, 2, 3, 4, 5]


def test_units_without_edges_keep_the_order_of_their_ops():
    assert order_of_use(problem_of([1] * 3, [])).tolist() == [0, 1, 2]


def test_the_fastest_device_is_first_also_where_it_cannot_run_everything():
    # Device 0 takes twice as long; device 1 cannot run the last two units, device 2 nothing.
    allowed = np.array([[True, True, False], [True, True, False], [True, False, False], [True, False, False]])
    problem = problem_of([[2000, 1000, 1]] * 4, [], cluster=small_cluster(3), allowed=allowed)
    assert fastest_devices(problem).tolist() == [1, 0, 2]
    # 8000 ns for what takes 1000 twice and, having no choice, 2000 twice.
    np.testing.assert_allclose(slowness(problem), [8001 / 6001, 1.0, np.inf])
