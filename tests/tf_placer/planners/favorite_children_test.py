"""Favorite children: the linear program by hand, and in windows."""

import numpy as np
import pytest

from tests.tf_placer.planners.published_graphs import FORK
from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.planners.m_sct import favorite_children


def test_the_favorite_is_the_reader_that_the_step_waits_for():
    found = favorite_children(problem_of(*FORK), 100, 60)
    assert found.child.tolist() == [2, -1, -1]
    assert found.transfer_ns.tolist() == [100, 0, 0] and found.left_out == 0


def test_a_reader_is_the_favorite_of_one():
    # 2 reads 0 over 20 ns and 1 over 100: the fork turned around, with the same sums.
    found = favorite_children(problem_of([50, 40, 10], [(0, 2), (1, 2)], [10, 90]), 100, 60)
    assert found.child.tolist() == [-1, 2, -1]


def test_what_is_in_one_unit_has_no_need_of_a_favorite():
    # 2 is in the unit of 0, so 1 may be beside it as well.
    problem = problem_of(*FORK, unit_of_op=np.array([0, 1, 0], np.int32))
    assert favorite_children(problem, 100, 60).child.tolist() == [1, -1, -1]


def test_nobody_has_a_favorite_across_a_border():
    # A chain of four with two edges in a window: 0, 1, 2 and then 3 alone, whose edge from 2 is across.
    chain = problem_of([10] * 4, [(0, 1), (1, 2), (2, 3)], 5)
    assert favorite_children(chain, 100, 60).child.tolist() == [1, 2, 3, -1]
    assert favorite_children(chain, 2, 60).child.tolist() == [1, 2, -1, -1]


def test_without_time_nobody_has_a_favorite_and_that_is_told():
    found = favorite_children(problem_of(*FORK), 100, 0)
    assert (found.child == -1).all() and found.left_out == 1


@pytest.mark.parametrize("window", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_favorites_are_pairs_that_exist_and_exclude_each_other(window, seed):
    problem = random_problem(np.random.default_rng(seed), 25, 3)
    child = favorite_children(problem, window, 60).child
    pairs = set(zip(problem.op_graph.producer.tolist(), problem.op_graph.consumer.tolist(), strict=True))
    found = [(op, int(reader)) for op, reader in enumerate(child) if reader >= 0]
    assert set(found) <= pairs
    readers = [reader for _, reader in found]
    assert len(readers) == len(set(readers)) and (found or window == 1)
