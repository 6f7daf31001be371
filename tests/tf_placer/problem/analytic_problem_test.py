"""A real training step as a Problem: nothing is lost on the way."""

import dataclasses
import importlib

import numpy as np
import pytest

from tests.tf1_programs import program
from tests.tf_placer.problem.small_problems import without_overheads
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.plain import single_device_placements
from tf_placer.problem.analytic_problem import analytic_problem, item_tensors

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
