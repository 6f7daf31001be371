"""HEFT: the paper's own schedule, gaps, and memory."""

import numpy as np

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.planners.published_graphs import TIMES, heft_graph, last_end, peft_graph
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.planners.list_schedule import heft


def test_the_papers_schedule(monkeypatch):
    # Figure 3a of Topcuoglu et al.: tasks 2 and 8 on the first processor; 4, 6, 9, 10 on the second; 1, 3, 5, 7 on the
    # third; the schedule takes 80.
    rows, end = last_end(heft_graph(), monkeypatch, heft)
    assert rows == [[2, 0, 2, 1, 2, 1, 2, 0, 1, 1]] and end == 80 * TIMES


def test_its_schedule_of_the_graph_of_peft(monkeypatch):
    assert last_end(peft_graph(), monkeypatch, heft)[1] == 133 * TIMES  # as Arabnejad & Barbosa say


def test_an_op_of_low_rank_starts_in_a_gap():
    # 0 and 1 start at 0, on a device each. 2 reads both, of 200 bytes: wherever it is, it begins at 100 + 210, and its
    # device is idle for 210. 3 and 4 of 200 each, of lower rank, are one in that gap and one beside it.
    problem = problem_of([100, 100, 500, 200, 200], [(0, 2), (1, 2)], 200)
    (row,) = heft(problem)
    assert row[0] != row[1] and row[3] != row[4]


def test_ranks_are_of_mean_times():
    # Where each would end first is device 0. In the mean 1 takes (10 + 18) / 2 and 0 takes (12 + 12) / 2, so 1 is
    # first and takes it; on the fastest device 0 would be.
    assert heft(problem_of([[12, 12], [10, 18]], [])).tolist() == [[1, 0]]


def test_the_first_op_of_a_unit_decides():
    # Ops 0 and 1 are one unit, 2 another: 0 is of the highest rank and takes device 0, so 1, first on device 1 by
    # itself, is where 0 is.
    problem = problem_of([[10, 30], [50, 5], [1, 1]], [(0, 1)], 0, unit_of_op=np.array([0, 0, 1], np.int32))
    assert heft(problem)[0][0] == 0


def test_a_device_without_room_is_left_out():
    # 9 to device 0, 8 to 1, 7 to 1 where it ends at 15; but that one has room for one unit only.
    free = problem_of([9, 8, 7], [], resident_bytes=10, cluster=small_cluster(2))
    full = problem_of([9, 8, 7], [], resident_bytes=10, cluster=sized_cluster([20, 10]))
    assert heft(free).tolist() == [[0, 1, 1]]
    assert heft(full)[-1].tolist() == [0, 1, 0]
