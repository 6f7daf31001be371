"""Transfer times: by hand, and as the simulator has them."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import LATENCY_NS, problem_of, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.op_graph import TransferTimes


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
