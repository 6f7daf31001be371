"""A step on v1 variables and the same step on resource variables: the same memory and time."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.tf1_programs import made
from tests.tf_placer.problem.small_problems import without_overheads
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem

v1 = tf.compat.v1
Build = Callable[[bool], list[tf.Tensor | tf.Operation]]
ROWS, WIDTH, BATCH = 35_000_000, 64, 32  # a table of 8.96 GB


def layers(optimizer: Callable[[], v1.train.Optimizer]) -> Build:
    """Three dense layers."""

    def build(use_resource: bool) -> list[tf.Tensor | tf.Operation]:
        y = v1.placeholder(tf.float32, [None, WIDTH], name="x")
        for k in range(3):
            y = tf.tanh(y @ v1.get_variable(f"w{k}", [WIDTH, WIDTH], use_resource=use_resource))
        loss = tf.reduce_mean(y**2, name="loss")
        return [loss, optimizer().minimize(loss)]

    return build


def lookup(optimizer: Callable[[], v1.train.Optimizer]) -> Build:
    """Rows of a table, whose gradient is slices."""

    def build(use_resource: bool) -> list[tf.Tensor | tf.Operation]:
        which = v1.placeholder(tf.int32, [None], name="which")
        table = v1.get_variable("table", [100_000, WIDTH], use_resource=use_resource)
        loss = tf.reduce_mean(tf.nn.embedding_lookup(table, which) ** 2, name="loss")
        return [loss, optimizer().minimize(loss)]

    return build


def scattered(use_resource: bool) -> list[tf.Tensor | tf.Operation]:
    """A step of gradient descent on rows of a table."""
    which = v1.placeholder(tf.int32, [None], name="which")
    table = v1.get_variable("table", [ROWS, WIDTH], use_resource=use_resource)
    rows = tf.gather(table, which)
    change = tf.IndexedSlices(0.1 * rows, which)
    update = table.scatter_sub(change) if use_resource else v1.scatter_sub(table, which, change.values)
    return [tf.reduce_sum(rows, name="sum"), update.op]


def counters(use_resource: bool) -> list[tf.Tensor | tf.Operation]:
    """Counters and running sums that are added to."""
    x = v1.placeholder(tf.float32, [None, WIDTH], name="x")
    total = v1.get_variable("total", [WIDTH], use_resource=use_resource)
    steps = v1.get_variable("steps", [], tf.int64, use_resource=use_resource, trainable=False)
    added = v1.assign_add(total, tf.reduce_sum(x, 0)), v1.assign_sub(steps, tf.constant(2, tf.int64))
    return [one.op for one in added]


train = v1.train
STEPS: dict[str, Build] = {
    "sgd": layers(lambda: train.GradientDescentOptimizer(0.1)),
    "momentum": layers(lambda: train.MomentumOptimizer(0.1, 0.9)),
    "adam": layers(lambda: train.AdamOptimizer()),
    "rms_prop": layers(lambda: train.RMSPropOptimizer(0.1)),
    "centered_rms_prop": layers(lambda: train.RMSPropOptimizer(0.1, centered=True)),
    "adadelta": layers(lambda: train.AdadeltaOptimizer()),
    "adagrad": layers(lambda: train.AdagradOptimizer(0.1)),
    "ftrl": layers(lambda: train.FtrlOptimizer(0.1)),
    "proximal": layers(lambda: train.ProximalGradientDescentOptimizer(0.1)),
    "sparse_momentum": lookup(lambda: train.MomentumOptimizer(0.1, 0.9)),
    "sparse_adagrad": lookup(lambda: train.AdagradOptimizer(0.1)),
    "sparse_ftrl": lookup(lambda: train.FtrlOptimizer(0.1)),
    "scattered": scattered,
    "counters": counters,
}


@dataclasses.dataclass(frozen=True)
class Measures:
    """What twins have in common."""

    resident_bytes: int
    peak_bytes: int
    step_ns: int


def measures(build: Build, use_resource: bool) -> tuple[Measures, Problem]:
    found = made(lambda: build(use_resource))
    whole = Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=BATCH)
    problem = analytic_problem(whole, without_overheads(Cluster.preset("k40x2")))
    measured = SimulatedEvaluator(problem).evaluate(problem.everything_on(0)[np.newaxis])
    return Measures(
        resident_bytes=int(problem.resident_bytes.sum()),
        peak_bytes=int(measured.peak_bytes[0].max()),
        step_ns=round(float(measured.runtime_s[0]) * 1e9),
    ), problem


@pytest.mark.medium
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.filterwarnings("ignore:.*dtype is deprecated")
def test_twins_agree(name):
    reference, of_reference = measures(STEPS[name], use_resource=False)
    resource, of_resource = measures(STEPS[name], use_resource=True)
    assert {"VariableV2"} & set(of_reference.op_types) and not {"VariableV2"} & set(of_resource.op_types)
    # Adam's two powers are assigned: a value is copied into a v1 variable's buffer, and taken over by a resource.
    copied = [op for op, op_type in enumerate(of_reference.op_types) if op_type == "Assign"]
    copies_ns = int(of_reference.compute_ns[copied, 0].sum())
    assert (name == "adam") == bool(copied)
    assert dataclasses.replace(reference, step_ns=reference.step_ns - copies_ns) == resource


def test_an_update_of_rows_takes_as_long_as_the_rows():
    found, problem = measures(STEPS["scattered"], use_resource=False)
    table = ROWS * WIDTH * 4
    assert found.resident_bytes == table
    assert table < found.peak_bytes < table + (1 << 20)
    assert found.step_ns < 100_000
    assert problem.guessed_op_types == {}


def test_a_temporary_variable_is_there_for_the_step():
    def build() -> list[tf.Tensor]:
        buffer = tf.raw_ops.TemporaryVariable(shape=[1000], dtype=tf.float32, var_name="buffer")
        filled = tf.raw_ops.Assign(ref=buffer, value=v1.placeholder(tf.float32, [1000], name="x"))
        added = tf.raw_ops.AssignAdd(ref=filled, value=tf.ones([1000]))
        return [tf.raw_ops.DestroyTemporaryVariable(ref=added, var_name="buffer", name="result")]

    found = made(build)
    item = Item.from_meta_graph(found.meta_graph, found.fetches)
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    assert item.variables == ()
    assert problem.resident_bytes.sum() == 4000
