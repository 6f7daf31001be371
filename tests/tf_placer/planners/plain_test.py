"""Plain planners: single devices, the first CPU, TensorFlow, an expert, devices filled in order, random blocks."""

import dataclasses

import numpy as np
import pytest

from tests.refused import refused
from tests.tf_placer.planners.full_devices import full_problem, loads, sized_cluster
from tests.tf_placer.problem.small_problems import cluster_of, problem_of, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.planners.plain import (
    RandomBlocks,
    cpu_only,
    expert,
    single_device_placements,
    tf_default,
    topological_fill,
)


def test_a_row_per_device_with_first_legal_devices_where_needed():
    allowed = np.array([[True, True, True], [False, True, True], [False, False, True]])
    rows = single_device_placements(problem_of([1, 1, 1], [], cluster=small_cluster(3), allowed=allowed))
    # Unit 1 has no kernel on device 0 and goes to its first legal one, 1; unit 2 runs on device 2 only.
    assert rows.tolist() == [[0, 1, 2], [1, 1, 2], [2, 2, 2]] and rows.dtype == np.int32


def test_everything_is_on_the_first_cpu_that_may_be():
    allowed = np.array([[True] * 3, [True, False, True], [False, False, True]])
    problem = problem_of([1] * 3, [], cluster=cluster_of("GPU", "CPU", "CPU"), allowed=allowed)
    assert cpu_only(problem).tolist() == [[1, 0, 2]]


def test_a_cluster_without_a_cpu_is_refused():
    with refused("cluster 'toy2' has no CPU to put everything on; give a cluster with one"):
        cpu_only(problem_of([1], []))


GPU_FIRST = cluster_of("GPU", "GPU", "CPU")
ANYWHERE, ON_CPU, ALL_READ = [1, 1, 1], [0, 0, 1], [(0, 1), (2, 1), (0, 2)]


def with_kernels(cluster, edges, *allowed, **more):
    """An op for each row of the devices that have a kernel."""
    return problem_of([1] * len(allowed), edges, cluster=cluster, allowed=np.array(allowed) == 1, **more)


def of_types(*op_types):
    problem = with_kernels(GPU_FIRST, [(0, 1), (1, 2)], ON_CPU, ANYWHERE, ANYWHERE)
    return dataclasses.replace(problem, op_types=op_types)


@pytest.mark.parametrize(
    ("problem", "row"),
    [
        # The first GPU where there is a kernel, else the CPU.
        (with_kernels(cluster_of("GPU", "CPU"), ALL_READ, [1, 1], [0, 1], [1, 1]), [0, 1, 0]),
        (with_kernels(cluster_of("CPU", "GPU"), ALL_READ, [1, 1], [1, 0], [1, 1]), [1, 0, 1]),
        # Other GPUs stay idle.
        (problem_of([[9, 1, 1]] * 3, [], cluster=GPU_FIRST, resident_bytes=10**12), [0, 0, 0]),
        # Without a GPU everything is on the first device.
        (problem_of([1] * 2, [], cluster=cluster_of("CPU", "CPU")), [0, 0]),
        # A unit is where all of its ops have kernels.
        (with_kernels(GPU_FIRST, [], ANYWHERE, ON_CPU, unit_of_op=np.zeros(2, np.int32)), [2]),
        # A source goes with its readers where they are together.
        (with_kernels(GPU_FIRST, [(0, 1)], ANYWHERE, ON_CPU, ANYWHERE), [2, 2, 0]),
        (with_kernels(GPU_FIRST, [(0, 1), (0, 2)], ANYWHERE, ON_CPU, ANYWHERE), [0, 2, 0]),
        # What looks at a shape goes with what it reads.
        (of_types("Print", "Shape", "Relu"), [2, 2, 0]),
        (of_types("Print", "Relu", "Relu"), [2, 0, 0]),
    ],
)
def test_tensorflows_own_plan(problem, row):
    assert tf_default(problem).tolist() == [row]


CHAIN = [(i, i + 1) for i in range(5)]
IN_TWO = [(0, 2), (1, 2), (2, 3)]


def staged(problem, stages):
    return dataclasses.replace(problem, stage_of_op=np.array(stages))


