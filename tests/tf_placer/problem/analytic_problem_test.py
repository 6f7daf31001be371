"""A real training step as a Problem: nothing is lost, what outputs hold at most, and what is proven not to fit."""

import dataclasses
import importlib

import numpy as np
import pytest

from tests.tf1_programs import program
from tests.tf_placer.evaluation import random_problems
from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import (
    problem_of,
    random_problem,
    small_cluster,
    without_overheads,
)
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.plain import single_device_placements
from tf_placer.problem.analytic_problem import analytic_problem, item_tensors
from tf_placer.problem.bounds import bytes_while_running, shortage

# The package's face has a function of the module's name.
build_problem_module = importlib.import_module("tf_placer.problem.analytic_problem")


@pytest.fixture(scope="module")
def item():
    return workloads.build("dense_small")


@pytest.fixture(scope="module")
def problem(item):
    return analytic_problem(item, Cluster.preset("k40x2"))


def test_every_op_is_there_with_a_unit_and_costs(item, problem):
    assert problem.op_names == item.index.names and problem.op_types == item.index.op_types
    assert problem.compute_ns.shape == (item.index.num_ops, 3)
    assert set(problem.unit_of_op.tolist()) == set(range(problem.num_units))
    assert problem.fingerprint == item.fingerprint
    assert problem.compute_ns.sum(axis=0).min() > 0


def test_work_is_kept_beside_the_times(item, problem):
    costs = analytic_costs(item, problem.cluster)
    np.testing.assert_array_equal(problem.work.flops, costs.work.flops)
    started = problem.work.launches > 0
    assert (started == (problem.compute_ns[:, 0] > 0)).all() and 0 < started.sum() < problem.num_ops


def test_tensor_bytes_add_up(item, problem):
    assert problem.tensor_bytes.sum() == sum(spec.num_bytes for outputs in item.outputs for spec in outputs)


def test_every_edge_of_the_graph_is_waited_for(item, problem):
    producer = problem.op_graph.producer
    waited = set(zip(producer.tolist(), problem.consumer_op.tolist(), strict=True))
    data, control = item.index.data_edges, item.index.control_edges
    assert waited == set(map(tuple, data[:, [0, 2]].tolist())) | set(map(tuple, control.tolist()))
    assert (producer < problem.consumer_op).all(), "ops must be in topological order"


def test_control_edges_carry_no_bytes(item):
    table = item_tensors(item)
    # Each (producer, output) once, and at most one more of 0 bytes per op with control readers.
    outputs = sum(len(o) for o in item.outputs)
    extra = len(np.unique(item.index.control_edges[:, 0]))
    assert len(table.producer) <= outputs + extra
    assert (np.diff(table.producer) >= 0).all()


def test_variables_stay(item, problem):
    assert problem.resident_bytes.sum() == sum(v.num_bytes for v in item.variables) > 0
    units = {problem.unit_of_op[item.index.id_of_name[v.node]] for v in item.variables}
    assert units == set(np.flatnonzero(problem.resident_bytes).tolist())


def test_every_single_device_placement_is_legal_and_runs(problem):
    placements = single_device_placements(problem)
    for placement in placements:
        problem.check_legal(placement)
    measurement = SimulatedEvaluator(problem).evaluate(placements)
    assert (measurement.runtime_s > 0).all()
    # Every op has kernels on both kinds of device, so on one GPU all run there, one after the other.
    assert (placements[0] == 0).all()
    alone = dataclasses.replace(problem, cluster=without_overheads(problem.cluster))
    [alone_s] = SimulatedEvaluator(alone).evaluate(placements[:1]).runtime_s
    assert alone_s == pytest.approx(problem.compute_ns[:, 0].sum() / 1e9)
    assert measurement.runtime_s[0] >= alone_s, "kernels wait for their host, never the other way round"


