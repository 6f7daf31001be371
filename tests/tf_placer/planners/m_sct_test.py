"""m-ETF, m-SCT with favorite children, and m-TOPO, by hand."""

import logging

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.planners.published_graphs import FORK
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.planners.list_schedule import Schedule, heft
from tf_placer.planners.m_sct import EarliestStart, MSctConfig, favorite_children, m_etf, m_sct, m_topo

READERS = [(0, 1), (0, 2)]
CHAIN = [(i, i + 1) for i in range(5)]
THREE_DEVICES = small_cluster(3)
LAST_ON_2 = np.array([[True] * 3] * 3 + [[False, False, True]])


@pytest.mark.parametrize(
    ("problem", "rows"),
    [
        # 5 and 4 at once, 3 on device 1 at 4, 2 on device 0 at 5, 1 on the first of two that are free at 7.
        (problem_of([5, 4, 3, 2, 1], []), [[0, 1, 1, 0, 0]]),
        # 1 and 2 read 0: device 0 is free again at 60, and 2 could be on device 1 at 10 + 10 + 30, or + 60.
        (problem_of([10, 50, 40], READERS, 30), [[0, 0, 1]]),
        (problem_of([10, 50, 40], READERS, 60), [[0, 0, 0]]),
        # As before, but 0 has two more readers of 30 bytes each: device 1 has its first at 50 and could have the second
        # at 90. Device 0 runs 1 until 60 and then another one.
        (problem_of([10, 50, 45, 44], [*READERS, (0, 3)], 30), [[0, 0, 1, 0]]),
        # A much slower device runs what runs nowhere else.
        (problem_of([[10, 10, 100]] * 4, [], cluster=THREE_DEVICES, allowed=LAST_ON_2), [[0, 1, 0, 2]]),
        # A device without room is left out.
        (problem_of([9, 8, 7], [], resident_bytes=10, cluster=small_cluster(2)), [[0, 1, 1]]),
    ],
)
def test_what_can_start_first_goes_where_it_can(problem, rows):
    assert m_etf(problem).tolist() == rows


def test_a_full_device_is_left_out():
    full = problem_of([9, 8, 7], [], resident_bytes=10, cluster=sized_cluster([20, 10]))
    assert m_etf(full)[-1].tolist() == [0, 1, 0]


def test_when_an_op_starts_counts_and_not_when_it_ends():
    # 0 is first, as 80 > 70. 1 starts at once on device 1, and ends at 155 there; on device 0 it would at 150. HEFT, by
    # means of 85 and 112.5, begins with 1 and is done at 90.
    problem = problem_of([[80, 90], [70, 155]], [])
    assert m_etf(problem).tolist() == [[0, 1]] and heft(problem).tolist() == [[1, 0]]


@pytest.mark.parametrize("seed", range(20))
def test_every_op_is_run_once_also_where_nothing_has_room(seed, monkeypatch):
    problem = random_problem(np.random.default_rng(seed), 30, 3)
    committed, commit = [], Schedule.commit
    monkeypatch.setattr(Schedule, "commit", lambda self, op: committed.append(op) or commit(self, op))
    for room in (10**6, 7, 0):
        committed.clear()
        schedule = Schedule(problem, np.full(problem.num_units, 3), np.full(3, room), np.array([0, 2]))
        EarliestStart(problem, schedule).run()
        said_nothing = {op for op in range(30) if schedule._is_free[op]}
        assert len(committed) == len(set(committed)) and set(committed) | said_nothing == set(range(30))
        position = {op: at for at, op in enumerate(committed)}
        edges = zip(problem.op_graph.producer.tolist(), problem.op_graph.consumer.tolist(), strict=True)
        assert all(position[a] < position[b] for a, b in edges if a in position and b in position)


def test_a_device_takes_the_favorite_of_what_it_ran():
    # m-ETF takes 1 of 50 ns after 0, and 2 then waits at home until 60, for it crosses until 110: 100 in all. The
    # favorite of 0 is 2: it runs from 10 to 50, and 1 crosses by 30 and ends at 80.
    problem = problem_of(*FORK)
    assert m_etf(problem).tolist() == [[0, 0, 0]]
    assert m_sct(problem).tolist() == [[0, 1, 0]]


