"""List schedules by hand: the growing schedule, HEFT, PEFT, and their memory limits."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.planners.published_graphs import TIMES, heft_graph, last_end, peft_graph
from tests.tf_placer.problem.small_problems import (
    branches_optimum_ns,
    branches_problem,
    problem_of,
    random_problem,
    small_cluster,
)
from tf_placer.base.method_spec import NoSettings
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.list_schedule import (
    Schedule,
    first_op_decides,
    heft,
    list_schedule,
    optimistic_cost_table,
    peft,
    ready_order,
    scheduled,
)
from tf_placer.problem.problem import Problem, made_once

TWO_READERS = [(0, 1), (0, 2)]
# An update (op 7) of unit 0's weights at the end; op 6 reads them at the start.
AROUND = problem_of(
    [100] * 6 + [0, 100], [*((i, i + 1) for i in range(5)), (6, 2), (5, 7)], 10,
    unit_of_op=np.array([0, 1, 2, 3, 4, 5, 6, 6], np.int32),
)  # fmt: skip


@pytest.mark.parametrize(
    ("planner", "problem", "rows"),
    [
        # Longest first: 5 to device 0, 4 to 1, 3 to 1 (7 < 8), 2 to 0 (7), 1 to the first of two that end at 8.
        pytest.param(list_schedule, problem_of([5, 4, 3, 2, 1], []), [[0, 1, 1, 0, 0]], id="ends first"),
        # 100 bytes take 110 ns to the other device: beside 50 ns of work that is not worth it, beside 500.
        pytest.param(list_schedule, problem_of([10, 50, 50], TWO_READERS, 100), [[0, 0, 0]], id="stays"),
        pytest.param(list_schedule, problem_of([10, 500, 500], TWO_READERS, 100), [[0, 0, 1]], id="crosses"),
        pytest.param(list_schedule, AROUND, [[0] * 7], id="a unit that opens and ends the step is no cycle"),
        # Where each would end first is device 0. In the mean 1 takes (10 + 18) / 2 and 0 takes (12 + 12) / 2, so 1 is
        # first and takes it; on the fastest device 0 would be.
        pytest.param(heft, problem_of([[12, 12], [10, 18]], []), [[1, 0]], id="ranks are of mean times"),
        # 0 ends first on device 0, by 5; but its reader takes 500 there, and 10 + 100 to cross.
        pytest.param(peft, problem_of([[10, 15], [500, 20]], [(0, 1)], 100), [[1, 1]], id="peft looks ahead"),
        pytest.param(heft, problem_of([[10, 15], [500, 20]], [(0, 1)], 100), [[0, 1]], id="heft does not"),
    ],
)
def test_rows_by_hand(planner, problem, rows):
    assert planner(problem).tolist() == rows


def test_transfers_wait_for_their_channel():
    # Two outputs of 1000 bytes to the same device: the second arrives at 10 + 2 * 1010, later than unit 2 ends at home.
    row = list_schedule(problem_of([10, 1100, 900, 900], [(0, 1), (0, 2), (0, 3)], 1000))[0]
    assert np.bincount(row).tolist() == [3, 1]


@pytest.mark.parametrize(("branches", "length"), [(4, 6), (2, 3)])
def test_branches_are_spread_over_equal_devices(branches, length):
    problem = branches_problem(branches, length)
    runtime_s = SimulatedEvaluator(problem).evaluate(list_schedule(problem)).runtime_s
    assert 1e9 * runtime_s.min() <= 1.05 * branches_optimum_ns(branches, length)


def test_a_variable_goes_with_its_first_reader():
    # Two heavy chains side by side; 4 and 5 are free reads that open the step, of 900 bytes, read by 1 and by 3.
    problem = problem_of([1000, 1000, 1000, 1000, 0, 0], [(0, 1), (2, 3), (4, 1), (5, 3)], [1, 1, 900, 900])
    row = list_schedule(problem)[0]
    assert row[0] == row[1] == row[4] and row[2] == row[3] == row[5] and row[0] != row[2]


def test_a_much_slower_device_is_also_left_out():
    # The host's end is a little earlier for one of many short units, and everything after it is late.
    problem = problem_of([[10, 10, 25]] * 6, [], cluster=small_cluster(3))
    assert {len(np.unique(row)) for row in list_schedule(problem)} == {2, 3}


def test_work_grows_with_edges_and_not_faster(monkeypatch):
    """Counted, not timed: how often an arrival is asked for."""
    asked = []
    arrives = Schedule._arrives
    monkeypatch.setattr(Schedule, "_arrives", lambda *a: asked.append(1) or arrives(*a))
    counts = []
    for units in (200, 400):
        edges = [(i, j) for i in range(units) for j in (i + 1, i + 3) if j < units]
        asked.clear()
        list_schedule(problem_of([100] * units, edges, 1))
        counts.append(len(asked))
    assert counts[1] < 2.1 * counts[0]


def test_what_was_made_of_a_problem_is_kept_as_long_as_it_is():
    calls: list[int] = []

    def counted(problem: Problem, config: NoSettings, seed: int) -> np.ndarray:
        calls.append(seed)
        return np.full([1, problem.num_units], seed, np.int32)

    one, other = (dataclasses.replace(problem_of([5, 4], []), name=name) for name in ("one", "other"))
    first = made_once(counted, one, NoSettings(), 0)
    assert made_once(counted, one, NoSettings(), 0) is first and calls == [0]
    assert made_once(counted, one, NoSettings(), 1)[0, 0] == 1 and calls == [0, 1]
    made_once(counted, other, NoSettings(), 0)
    assert calls == [0, 1, 0]
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 3


def schedule_of(problem, room_bytes=10**9, **more):
    devices = np.arange(problem.num_devices)
    room = np.broadcast_to(np.array(room_bytes), len(devices))
    return Schedule(problem, problem.resident_bytes, room, devices, **more)


def ends(schedule, device_of_op):
    """When ops end that are committed in their order."""
    found = []
    for op, device in enumerate(device_of_op):
        schedule.put(op, device)
        found.append(schedule.commit(op))
    return found


@pytest.mark.parametrize(
    ("cost", "gaps", "end"),
    [
        (140, True, 200),  # the gap on device 0 from 60 to 200 holds 140
        (141, True, 220 + 141),  # and no more
        (140, False, 220 + 50 + 140),  # after 2 and 3, which came after it too
    ],
)
def test_an_op_starts_in_a_gap_that_holds_it(cost, gaps, end):
    # 1 ends on device 1 at 100, and its 90 bytes are on device 0 at 100 + 10 + 90. There 2 runs from 200 to 220, so
    # device 0 is idle from 10 to 200. 3 takes 50 of that, from 10 on.
    problem = problem_of([10, 100, 20, 50, cost], [(1, 2)], 90)
    assert ends(schedule_of(problem, gaps=gaps), [0, 1, 0, 0, 0])[-1] == end


def test_a_gap_is_split_where_an_op_starts_inside():
    # As before device 0 is idle from 10 to 200. 3 arrives from device 1, after 4 there, at 100 + 5 + 10 + 5 = 120.
    problem = problem_of([10, 100, 20, 5, 30, 100, 60], [(1, 2), (3, 4)], [90, 5])
    found = ends(schedule_of(problem, gaps=True, queues=False), [0, 1, 0, 1, 0, 0, 0])
    assert found[4] == 120 + 30
    assert found[5] == 10 + 100  # 10 to 110, in the 110 before it
    assert found[6] == 220 + 60  # 50 are left after it, and 10 before


def test_of_a_device_with_streams_each_has_gaps():
    # Two streams are idle until 200: two ops of 150 start at 0, and a third one after 2 and 3.
    problem = problem_of(
        [100, 20, 20, 150, 150, 150], [(0, 1), (0, 2)], 90, small_cluster(2, streams=2), edge_tensor=[0, 0]
    )
    assert ends(schedule_of(problem, gaps=True), [1, 0, 0, 0, 0, 0])[3:] == [150, 150, 220 + 150]


@pytest.mark.parametrize(("queues", "end"), [(True, 10 + 2 * 110 + 7), (False, 10 + 110 + 7)])
def test_transfers_wait_for_their_channel_or_not(queues, end):
    # Two tensors of 100 bytes leave device 0 at 10.
    problem = problem_of([10, 0, 7], [(0, 1), (0, 2)], 100)
    assert ends(schedule_of(problem, queues=queues), [0, 1, 1])[-1] == end


def test_a_full_device_is_no_candidate():
    schedule = schedule_of(problem_of([1, 1], [], resident_bytes=[6, 5], cluster=sized_cluster([10, 10])), 10)
    schedule.put(0, 0)
    assert schedule.candidates(1) == [1] and not schedule.was_full
    schedule.put(1, 0)
    assert schedule.device_of_unit == [0, 1] and schedule.was_full


def test_what_would_come_along_needs_room_too():
    # 0 is a free read of 6 bytes that goes with its reader, which has 5 itself.
    problem = problem_of([0, 9], [(0, 1)], 1, resident_bytes=[6, 5], cluster=sized_cluster([10, 12]))
    schedule = schedule_of(problem, [10, 12])
    assert schedule.waits(0)
    assert schedule.candidates(1) == [1]


def test_a_unit_that_may_be_on_no_chosen_device_has_the_others():
    problem = problem_of([5, 5], [], allowed=np.array([[True, True], [False, True]]))
    schedule = Schedule(problem, problem.resident_bytes, np.full(2, 10), np.array([0]))
    assert [schedule.candidates(op) for op in (0, 1)] == [[0], [1]]


def test_of_equal_scores_the_faster_device_wins():
    problem = problem_of([[2, 1]] * 3, [])
    run = lambda schedule: first_op_decides(problem, schedule, np.arange(3), lambda op, device: 0.0)  # noqa: E731
    assert scheduled(problem, np.array([1, 0]), run)[0].tolist() == [1, 1, 1]


def test_hefts_own_schedule(monkeypatch):
    # Figure 3a of Topcuoglu et al.: tasks 2 and 8 on the first processor; 4, 6, 9, 10 on the second; 1, 3, 5, 7 on the
    # third; the schedule takes 80.
    rows, end = last_end(heft_graph(), monkeypatch, heft)
    assert rows == [[2, 0, 2, 1, 2, 1, 2, 0, 1, 1]] and end == 80 * TIMES


def test_pefts_own_schedule(monkeypatch):
    # Arabnejad & Barbosa: 122, where HEFT takes 133.
    ends = [last_end(peft_graph(), monkeypatch, planner)[1] for planner in (peft, heft)]
    assert ends == [122 * TIMES, 133 * TIMES]


def test_an_op_of_low_rank_starts_in_a_gap():
    # 0 and 1 start at 0, on a device each. 2 reads both, of 200 bytes: wherever it is, it begins at 100 + 210, and its
    # device is idle for 210. 3 and 4 of 200 each, of lower rank, are one in that gap and one beside it.
    (row,) = heft(problem_of([100, 100, 500, 200, 200], [(0, 2), (1, 2)], 200))
    assert row[0] != row[1] and row[3] != row[4]


def test_the_first_op_of_a_unit_decides():
    # Ops 0 and 1 are one unit, 2 another: 0 is of the highest rank and takes device 0, so 1, first on device 1 by
    # itself, is where 0 is.
    problem = problem_of([[10, 30], [50, 5], [1, 1]], [(0, 1)], 0, unit_of_op=np.array([0, 0, 1], np.int32))
    assert heft(problem)[0][0] == 0


def test_heft_leaves_a_full_device_out():
    # 9 to device 0, 8 to 1, 7 to 1 where it ends at 15; but that one has room for one unit only.
    free = problem_of([9, 8, 7], [], resident_bytes=10, cluster=small_cluster(2))
    full = problem_of([9, 8, 7], [], resident_bytes=10, cluster=sized_cluster([20, 10]))
    assert heft(free).tolist() == [[0, 1, 1]]
    assert heft(full)[-1].tolist() == [0, 1, 0]


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
    problem = problem_of([[1, 1], [4, 4]], [(0, 1)], 1, allowed=np.array([[True, True], [False, True]]))
    assert optimistic_cost_table(problem)[0].tolist() == [15, 4]


def test_of_what_is_ready_the_highest_priority_comes_first():
    problem = problem_of([1] * 5, [(0, 3), (1, 3), (2, 4)], [1] * 3)
    assert ready_order(problem, np.array([1.0, 2.0, 3.0, 9.0, 0.0])).tolist() == [2, 1, 0, 3, 4]


def test_an_op_comes_after_what_it_waits_for_whatever_the_priorities():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        problem = random_problem(generator, 15, 2)
        place = np.argsort(ready_order(problem, generator.standard_normal(15)))
        assert sorted(place.tolist()) == list(range(15))
        assert (place[problem.op_graph.producer] < place[problem.op_graph.consumer]).all()