@pytest.mark.parametrize(
    ("problem", "stages", "row"),
    [
        # A layer a device.
        (problem_of([9, 1, 1, 1, 1, 9], CHAIN), [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]),
        # More layers than devices are cut into runs of equally many; stages that no op has do not count: 7 and 9 are
        # the second and the third of three.
        (problem_of([1] * 6, CHAIN, cluster=small_cluster(3)), [0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2]),
        (problem_of([1] * 6, CHAIN, cluster=small_cluster(3)), [2, 2, 7, 7, 9, 9], [0, 0, 1, 1, 2, 2]),
        # Fewer leave devices idle: two stages in [0, 1), the first at 0, the second at 1/2, of four devices.
        (problem_of([1] * 6, CHAIN, cluster=small_cluster(4)), [0, 0, 0, 1, 1, 1], [0, 0, 0, 2, 2, 2]),
        # Op 2 gets 5 bytes of op 0 and 7 of op 1, or 7 and 5; op 3 hears from op 2 alone.
        (problem_of([1] * 4, IN_TWO, [5, 7, 1]), [0, 1, -1, -1], [0, 1, 1, 1]),
        (problem_of([1] * 4, IN_TWO, [7, 5, 1]), [0, 1, -1, -1], [0, 1, 0, 0]),
        # Without stages the order is cut into runs of equal work: 12 in all, so after the first four of 1, 1, 1 and 3.
        (problem_of([1, 1, 1, 3, 3, 3], CHAIN), [-1] * 6, [0, 0, 0, 0, 1, 1]),
        # Slow devices stay idle.
        (problem_of([[5, 1]] * 6, CHAIN), [0, 0, 0, 1, 1, 1], [1] * 6),
    ],
)
def test_an_experts_plan_by_hand(problem, stages, row):
    assert expert(staged(problem, stages)).tolist() == [row]


def test_what_does_not_fit_is_moved():
    cluster = sized_cluster([30, 60])
    rows = expert(staged(problem_of([1] * 6, CHAIN, cluster=cluster, resident_bytes=10), [0, 0, 0, 0, 1, 1]))
    assert len(rows)
    for row in rows:
        assert np.bincount(row, minlength=2)[0] <= 3
        assert row[-2:].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("memory", "costs", "resident", "rows"),
    [
        # To the brim: four and two. In proportion to memory: two and four. To the brim with half of the free half of
        # all memory kept free, so of 30 and 60: three and three.
        ([40, 80], 1, 10, [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]),
        ([40, 40], [2, 1], 10, [[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]]),  # the fastest is filled first
        ([40, 40], [2, 1], 0, [[1] * 6]),  # and left only where it is full
    ],
)
def test_a_chain_is_cut_where_a_share_is_full(memory, costs, resident, rows):
    problem = problem_of([costs] * 6, CHAIN, 0, sized_cluster(memory), resident)
    assert topological_fill(problem).tolist() == rows


def test_what_outputs_hold_counts_too():
    # Nothing stays, but every output waits for the last unit: no device holds all six of 10.
    problem = problem_of([1] * 6, [(i, 5) for i in range(5)], 10, cluster=sized_cluster([45, 60]))
    fits = SimulatedEvaluator(problem).evaluate(topological_fill(problem)).status == 0
    assert fits.any()


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("fill", [0.6, 0.75, 0.9])
def test_full_devices_hold_runs_and_not_crumbs(devices, fill):
    for seed in range(5):
        rows = topological_fill(full_problem(devices, fill, seed))
        assert min(np.count_nonzero(np.diff(row)) for row in rows) < 2 * devices + 10


def test_many_devices_are_tried_in_powers_of_two():
    problem = problem_of([1] * 8, [(i, i + 1) for i in range(7)], cluster=small_cluster(5), resident_bytes=10)
    assert [len(np.unique(row)) for row in topological_fill(problem)] == [1, 2, 4, 5]


def test_granularity_goes_from_one_block_to_single_units():
    units = 40
    problem = problem_of([1] * units, [(i, i + 1) for i in range(units - 1)], cluster=small_cluster(4))
    draws = RandomBlocks(problem, seed=0).draw(400)
    # On a chain the breadth-first order is the chain, so changes along it count the cuts.
    changes = (np.diff(draws, axis=1) != 0).sum(axis=1)
    assert (changes == 0).any() and (changes >= units // 2).any()
    used = {frozenset(row.tolist()) for row in draws}
    assert {frozenset({d}) for d in range(4)} <= used and frozenset(range(4)) in used


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("fill", [0.6, 0.75, 0.9])
def test_draws_fit_where_memory_is_full(devices, fill):
    for seed in range(5):
        problem = full_problem(devices, fill, seed)
        draws = RandomBlocks(problem, seed).draw(30)
        assert all((loads(problem, row) <= problem.cluster.capacity_bytes()).all() for row in draws)
        # Nor does what is sent and computed, which nobody had counted, make all of them too large.
        fits = SimulatedEvaluator(problem).evaluate(draws).status == Status.OK
        assert fits.mean() > 0.25, f"seed {seed}: {fits.mean():.0%}"
        assert len({row.tobytes() for row in draws[fits]}) > 5, "and they are different ones"


def test_what_fits_as_drawn_is_left_as_drawn():
    problem = problem_of([1] * 20, [(i, i + 1) for i in range(19)], 1, cluster=small_cluster(3))
    full = dataclasses.replace(problem, resident_bytes=np.full(20, 1))
    np.testing.assert_array_equal(RandomBlocks(problem, 3).draw(30), RandomBlocks(full, 3).draw(30))