def test_an_op_without_a_kernel_anywhere_is_named(item, monkeypatch):
    def costs(item, cluster):
        found = analytic_costs(item, cluster)
        allowed = found.allowed.copy()
        allowed[7] = False
        return dataclasses.replace(found, allowed=allowed)

    monkeypatch.setattr(build_problem_module, "analytic_costs", costs)
    name, op_type = item.index.names[7], item.index.op_types[7]
    with pytest.raises(InputError) as error:
        analytic_problem(item, Cluster.preset("k40x2"))
    assert str(error.value) == f"op {name!r} ({op_type}) has a kernel on no device of cluster 'k40x2'"


def test_what_a_loop_of_tensorflow_1_keeps_of_all_iterations_is_resident():
    found = program("recurrent_training")
    problem = analytic_problem(Item.from_meta_graph(found.meta_graph, found.fetches), Cluster.preset("k40x2"))
    weights = 12 * 4
    # Five steps of three examples: eight inputs in an array, four results in one and four gradients in another; on
    # stacks the state, what was multiplied with the weights, and twice the counter.
    of_a_step = 3 * (8 + 4 + 4) + 3 * (4 + 12) + 2
    assert problem.resident_bytes.sum() == 4 * (weights + 5 * of_a_step)
    assert (
        problem.resident_bytes > 0
    ).sum() == 2  # the weights; the loop, which is one unit with its gradient


def test_what_waits_for_the_backward_pass_counts_and_what_is_gone_does_not():
    # Forward 0, 1, 2, whose outputs wait for 5, 4, 3. When 3 runs, those of 0 (10), 1 (20), 2 (40) and 3 (1) are alive.
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4), (0, 5)]
    tensor = [0, 1, 2, 3, 4, 1, 0]
    problem = problem_of([1] * 6, edges, [10, 20, 40, 1, 1, 20, 10], edge_tensor=tensor)
    assert problem.held_bytes().tolist() == [10, 20, 40, 1, 0, 0]


def test_an_output_that_nobody_reads_is_held_while_its_op_runs():
    assert problem_of([1, 1], [], output_bytes=[5, 7]).held_bytes().tolist() == [0, 7]
    assert problem_of([1, 1], []).held_bytes().tolist() == [0, 0]


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_together_they_are_the_peak_of_a_chain_on_one_device(seed, is_shared):
    """Of memory that is shared, too, which counts once: every second op writes into what the one before it made."""
    generator = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(11)] + [(i, 11 - i) for i in range(5)]
    edge_bytes = 8 if is_shared else generator.integers(1, 99, len(edges))
    problem = problem_of(generator.integers(1, 9, 12), edges, edge_bytes, cluster=small_cluster(1))
    if is_shared:
        alias = np.full(len(problem.tensor_producer), -1)
        for tensor, op in enumerate(problem.tensor_producer):
            read = problem.op_graph.tensor[problem.consumer_op == op]
            if op % 2 and len(read):
                alias[tensor] = read[-1]
        alias[0] = 0  # an input of the program
        problem = dataclasses.replace(problem, alias_of_tensor=alias)
    peak = SimulatedEvaluator(problem).evaluate(np.zeros((1, 12))).peak_bytes[0, 0]
    assert problem.held_bytes().sum() == peak


def test_a_random_problem_holds_no_more_than_all_its_outputs():
    problem = random_problem(np.random.default_rng(0), 15, 3)
    held = problem.held_bytes()
    assert (held >= 0).all() and 0 < held.sum() <= problem.tensor_bytes.sum()


GPU = "/job:localhost/replica:0/task:0/device:GPU:"


def test_a_unit_larger_than_every_device_is_named_with_what_is_missing():
    problem = problem_of(
        [1] * 3, [], cluster=sized_cluster([10, 25]), resident_bytes=[5, 40, 30], names=["a", "b", "c"]
    )
    assert shortage(problem) == (
        f"the unit of op 'b' (1 op) fits on no device: 40 bytes stay there, and {GPU}1 with 25 bytes is 15 bytes short"
    )


