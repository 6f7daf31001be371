"""Lower bounds: by hand, and never above what brute force finds."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import altered, problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.bounds import LowerBounds, lower_bounds, possible_devices
from tf_placer.problem.problem import Problem


def test_critical_path_takes_each_op_at_its_fastest_and_transfers_free():
    # 0 -> 1 -> 3 costs 10 + 20 + 5; 0 -> 2 -> 3 costs 10 + 40 + 5, each at the faster device.
    compute_ns = [[10, 99], [99, 20], [40, 50], [5, 5]]
    bounds = lower_bounds(problem_of(compute_ns, [(0, 1), (0, 2), (1, 3), (2, 3)], 10**6))
    assert bounds.critical_path_ns == 10 + 40 + 5


def test_a_device_without_kernel_is_no_fastest_device():
    problem = problem_of([[100, 1]], [], allowed=np.array([[True, False]]))
    bounds = lower_bounds(problem)
    assert (bounds.critical_path_ns, bounds.largest_unit_ns) == (100, 100)
    assert bounds.best_s == pytest.approx(100e-9)


def test_total_work_is_shared_among_devices():
    # Six ops of 100 ns on three equal devices: 200 ns each, to one part in 10^9 and rounding down.
    bounds = lower_bounds(problem_of([100] * 6, [], cluster=small_cluster(3)))
    assert bounds.total_work_ns in (199, 200)
    assert bounds.critical_path_ns == bounds.largest_unit_ns == 100
    # Two streams a device halve it.
    of_two_streams = lower_bounds(problem_of([100] * 6, [], cluster=small_cluster(3, streams=2)))
    assert of_two_streams.total_work_ns in (99, 100)


def test_total_work_of_unequal_devices_is_the_fractional_assignment():
    # Ops of (100, 300) ns: x of 12 ops on device 0 gives 100 x = 300 (12 - x), x = 9: 900 ns. The dual ascent
    # may stop a little below, never above.
    total = lower_bounds(problem_of([[100, 300]] * 12, [])).total_work_ns
    assert 0.98 * 900 <= total <= 900


def test_largest_unit_counts_all_its_ops_on_one_device():
    problem = problem_of([[10, 80], [10, 80], [70, 10]], [(0, 1), (1, 2)], unit_of_op=[0, 0, 0])
    # Together: 10 + 10 + 70 on device 0, 80 + 80 + 10 on device 1.
    assert lower_bounds(problem).largest_unit_ns == 90


def pinned(*devices):
    """[U, 2] bool: each unit on one device, or on any where it is None."""
    return np.array([[device in (None, 0), device in (None, 1)] for device in devices])


def test_ends_that_share_no_device_pay_for_the_link():
    # 20 on device 0, then 10 ns + 5 bytes to device 1, then 30.
    bounds = lower_bounds(problem_of([20, 30], [(0, 1)], 5, allowed=pinned(0, 1)))
    assert (bounds.critical_path_ns, bounds.path_with_transfers_ns) == (50, 20 + 15 + 30)
    assert (bounds.tightest, bounds.best_s) == ("path_with_transfers", pytest.approx(65e-9))


def test_who_may_go_along_pays_once():
    # The one between is free to be at either end: one of its two edges crosses, the cheaper one of 10 + 3 ns.
    bounds = lower_bounds(problem_of([20, 7, 30], [(0, 1), (1, 2)], [5, 3], allowed=pinned(0, None, 1)))
    assert bounds.path_with_transfers_ns == 20 + 7 + 13 + 30


def test_ops_of_one_unit_are_on_one_device():
    # Ops 0 and 2 are one unit on device 0, op 1 is on device 1: there and back, 10 ns + 5 bytes each.
    problem = problem_of([20, 7, 30], [(0, 1), (1, 2)], 5, unit_of_op=[0, 1, 0], allowed=pinned(0, 1, 0))
    assert lower_bounds(problem).path_with_transfers_ns == 20 + 15 + 7 + 15 + 30


def test_a_unit_is_not_where_it_has_no_room():
    # Ten times as fast on device 0, of 100 bytes; 60 stay with unit 0 and 70 with unit 1, which device 1 cannot hold.
    problem = problem_of([[10, 100], [20, 200]], [], 0, sized_cluster([100, 65]), [60, 70])
    # Unit 1 can only be on device 0; beside it 30 bytes are left: unit 0 must go to device 1.
    assert possible_devices(problem).tolist() == [[False, True], [True, False]]
    bounds = lower_bounds(problem)
    assert (bounds.critical_path_ns, bounds.largest_unit_ns) == (20, 20)
    assert bounds.path_with_transfers_ns == 100


def test_what_ops_hold_while_they_run_needs_room_too():
    # The op reads 30 bytes and makes 40: with the 50 that stay too many for 100.
    problem = problem_of(
        [[0, 0], [10, 100]], [(0, 1)], 30, cluster=sized_cluster([100, 200]),
        resident_bytes=np.array([0, 50]), output_bytes=np.array([0, 40]),
    )  # fmt: skip
    assert possible_devices(problem)[1].tolist() == [False, True]


def test_memory_that_is_full_sends_work_to_the_slow_device():
    # Ten units of 10 bytes, 10 or 1000 ns. Device 0 holds six, so four are on device 1: 4 * 1000.
    problem = problem_of([[10, 1000]] * 10, [], cluster=sized_cluster([60, 100]), resident_bytes=10)
    bounds = lower_bounds(problem)
    # Without memory: 10 x = 1000 (10 - x), 99.0.
    assert 98 <= bounds.total_work_ns <= 99
    assert 3999 <= bounds.work_in_memory_ns <= 4000


def test_work_between_has_what_comes_before_and_after():
    # 100, then four of 50 on two devices, then 100; what reads them is nowhere for nothing. 100 + 4 * 50 / 2 + 100.
    edges = [(0, i) for i in range(1, 5)] + [(i, 5) for i in range(1, 5)]
    bounds = lower_bounds(problem_of([100, 50, 50, 50, 50, 100], edges))
    assert 299 <= bounds.work_between_ns <= 300
    assert (bounds.critical_path_ns, bounds.path_with_transfers_ns) == (250, 250)


def test_who_takes_part_pays_for_it():
    problem = altered(problem_of([20, 0], [(0, 1)]), {"join_ns": [7, 8]})
    assert lower_bounds(problem).path_with_transfers_ns == 20 + 7


def test_hosts_have_to_dispatch_all_ops():
    # Four ops of 20 ns on two devices, 50 ns to dispatch each.
    bounds = lower_bounds(altered(problem_of([20] * 4, []), {"dispatch_ns": 50}))
    assert 99 <= bounds.work_in_memory_ns <= 100
    assert 39 <= bounds.total_work_ns <= 40


def test_rows_are_all_bounds_by_name():
    bounds = LowerBounds(1, 5, 3, 4, 5, 2)
    assert [name for name, _ in bounds.rows[:3]] == ["critical_path", "total_work", "largest_unit"]
    assert [bound_ns for _, bound_ns in bounds.rows] == [1, 5, 3, 4, 5, 2]
    assert (bounds.tightest, bounds.best_s) == ("total_work", 5e-9)


def test_no_ops_that_cost_nothing_bound_anything():
    assert {bound_ns for _, bound_ns in lower_bounds(problem_of([0, 0], [(0, 1)], 5)).rows} == {0}


def hard_problem(generator: np.random.Generator) -> Problem:
    """Small, of any kind: pinned, tight in memory, units of several ops, dear messages, chores, shared channels."""
    devices, ops = int(generator.integers(1, 4)), int(generator.integers(1, 7))
    problem = random_problem(generator, ops, devices, streams=int(generator.integers(1, 3)))
    units = int(generator.integers(1, min(ops, 5) + 1))
    unit_of_op = np.concatenate([np.arange(units), generator.integers(0, units, ops - units)])
    allowed = generator.random((units, devices)) < generator.choice([0.3, 0.7, 1.0])
    allowed[np.arange(units), generator.integers(0, devices, units)] = True
    resident = generator.integers(0, 1000, units)
    held_bytes = resident.sum() + problem.tensor_bytes.sum() * generator.choice([0, 1])
    memory = int(held_bytes * generator.choice([0.5, 0.8, 9]))
    dispatch_ns = int(generator.choice([0, 0, 0, 30, 300]))
    below = lambda most: int(generator.integers(0, most))  # noqa: E731
    devices = {
        "memory_bytes": lambda _: max(memory + below(500), 1), "join_ns": lambda _: below(2) * below(300),
        "newest_first": lambda _: bool(below(2)), "dispatch_ns": lambda _: dispatch_ns * below(2),
    }  # fmt: skip
    links = {
        "channel": lambda _: str(below(3)), "bytes_per_s": lambda _: (1 + below(4)) * 3e8,
        "send_ns": lambda _: below(2) * 20, "receive_ps_per_byte": lambda _: below(2) * 333,
        "tensor_ns": lambda _: below(2) * 40,
    }  # fmt: skip
    return dataclasses.replace(
        altered(problem, devices, links),
        unit_of_op=unit_of_op[generator.permutation(ops)].astype(np.int32),
        resident_bytes=resident,
        allowed=allowed,
    )


def check_against_brute_force(seed: int) -> tuple[bool, str | None]:
    """Whether anything fits, and if so which bound is the tightest, where it is the optimum."""
    problem = hard_problem(np.random.default_rng(seed))
    every = np.array(list(itertools.product(range(problem.num_devices), repeat=problem.num_units)), np.int32)
    legal = problem.allowed[np.arange(problem.num_units), every].all(axis=1)
    runtime_s = SimulatedEvaluator(problem).evaluate(every[legal]).runtime_s
    if np.isnan(runtime_s).all():
        return False, None
    bounds = lower_bounds(problem)
    best_ns = round(np.nanmin(runtime_s) * 1e9)
    for name, bound_ns in bounds.rows:
        assert 0 <= bound_ns <= best_ns, f"seed {seed}: {name} {bound_ns} of {best_ns}"
    return True, bounds.tightest if bounds.best_s * 1e9 > best_ns - 1 else None


@pytest.mark.medium
def test_no_legal_placement_beats_the_bounds():
    found = [check_against_brute_force(seed) for seed in range(300)]
    # Of problems where something fits the bound is often the optimum, or it would say little; some are too tight. How
    # dispatch and ops interleave no bound knows.
    fitting = [tightest for fits, tightest in found if fits]
    assert 150 < len(fitting) < 300
    assert sum(tightest is not None for tightest in fitting) > len(fitting) / 3


@pytest.mark.slow
def test_no_legal_placement_of_2000_problems_beats_the_bounds():
    for seed in range(300, 2300):
        check_against_brute_force(seed)
