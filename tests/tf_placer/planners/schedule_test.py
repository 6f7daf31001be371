"""A schedule that grows: gaps, channels and room, by hand."""

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.planners.list_schedule import Schedule, first_op_decides, scheduled


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
    problem = problem_of([1, 1], [], resident_bytes=[6, 5], cluster=sized_cluster([10, 10]))
    schedule = schedule_of(problem, 10)
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
    allowed = np.array([[True, True], [False, True]])
    problem = problem_of([5, 5], [], allowed=allowed)
    schedule = Schedule(problem, problem.resident_bytes, np.full(2, 10), np.array([0]))
    assert [schedule.candidates(op) for op in (0, 1)] == [[0], [1]]


def test_of_equal_scores_the_faster_device_wins():
    problem = problem_of([[2, 1]] * 3, [])

    def run(schedule):
        first_op_decides(problem, schedule, np.arange(3), lambda op, device: 0.0)

    (row,) = scheduled(problem, np.array([1, 0]), run)
    assert row.tolist() == [1, 1, 1]
