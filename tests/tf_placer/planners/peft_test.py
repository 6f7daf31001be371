"""PEFT: the paper's own schedule, its table by hand, and memory."""

import numpy as np

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.planners.published_graphs import TIMES, last_end, peft_graph
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.planners.list_schedule import heft, optimistic_cost_table, peft


def test_the_papers_schedule(monkeypatch):
    # Arabnejad & Barbosa: 122, where HEFT takes 133.
    assert last_end(peft_graph(), monkeypatch, peft)[1] == 122 * TIMES


def test_the_table_by_hand():
    # 2 is the exit. 1: on device 0 at best min(7, 9 + 12) = 7, on device 1 min(9, 7 + 12) = 9; 12 = 10 + 2 bytes.
    # 0: reader 1 takes 20 + 7 or 3 + 9, so on device 0 min(27, 12 + 15) = 27, on device 1 min(12, 27 + 15) = 12.
    problem = problem_of([[1, 1], [20, 3], [7, 9]], [(0, 1), (1, 2)], [5, 2])
    assert optimistic_cost_table(problem).tolist() == [[27, 12], [7, 9], [0, 0]]


def test_the_longest_of_several_readers_counts():
    # 1 or 2 after 0, each for itself where it is best: max(4, 6) here, max(min(9, 4 + 11), 6) there.
    problem = problem_of([[1, 1], [4, 9], [6, 6]], [(0, 1), (0, 2)], 1, edge_tensor=[0, 0])
    assert optimistic_cost_table(problem)[0].tolist() == [6, 9]


def test_where_an_op_may_not_be_nothing_is_expected_of_it():
    # 1 only runs on device 1: from device 0 it takes 10 + 1 more.
    allowed = np.array([[True, True], [False, True]])
    problem = problem_of([[1, 1], [4, 4]], [(0, 1)], 1, allowed=allowed)
    assert optimistic_cost_table(problem)[0].tolist() == [15, 4]


def test_it_looks_further_than_where_an_op_ends_first():
    # 0 ends first on device 0, by 5; but its reader takes 500 there, and 10 + 100 to cross.
    problem = problem_of([[10, 15], [500, 20]], [(0, 1)], 100)
    assert heft(problem)[0].tolist()[0] == 0
    assert peft(problem).tolist() == [[1, 1]]


def test_a_device_without_room_is_left_out():
    problem = problem_of([9, 8, 7], [], resident_bytes=10, cluster=sized_cluster([20, 10]))
    assert peft(problem)[-1].tolist().count(1) == 1
