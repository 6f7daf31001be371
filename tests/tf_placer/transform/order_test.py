"""Control edges for an order: few, without a cycle, with the step of the priorities; what takes none."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import reached
from tests.colocation.random_graphs import control_flow
from tests.tf_placer.evaluation.random_problems import random_problem
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.program import Splitting
from tf_placer.ops.simulator import simulate
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import simulator_inputs
from tf_placer.transform import order
from tf_placer.transform.order import WITHIN, order_edges, ordered_pairs, with_edges

v1 = tf.compat.v1
SEEDS = range(80)


def random_plan(seed: int, streams: int = 1) -> Placement:
    """A random problem in a random order, on devices that do as many things at a time, the oldest first."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    devices = tuple(
        dataclasses.replace(device, streams=streams, newest_first=False) for device in problem.cluster.devices
    )
    problem = dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, devices=devices))
    row = rng.integers(problem.num_devices, size=problem.num_units)
    return Placement(problem, row, rng.permutation(problem.num_ops))


def step_ns(placement: Placement) -> int:
    plan = placement.decisions
    inputs = simulator_inputs(placement.problem)
    return int(simulate(inputs, plan.device_of_unit, plan.priority_of_op).runtime_ns[0])


def test_random_plans_keep_their_step_with_few_edges():
    written = about = 0
    for seed in SEEDS:
        plan = random_plan(seed)
        edges, pairs = order_edges(plan), ordered_pairs(plan)
        found = simulate(with_edges(simulator_inputs(plan.problem), edges), plan.device_of_unit[np.newaxis])
        assert int(found.runtime_ns[0]) <= (1 + WITHIN) * step_ns(plan), seed
        device = plan.device_of_op
        assert (device[edges[:, 0]] == device[edges[:, 1]]).all(), seed
        assert {tuple(edge) for edge in edges.tolist()} <= {tuple(pair) for pair in pairs.tolist()}, seed
        written, about = written + len(edges), about + len(pairs)
    assert 0 < written < about / 2


def test_on_devices_that_do_two_things_at_a_time_edges_are_no_worse_than_none():
    """There priorities are more than an order, so that some steps are not kept."""
    kept = 0
    for seed in SEEDS:
        plan = random_plan(seed, streams=2)
        inputs, most_ns = simulator_inputs(plan.problem), (1 + WITHIN) * step_ns(plan)
        edges = order_edges(plan)
        found_ns, without_ns = (
            int(simulate(with_edges(inputs, some), plan.device_of_unit[np.newaxis]).runtime_ns[0])
            for some in (edges, edges[:0])
        )
        assert found_ns <= max(most_ns, without_ns), seed
        kept += found_ns <= most_ns
    assert kept >= 0.9 * len(SEEDS)


def test_no_edge_is_implied_by_others():
    for seed in SEEDS:
        plan = random_plan(seed)
        pairs = ordered_pairs(plan)
        readers: dict[int, set[int]] = {}
        graph = plan.problem.op_graph
        edges = np.stack([graph.producer, graph.consumer], axis=1)  # [E, 2]
        for producer, consumer in [*edges.tolist(), *pairs.tolist()]:
            readers.setdefault(producer, set()).add(consumer)
        for before, after in pairs.tolist():
            others = readers[before] - {after}
            assert after not in reached(others, lambda op, readers=readers: readers.get(op, ())), (
                seed,
                before,
                after,
            )


def test_all_pairs_give_the_whole_schedule_back():
    """Where nothing ties: every op starts when it does with the priorities."""
    for seed in SEEDS:
        rng, plan = np.random.default_rng(seed), random_plan(seed)
        costs = rng.integers(1, 2**40, plan.problem.compute_ns.shape)
        problem = dataclasses.replace(plan.problem, compute_ns=costs)
        plan = Placement(problem, plan.device_of_unit, plan.priority_of_op)
        inputs, decided = simulator_inputs(problem), plan.decisions
        ordered = with_edges(inputs, ordered_pairs(plan))
        names = simulate(
            inputs, decided.device_of_unit, decided.priority_of_op, with_schedule=True
        ).start_ns.numpy()[0]
        found = simulate(ordered, decided.device_of_unit, with_schedule=True).start_ns.numpy()[0]
        assert sorted(found.tolist()) == sorted(names.tolist()), seed


def test_the_producer_of_a_send_goes_first_by_hand():
    # 0 makes 1, 2 and 3 ready; 4, far away, waits for 3, which by itself would be the last.
    problem = problem_of([10, 100, 100, 100, 100], [(0, 1), (0, 2), (0, 3), (3, 4)], 40)
    plan = Placement(problem, [0, 0, 0, 0, 1], [0, 1, 2, 0, 0])
    # 1 waits for 3, and 2, which else would be first, for 1: the edge for the send comes first.
    assert order_edges(plan).tolist() == [[3, 1], [1, 2]]
    inputs = simulator_inputs(problem)
    runs_ns = [
        int(simulate(with_edges(inputs, edges), plan.device_of_unit[np.newaxis]).runtime_ns[0])
        for edges in (order_edges(plan), order_edges(plan)[:1])
    ]
    # 3 ends at 110, its 40 bytes take 10 + 40 to cross, 4 takes 100; 1 and 2 end at 310.
    assert runs_ns == [310, 360] and step_ns(plan) == 310


def test_a_plan_without_an_order_and_one_whose_order_costs_nothing_have_no_edges():
    problem = problem_of([10, 100, 100], [(0, 1), (0, 2)])
    for priority in (None, [0, 2, 1]):
        assert order_edges(Placement(problem, [0, 0, 0], priority)).shape == (0, 2)