def test_a_device_that_is_large_enough_but_has_no_kernel_does_not_count():
    allowed = np.array([[True, False], [True, True]])
    problem = problem_of(
        [1] * 2, [], cluster=sized_cluster([10, 99]), resident_bytes=[15, 1], allowed=allowed,
        names=["a", "b"],
    )  # fmt: skip
    assert f"op 'a' (1 op) fits on no device: 15 bytes stay there, and {GPU}0 with 10 bytes is 5" in shortage(
        problem
    )


def test_what_an_op_reads_and_writes_is_there_while_it_runs():
    # Unit 2 reads 30 and 20 and writes 10, with 1 that stays: 61 of 60.
    problem = problem_of(
        [1] * 3,
        [(0, 2), (1, 2)],
        [30, 20],
        cluster=small_cluster(2, memory_bytes=60),
        resident_bytes=[0, 0, 1],
        output_bytes=[0, 0, 10],
        names=["a", "b", "c"],
    )
    told = shortage(problem)
    assert "'c' (1 op) fits on no device: 1 bytes stay there, 60 are held while op 'c' runs" in told
    assert told.endswith("with 60 bytes is 1 bytes short")
    assert (SimulatedEvaluator(problem).evaluate(np.array([[0, 1, 0], [0, 0, 0]])).status == 1).all()
    enough = problem_of(
        [1] * 3, [(0, 2), (1, 2)], [30, 20], cluster=small_cluster(2, memory_bytes=60), output_bytes=10
    )
    assert shortage(enough) is None


def test_more_than_all_devices_have_together():
    problem = problem_of(
        [1] * 5, [], cluster=sized_cluster([20, 25]), resident_bytes=[10, 9, 10, 10, 11], names=list("abcde")
    )
    assert shortage(problem) == (
        f"50 bytes stay with units and {GPU}0, {GPU}1 have together 45: 5 bytes short; "
        "most is with the variables in the unit of op 'e' (11), the unit of op 'a' (10), the unit of op 'c' (10)"
    )


def test_units_that_run_on_some_devices_only_against_those():
    allowed = np.array([[True, False, False], [True, False, False], [True, True, True]])
    problem = problem_of(
        [1] * 3, [], cluster=sized_cluster([15, 99, 99]), resident_bytes=[10, 10, 50], allowed=allowed,
        names=["a", "b", "c"],
    )  # fmt: skip
    assert f"20 bytes stay with units that run nowhere else and {GPU}0 has 15: 5 bytes short" in shortage(
        problem
    )


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_proven_where_something_fits(seed):
    generator = np.random.default_rng(seed)
    edges = [(i, j) for i in range(6) for j in range(i + 1, 6) if generator.random() < 0.4]
    problem = problem_of(
        generator.integers(0, 3, 6),
        edges,
        generator.integers(0, 30, len(edges)),
        cluster=sized_cluster(generator.integers(40, 90, 2).tolist()),
        resident_bytes=generator.integers(0, 30, 6),
    )
    every = np.array([[row >> unit & 1 for unit in range(6)] for row in range(64)])
    fits = (SimulatedEvaluator(problem).evaluate(every).status == 0).any()
    assert shortage(problem) is None or not fits


def test_no_simulated_step_has_less_than_what_one_of_its_ops_needs():
    shared = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        problem = random_problems.random_problem(rng)
        running, _ = bytes_while_running(problem)
        row = rng.integers(0, problem.num_devices, problem.num_units).astype(np.int32)
        peak = SimulatedEvaluator(problem).evaluate(row[np.newaxis]).peak_bytes[0]
        units = np.arange(problem.num_units)
        assert (problem.resident_bytes + running[units, row] <= peak[row]).all(), seed
        shared += (problem.alias_of_tensor >= 0).any()
    assert shared > 50