def test_a_device_stays_awake_for_a_favorite_that_is_not_ready():
    # 0 ends at 10 and 1 at 30 on the other device; 2 reads both, over 10 + 200 and 10 + 40. Its favorite parent is 0,
    # the dearer one, so it waits there until 80. 3 reads 0 over 10 + 100, is ready at 10, and could be anywhere at 120,
    # before device 0 need not wait any longer at 220: it runs there at 120 at the earliest, after 2.
    (row,) = m_sct(problem_of([10, 30, 20, 5], [(0, 2), (1, 2), (0, 3)], [200, 40, 100]))
    assert row[0] == row[2] != row[1]


def test_without_time_it_is_m_etf_and_says_so(caplog):
    problem = branches_problem(3, 4)
    with caplog.at_level(logging.WARNING):
        rows = m_sct(problem, MSctConfig(limit_s=0.0))
    assert rows.tolist() == m_etf(problem).tolist()
    assert "limit_s=0 ended before 1 of the linear programs" in caplog.text
    without = favorite_children(problem_of(*FORK), 100, 0)
    assert (without.child == -1).all() and without.left_out == 1


FOUR_IN_A_ROW = problem_of([10] * 4, [(0, 1), (1, 2), (2, 3)], 5)


@pytest.mark.parametrize(
    ("problem", "window", "child"),
    [
        # The favorite is the reader that the step waits for.
        (problem_of(*FORK), 100, [2, -1, -1]),
        # A reader is the favorite of one: 2 reads 0 over 20 ns and 1 over 100, the fork turned around.
        (problem_of([50, 40, 10], [(0, 2), (1, 2)], [10, 90]), 100, [-1, 2, -1]),
        # What is in one unit has no need of a favorite: 2 is in the unit of 0, so 1 may be beside it as well.
        (problem_of(*FORK, unit_of_op=np.array([0, 1, 0], np.int32)), 100, [1, -1, -1]),
        # None is across a border: with two edges in a window 0, 1, 2 and then 3 alone, whose edge from 2 is across.
        (FOUR_IN_A_ROW, 100, [1, 2, 3, -1]),
        (FOUR_IN_A_ROW, 2, [1, 2, -1, -1]),
    ],
)
def test_favorite_children_by_hand(problem, window, child):
    favorites = favorite_children(problem, window, 60)
    assert favorites.child.tolist() == child and favorites.left_out == 0


def test_a_favorite_takes_the_mean_transfer():
    assert favorite_children(problem_of(*FORK), 100, 60).transfer_ns.tolist() == [100, 0, 0]


@pytest.mark.parametrize("window", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_favorites_are_pairs_that_exist_and_exclude_each_other(window, seed):
    problem = random_problem(np.random.default_rng(seed), 25, 3)
    child = favorite_children(problem, window, 60).child
    pairs = set(zip(problem.op_graph.producer.tolist(), problem.op_graph.consumer.tolist(), strict=True))
    favorites = [(op, int(reader)) for op, reader in enumerate(child) if reader >= 0]
    assert set(favorites) <= pairs
    readers = [reader for _, reader in favorites]
    assert len(readers) == len(set(readers)) and (favorites or window == 1)


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
    alike = problem_of(costs, CHAIN, cluster=THREE_DEVICES, resident_bytes=10)
    assert m_topo(alike).tolist() == [[0, 0, 0, 0, 1, 1]]
    needed = problem_of(costs, CHAIN, cluster=sized_cluster([20, 20, 1000]), resident_bytes=10)
    assert m_topo(needed)[0].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_unit_is_where_it_has_a_kernel():
    allowed = np.ones((6, 2), bool)
    allowed[5] = [True, False]
    problem = problem_of([1] * 6, CHAIN, resident_bytes=10, allowed=allowed)
    assert m_topo(problem).tolist() == [[0, 0, 0, 0, 1, 0]]