def test_an_order_that_saves_memory_is_kept():
    # 1 and 2 hold 1,000 bytes each until 3 and 4 have read them; 1, 3, 2, 4 needs one at a time.
    problem = problem_of([1, 5, 5, 5, 5], [(0, 1), (0, 2), (1, 3), (2, 4)], [0, 0, 1000, 1000])
    plan = Placement(problem, [0] * 5, [0, 0, 2, 1, 3])
    inputs = simulator_inputs(problem)
    peaks = [
        int(found.peak_bytes[0, 0])
        for found in (
            simulate(inputs, plan.decisions.device_of_unit, plan.decisions.priority_of_op),
            simulate(inputs, plan.decisions.device_of_unit),
            simulate(with_edges(inputs, order_edges(plan)), plan.device_of_unit[np.newaxis]),
        )
    ]
    assert peaks[0] == peaks[2] < peaks[1]


def test_borders_of_parts_come_before_other_pairs():
    # On each device the second op makes what the other device waits for; only those of device 1 are of two parts.
    problem = problem_of([100] * 6, [(1, 4), (3, 5)], 40)
    names = ("part_0/a", "part_0/b", "part_0/c", "part_1/d", "e", "f")
    problem = dataclasses.replace(problem, op_names=names, splitting=Splitting("whole", 8, 2, "whole"))
    plan = Placement(problem, [0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 2, 2])
    assert order_edges(plan).tolist() == [[3, 2], [1, 0]]
    unsplit = dataclasses.replace(problem, splitting=None)
    assert order_edges(dataclasses.replace(plan, problem=unsplit)).tolist() == [[1, 0], [3, 2]]


def test_edges_that_make_a_cycle_are_refused():
    problem = problem_of([10, 10], [(0, 1)])
    with pytest.raises(ValueError, match="cycle"):
        with_edges(simulator_inputs(problem), np.array([[1, 0]]))


def tf1_item(build) -> Item:
    with control_flow(functional=False), tf.Graph().as_default() as graph:
        fetches = build()
    meta_graph = v1.MetaGraphDef(graph_def=graph.as_graph_def())
    return Item.from_meta_graph(meta_graph, [one.name for one in fetches])


def pairs_of(item: Item, order: dict[str, int]) -> set[tuple[str, str]]:
    """Names of the pairs of a plan on one device, in this order of some ops before all others."""
    problem = analytic_problem(item, Cluster.logical(1))
    first = np.array([order.get(name, len(order)) for name in problem.op_names], np.int32)
    plan = Placement(problem, np.zeros(problem.num_units, np.int32), first)
    names = problem.op_names
    return {(names[before], names[after]) for before, after in ordered_pairs(plan, item).tolist()}


def test_no_edge_goes_round_through_a_loop():
    """What the loop's second variable gives depends, from its second turn on, on what its first takes in."""

    def build() -> list[tf.Tensor]:
        x = tf.zeros([4, 4])
        late = tf.exp(x, name="late")
        loop = v1.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, tf.sin(a), a + 0.0), [0, late, x])
        return [tf.cos(loop[2], name="after_loop"), tf.tan(x, name="free"), loop[1]]

    item = tf1_item(build)
    found = pairs_of(item, {"free": 0, "after_loop": 1})
    assert found and not {("after_loop", "late")} & found
    inside = {name for name in item.index.names if name.startswith("while/")}
    assert inside and not any(inside & set(pair) for pair in found)


def test_nothing_waits_for_what_a_branch_may_leave_out():
    def build() -> list[tf.Tensor]:
        x = v1.placeholder(tf.float32, [4, 4], name="x")
        branch = v1.cond(
            tf.reduce_sum(x) < 1.0, lambda: tf.exp(x, name="then"), lambda: tf.sin(x), name="cond"
        )
        return [branch + 1.0, tf.tan(x, name="free"), tf.cos(x, name="other")]

    item = tf1_item(build)
    conditional = {name for name in item.index.names if name.startswith("cond/") and "Merge" not in name}
    found = pairs_of(item, {name: i for i, name in enumerate([*sorted(conditional), "other", "free"])})
    assert found and len(conditional) > 2 and not any(conditional & set(pair) for pair in found)


def test_what_is_moved_or_may_wait_takes_no_edge():
    """A constant and an argument are replaced; a queue waits for another op."""

    def build() -> list[tf.Tensor]:
        x = v1.placeholder(tf.float32, [4], name="x")
        queue = v1.FIFOQueue(2, tf.float32, [[4]], name="queue")
        put, got = queue.enqueue(tf.exp(x, name="put_this"), name="put"), queue.dequeue(name="got")
        return [put, got + 0.0, tf.sin(x, name="a"), tf.cos(x, name="b")]

    found = pairs_of(tf1_item(build), {"got": 0, "b": 1, "a": 2})
    assert ("b", "a") in found
    assert not any({"got", "put", "x", "queue"} & set(pair) for pair in found)


def test_the_edges_of_a_plan_are_found_once(monkeypatch):
    plan = random_plan(0)
    edges, runs = order_edges(plan), []
    monkeypatch.setattr(order, "simulate", lambda *given, **how: runs.append(how) or simulate(*given, **how))
    assert order_edges(dataclasses.replace(plan)).tolist() == edges.tolist() and not runs
    order_edges(Placement(plan.problem, plan.device_of_unit, plan.priority_of_op[::-1]))
    slower = dataclasses.replace(plan.problem, compute_ns=plan.problem.compute_ns + 1)
    assert runs
    runs.clear()
    order_edges(Placement(slower, plan.device_of_unit, plan.priority_of_op))
    assert runs
