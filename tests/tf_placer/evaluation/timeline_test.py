"""Timelines of random steps equal the slow simulator's; one small step is computed by hand."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.oracles.simulator import CROSS, RECEIVE, SEND, reference_simulate
from tests.tf_placer.evaluation.random_problems import random_problem
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.evaluation.timeline import simulated_timeline
from tf_placer.problem.placement import NO_CLUSTER, Decisions, Placement
from tf_placer.problem.problem import OpWork

SEEDS = range(400)
NOT = -1


@pytest.mark.medium
def test_spans_memory_and_path_of_random_steps():
    kinds, causes, cut, waited = set(), set(), 0, 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        problem = random_problem(rng)
        device_of_unit = rng.integers(0, problem.num_devices, problem.num_units, np.int32)
        timeline = simulated_timeline(problem, [device_of_unit])
        expected = reference_simulate(SimulatedEvaluator(problem).inputs, device_of_unit)
        assert timeline.runtime_ns == expected.runtime_ns
        assert timeline.start_ns.tolist() == expected.start_ns
        check_transfers(timeline, expected)
        check_memory(timeline, expected)
        check_path(timeline)
        kinds |= {stretch.kind for stretch in timeline.critical_path}
        causes |= {stretch.after for stretch in timeline.critical_path}
        cut += len(timeline.transfer_tensor) > 0
        compute_ns = timeline.problem.compute_ns[np.arange(timeline.problem.num_ops), timeline.device_of_op]
        waited += (timeline.end_ns - timeline.start_ns > compute_ns).any()
    assert kinds == {"op", "send", "transfer", "hand_over", "receive"}
    assert waited > 100
    assert causes == {"start", "input", "device", "channel"}
    assert cut > 200


def random_clusters(rng, problem, row):
    """Neighbours on one device in the order of the program: no way leaves such a cluster and comes back."""
    device = row[problem.unit_of_op]
    begins = (rng.random(problem.num_ops) < 0.3) | np.append(True, device[1:] != device[:-1])
    clusters = np.cumsum(begins)
    return np.where(rng.random(clusters[-1] + 1)[clusters] < 0.5, clusters, NO_CLUSTER)


@pytest.mark.medium
def test_a_step_with_clusters_is_the_one_that_the_evaluator_simulates():
    fused = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        problem = random_problem(rng)
        row = rng.integers(0, problem.num_devices, problem.num_units, np.int32)
        plan = Placement(problem, row, rng.permutation(problem.num_ops), random_clusters(rng, problem, row))
        timeline = simulated_timeline(problem, plan.decisions)
        measured = SimulatedEvaluator(problem).evaluate(plan.decisions)
        assert timeline.runtime_ns / 1e9 == measured.runtime_s[0]
        assert [curve.num_bytes.max() for curve in timeline.memory] == measured.peak_bytes[0].tolist()
        check_path(timeline)
        fused += timeline.problem.num_ops < problem.num_ops
    assert fused > 200


def check_transfers(timeline, expected):
    crossed = {key[1:]: times for key, times in expected.legs.items() if key[0] == CROSS}
    assert len(timeline.transfer_tensor) == len(crossed)
    for k in range(len(timeline.transfer_tensor)):
        pair = (int(timeline.transfer_tensor[k]), int(timeline.transfer_target[k]))
        parts = (timeline.times_ns[kind] for kind in ("send", "transfer", "receive"))
        times = [(start_ns[k], end_ns[k]) for start_ns, end_ns in parts]
        assert times == [expected.legs.get((leg, *pair), (NOT, NOT)) for leg in (SEND, CROSS, RECEIVE)]
        assert timeline.transfer_source[k] == timeline.device_of_op[timeline.transfer_producer[k]]


def check_memory(timeline, expected):
    for d, curve in enumerate(timeline.memory):
        assert list(zip(curve.times_ns, curve.num_bytes, strict=True)) == expected.memory[d]
        assert curve.num_bytes.max() == expected.peak_bytes[d] == timeline.peak_bytes[d]


@pytest.mark.medium
def test_paths_of_steps_in_which_devices_wait_for_their_next_op():
    given_up = 0
    for seed in SEEDS:
        rng = np.random.default_rng([seed, 1])
        problem = random_problem(rng)
        device_of_unit = rng.integers(0, problem.num_devices, problem.num_units, np.int32)
        order = rng.permutation(problem.num_ops) - rng.integers(problem.num_ops + 1)
        timeline = simulated_timeline(problem, Decisions([device_of_unit], [order.astype(np.int32)]))
        check_path(timeline)
        given_up += any(stretch.after == "wait" for stretch in timeline.critical_path)
    assert given_up


def check_path(timeline):
    path = timeline.critical_path
    assert path[0].start_ns == 0 and path[0].after == "start"
    assert path[-1].end_ns == timeline.end_ns.max()
    joining_ns = timeline.runtime_ns - timeline.end_ns.max()
    assert sum(stretch.end_ns - stretch.start_ns for stretch in path) + joining_ns == timeline.runtime_ns
    for before, stretch in itertools.pairwise(path):
        assert before.end_ns == stretch.start_ns and stretch.after != "start"
        if stretch.after in ("device", "channel"):
            assert places(timeline, before) & places(timeline, stretch)
    assert len({(stretch.kind, stretch.index) for stretch in path}) == len(path)


def places(timeline, stretch):
    """Where it takes time: a device, or a channel."""
    if stretch.kind == "hand_over":
        return set()
    if stretch.kind == "transfer":
        return {("channel", timeline.transfer_channel[stretch.index])}
    where = {
        "op": timeline.device_of_op,
        "send": timeline.transfer_source,
        "receive": timeline.transfer_target,
    }
    return {("device", where[stretch.kind][stretch.index])}


def test_a_step_by_hand():
    """Op 0 (100 ns) feeds ops 1 and 2 (50 ns each) with 5 bytes; op 1 is 10 ns + 1 ns a byte away."""
    problem = problem_of([100, 50, 50], [[0, 1], [0, 2]], 5, resident_bytes=7, edge_tensor=[0, 0])
    timeline = simulated_timeline(problem, [[0, 1, 0]])
    assert timeline.runtime_ns == 165
    assert [timeline.transfer_bytes.tolist(), timeline.transfer_source.tolist()] == [[5], [0]]
    assert [*map(list, timeline.times_ns["transfer"])] == [[100], [115]]
    assert problem.cluster.channel_names()[timeline.transfer_channel[0]] == "0to1"
    assert [(s.kind, s.index, s.after) for s in timeline.critical_path] == [
        ("op", 0, "start"),
        ("transfer", 0, "input"),
        ("op", 1, "input"),
    ]
    assert timeline.memory[0].times_ns.tolist() == [0, 150]
    assert timeline.memory[0].num_bytes.tolist() == [2 * 7 + 5, 2 * 7]
    assert timeline.memory[1].times_ns.tolist() == [0, 100, 165]
    assert timeline.memory[1].num_bytes.tolist() == [7, 7 + 5, 7]


def test_what_bounds_a_step_by_hand():
    """100 MFLOP at 1 TFLOP/s take 100 us, 1 MB at 100 GB/s takes 10 us; the transfer is the rest of the path."""
    problem = problem_of([100_000, 10_000, 20_000], [[0, 1], [1, 2]], 5000)
    assert simulated_timeline(problem, [[0, 0, 1]]).bound_by() == {}, "the work of profiled ops is not known"
    work = OpWork(np.array([1e8, 1e3, 0]), np.array([1e3, 1e6, 10]), np.ones(3), np.zeros(3, int))
    timeline = simulated_timeline(dataclasses.replace(problem, work=work), [[0, 0, 1]])
    assert timeline.limit_of_op.tolist() == [0, 1, 1]
    assert timeline.bound_by() == pytest.approx(
        {"compute": 100 / 135.01, "memory": 30 / 135.01, "link": 5.01 / 135.01}
    )
    assert timeline.peak_share() == pytest.approx(100_001_000 / 1e12 / 135.01e-6 / 2)


def test_dispatch_and_hand_over_by_hand():
    """The same on devices that are fed: 30 ns an op, 40 ns a tensor."""
    problem = problem_of([100, 50, 50], [[0, 1], [0, 2]], 5, edge_tensor=[0, 0])
    cluster = problem.cluster
    devices = tuple(dataclasses.replace(device, dispatch_ns=30) for device in cluster.devices)
    links = tuple(dataclasses.replace(link, tensor_ns=40) for link in cluster.links)
    fed = dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices, links=links))
    timeline = simulated_timeline(fed, [[0, 1, 0]])
    assert timeline.start_ns.tolist() == [0, 185, 130]  # op 0 computes from 30, op 2 was dispatched at 60
    assert timeline.end_ns.tolist() == [130, 265, 180]  # crossed at 145, there at 185, dispatched at 215
    assert [(s.kind, s.start_ns, s.end_ns) for s in timeline.critical_path] == [
        ("op", 0, 130),
        ("transfer", 130, 145),
        ("hand_over", 145, 185),
        ("op", 185, 265),
    ]


def test_one_device_has_no_channel():
    assert len(simulated_timeline(problem_of([3, 4], [[0, 1]]), [[1, 1]]).transfer_tensor) == 0


def test_a_plans_own_priorities_decide():
    swapped = simulated_timeline(problem_of([5, 7], []), Decisions([[0, 0]], [[1, 0]]))
    assert swapped.start_ns.tolist() == [7, 0]


@pytest.mark.parametrize("decisions", ([[0, 1], [0, 1]], [[0]], [[0, 2]], "no plan"))
def test_bad_input(decisions):
    with pytest.raises(InputError):
        simulated_timeline(problem_of([5, 7], []), decisions)
