"""m-TOPO: a share and the largest unit, then the next device."""

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.planners.m_sct import m_topo

CHAIN = [(i, i + 1) for i in range(5)]


@pytest.mark.parametrize(
    ("memory", "rows"),
    [
        ([1000, 1000], [[0, 0, 0, 0, 1, 1]]),  # 60 / 2 + 10 = 40
        ([1000, 1000, 1000], [[0, 0, 0, 1, 1, 1]]),  # 60 / 3 + 10 = 30: the third one stays idle
        # No more than the device holds; and with half of the free (1030 - 60) / 1030 of it kept free, 15.
        ([30, 1000], [[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]]),
    ],
)
def test_a_chain_is_cut_at_a_share_and_the_largest_unit(memory, rows):
    problem = problem_of([1] * 6, CHAIN, cluster=sized_cluster(memory), resident_bytes=10)
    assert m_topo(problem).tolist() == rows


def test_a_much_slower_host_is_left_out_until_it_is_needed():
    costs = [[1, 1, 100]] * 6
    alike = problem_of(costs, CHAIN, cluster=small_cluster(3), resident_bytes=10)
    assert m_topo(alike).tolist() == [[0, 0, 0, 0, 1, 1]]
    needed = problem_of(costs, CHAIN, cluster=sized_cluster([20, 20, 1000]), resident_bytes=10)
    assert m_topo(needed)[0].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_unit_is_where_it_has_a_kernel():
    allowed = np.ones((6, 2), bool)
    allowed[5] = [True, False]
    problem = problem_of([1] * 6, CHAIN, resident_bytes=10, allowed=allowed)
    assert m_topo(problem).tolist() == [[0, 0, 0, 0, 1, 0]]
