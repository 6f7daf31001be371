"""A step of replicas trains as the whole batch does, on every device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import VARIABLES
from tests.tf_placer.data_parallel.steps import (
    BATCH,
    adam_lookup_step,
    dense_step,
    lookup_step,
    looped_step,
    reference_step,
)
from tf_placer.cluster.cluster import Cluster
from tf_placer.data_parallel.gradients import find_gradients
from tf_placer.data_parallel.replicated_program import replicated_program
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.graph_program import GraphProgram, build_program
from tf_placer.workloads import registry

STEPS = 3


def trained(program: GraphProgram, devices: int) -> dict[str, np.ndarray]:
    """Values of all float variables after some steps, by the names of their handles."""
    config = tf.compat.v1.ConfigProto(device_count={"CPU": devices})
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(program.graph_def, name="")
        handles = [
            node.name for node in program.graph_def.node if node.op in VARIABLES and "input_" not in node.name
        ]
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            for assignment in program.assignments:
                session.run(assignment.op, {assignment.placeholder: assignment.value})
            for _ in range(STEPS):
                session.run(program.step_ops)
            reads = {}
            for handle in handles:
                op = graph.get_operation_by_name(handle)
                with tf.device(op.device):
                    reads[handle] = (
                        tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))
                        if op.type == "VarHandleOp"
                        else op.outputs[0]
                    )
            return {name: value for name, value in session.run(reads).items() if value.dtype == np.float32}


def programs(whole: Item, part: Item, count: int) -> tuple[GraphProgram, GraphProgram]:
    """The whole step on one device, and replicas."""
    problem = analytic_problem(whole, Cluster.logical(count))
    placed = rewrite(whole, Placement(problem, problem.everything_on(0)))
    of_part = analytic_problem(part, Cluster.logical(count))
    found = find_gradients(whole, part)
    return build_program(whole, placed), replicated_program(whole, part, found, of_part, range(count))


def check_alike(whole: Item, part: Item, count: int) -> None:
    alone, replicated = programs(whole, part, count)
    expected, found = trained(alone, count), trained(replicated, count)
    assert expected and len(found) == count * len(expected)
    moved = 0.0
    initial = {variable.node: variable.value for variable in whole.variables}
    for name, value in expected.items():
        moved = max(moved, float(np.abs(value - initial[name]).max()))
        for r in range(count):
            np.testing.assert_allclose(
                found[f"replica_{r}/{name}"], value, rtol=1e-4, atol=2e-6, err_msg=name
            )
    assert moved > 1e-4, "nothing was trained, so nothing was compared"


@pytest.mark.parametrize("count", [2, 4])
def test_replicas_train_as_the_whole_batch_does(count: int) -> None:
    check_alike(dense_step(), dense_step(BATCH // count), count)


@pytest.mark.parametrize("step", [reference_step, looped_step])
def test_replicas_of_tensorflow_1_train_as_the_whole_batch_does(step) -> None:
    check_alike(step(), step(BATCH // 2), 2)


@pytest.mark.parametrize("step", [lookup_step, adam_lookup_step])
def test_slices_come_to_all(step) -> None:
    check_alike(step(), step(BATCH // 2), 2)


def test_the_ring_is_needed() -> None:
    whole, part = dense_step(), dense_step(BATCH // 2)
    problem = analytic_problem(part, Cluster.logical(2))
    alone = find_gradients(whole, part)
    nothing = type(alone)((), (), (), ())
    apart = trained(replicated_program(whole, part, nothing, problem, range(2)), 2)
    name = next(variable.node for variable in whole.variables if "weight" in variable.node)
    assert np.abs(apart[f"replica_0/{name}"] - apart[f"replica_1/{name}"]).max() > 1e-4


@pytest.mark.parametrize(("name", "batch"), [("two_towers", 16), ("dense_small", 8), ("branches_small", 6)])
def test_workloads_train_as_the_whole_batch_does(name: str, batch: int) -> None:
    count = 3 if batch % 3 == 0 else 2
    overrides = {"width": 16, "depth": 2} if name == "two_towers" else {}
    whole = registry.build(name, batch=batch, **overrides)
    check_alike(whole, registry.build(name, batch=batch // count, **overrides), count)
