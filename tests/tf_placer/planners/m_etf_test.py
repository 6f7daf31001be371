"""m-ETF: what can start first, where it can; by hand."""

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.planners.list_schedule import Schedule, heft
from tf_placer.planners.m_sct import EarliestStart, m_etf


def test_of_ops_that_can_start_the_longest_way_goes_first():
    # 5 and 4 at once, 3 on device 1 at 4, 2 on device 0 at 5, 1 on the first of two that are free at 7.
    assert m_etf(problem_of([5, 4, 3, 2, 1], [])).tolist() == [[0, 1, 1, 0, 0]]


def test_when_an_op_starts_counts_and_not_when_it_ends():
    # 0 is first, as 80 > 70. 1 starts at once on device 1, and ends at 155 there; on device 0 it would at 150. HEFT, by
    # means of 85 and 112.5, begins with 1 and is done at 90.
    problem = problem_of([[80, 90], [70, 155]], [])
    assert m_etf(problem).tolist() == [[0, 1]] and heft(problem).tolist() == [[1, 0]]


def test_a_reader_waits_at_home_for_less_than_crossing():
    # 1 and 2 read 0: device 0 is free again at 60, and 2 could be on device 1 at 10 + 10 + 30, or + 60.
    edges = [(0, 1), (0, 2)]
    assert m_etf(problem_of([10, 50, 40], edges, 30)).tolist() == [[0, 0, 1]]
    assert m_etf(problem_of([10, 50, 40], edges, 60)).tolist() == [[0, 0, 0]]


def test_the_channel_counts():
    # As before, but 0 has two more readers of 30 bytes each: device 1 has its first at 50 and could have the second at
    # 90. Device 0 runs 1 until 60 and then another one.
    problem = problem_of([10, 50, 45, 44], [(0, 1), (0, 2), (0, 3)], 30)
    assert m_etf(problem).tolist() == [[0, 0, 1, 0]]


def test_a_much_slower_device_runs_what_runs_nowhere_else():
    allowed = np.ones((4, 3), bool)
    allowed[3] = [False, False, True]
    problem = problem_of([[10, 10, 100]] * 4, [], cluster=small_cluster(3), allowed=allowed)
    assert m_etf(problem).tolist() == [[0, 1, 0, 2]]


def test_a_device_without_room_is_left_out():
    free = problem_of([9, 8, 7], [], resident_bytes=10, cluster=small_cluster(2))
    full = problem_of([9, 8, 7], [], resident_bytes=10, cluster=sized_cluster([20, 10]))
    assert m_etf(free).tolist() == [[0, 1, 1]]
    assert m_etf(full)[-1].tolist() == [0, 1, 0]


@pytest.mark.parametrize("seed", range(20))
def test_every_op_is_run_once_also_where_nothing_has_room(seed, monkeypatch):
    problem = random_problem(np.random.default_rng(seed), 30, 3)
    committed, commit = [], Schedule.commit
    monkeypatch.setattr(Schedule, "commit", lambda self, op: committed.append(op) or commit(self, op))
    for room in (10**6, 7, 0):
        committed.clear()
        need = np.full(problem.num_units, 3)
        schedule = Schedule(problem, need, np.full(3, room), np.array([0, 2]))
        EarliestStart(problem, schedule).run()
        said_nothing = {op for op in range(30) if schedule._is_free[op]}
        assert len(committed) == len(set(committed)) and set(committed) | said_nothing == set(range(30))
        position = {op: at for at, op in enumerate(committed)}
        graph = problem.op_graph
        assert all(
            position[a] < position[b]
            for a, b in zip(graph.producer.tolist(), graph.consumer.tolist(), strict=True)
            if a in position and b in position
        )
