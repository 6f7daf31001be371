"""Where a plan is for other processes, what needs this one stays in it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.placed_function import move_variables, placed_concrete_function, with_host_ops_here
from tf_placer.workers.local_workers import attach

HERE = "/job:localhost/replica:0/task:0/device:CPU:0"
WORKER = "/job:worker/replica:0/task:0/device:CPU:0"


def on_workers(test: Callable) -> Callable:
    return pytest.mark.slow(pytest.mark.own_process(test))


def test_units_of_what_needs_this_process_come_here():
    rows = iter(tf.data.Dataset.range(3))
    item = Item.from_function(tf.function(lambda x: tf.abs(next(rows) + x)), tf.constant(1, tf.int64))
    planned = dict.fromkeys(item.index.names, WORKER)
    found = with_host_ops_here(item, planned)
    assert {
        op_type
        for name, op_type in zip(item.index.names, item.index.op_types, strict=True)
        if found[name] == HERE
    } == {"Placeholder", "IteratorGetNext"}  # the iterator and what reads it
    assert set(planned.values()) == {WORKER}


def test_a_plan_for_this_process_stays():
    item = Item.from_function(
        tf.function(lambda x: tf.py_function(lambda y: y, [x], tf.float32)), tf.constant(1.0)
    )
    planned = dict.fromkeys(item.index.names, HERE.replace("CPU:0", "CPU:1"))
    assert with_host_ops_here(item, planned) == planned


def test_a_program_of_tensors_stays():
    item = Item.from_function(tf.function(lambda x: x + 1.0), tf.constant(1.0))
    planned = dict.fromkeys(item.index.names, WORKER)
    assert with_host_ops_here(item, planned) is planned


def spread(function, args: tuple, cluster: Cluster, here: Mapping[str, str]):
    """``function`` on both workers, and the devices of its ops once it is made."""
    concrete = function.get_concrete_function(*args)
    item = Item.from_function(concrete, *args)
    problem = analytic_problem(item, cluster)
    generator = np.random.default_rng(1)
    placement = Placement(problem, [generator.choice(np.flatnonzero(allowed)) for allowed in problem.allowed])
    devices = {name: here[device] for name, device in placement.device_names.items()}
    move_variables(concrete, item, devices)
    placed = placed_concrete_function(concrete, item, placement, devices)
    return placed, {op.name: op.device for op in placed.graph.get_operations() if op.device}


class Run(NamedTuple):
    """A function over two workers that was called twice."""

    placed: Any
    devices: dict[str, str]
    here: Mapping[str, str]
    variables: tuple[tf.Variable, ...]
    results: list[list[Any]]
    seen: list[float]


@pytest.fixture(scope="module")
def run() -> Run:
    rows = iter(tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(24.0), [8, 3])).batch(2))  # before
    cluster = Cluster.local(cores=2)
    here = attach(cluster)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2])), 0)
    data = tf.data.Dataset.range(4)
    weights, count = tf.Variable(tf.ones([3, 2])), tf.Variable(0.0)
    seen: list[float] = []

    @tf.function
    def f(words):
        y = next(rows) @ weights
        key = table.lookup(words)
        total = data.reduce(tf.constant(0, tf.int64), tf.add)
        told = tf.py_function(
            lambda value: seen.append(float(value)) or value * 2.0, [tf.reduce_sum(y)], tf.float32
        )
        weights.assign_add(tf.ones([3, 2]) * 0.5)
        count.assign_add(tf.cast(tf.reduce_sum(key), tf.float32))
        return tf.nn.relu(y) + told, key, total, tf.sin(count)

    placed, devices = spread(f, (tf.constant(["a", "c"]),), cluster, here)
    results = [[np.asarray(one).tolist() for one in placed(tf.constant(["a", "b"]))] for _ in range(2)]
    return Run(placed, devices, here, (weights, count), results, seen)


@on_workers
def test_it_computes_the_same(run):
    sums = [30.0, 1.5 * 2 * (21 + 30)]  # of rows 0 to 5 times ones, then of 6 to 11 times one and a half
    relu = [
        np.array([[3.0, 3.0], [12.0, 12.0]]) + 60.0,
        1.5 * np.array([[21.0] * 2, [30.0] * 2]) + 2 * sums[1],
    ]
    assert [result[:3] for result in run.results] == [[relu[k].tolist(), [1, 2], 6] for k in range(2)]
    assert run.seen == sums


@on_workers
def test_what_needs_this_process_is_in_it(run):
    host = {"IteratorGetNext", "LookupTableFindV2", "ReduceDataset", "EagerPyFunc"}
    found = [op for op in run.placed.graph.get_operations() if op.type in host]
    assert {op.type for op in found} == host
    assert {op.device for op in found} == {HERE}


@on_workers
def test_the_rest_is_on_the_workers(run):
    workers, types = set(run.here.values()), ("MatMul", "Relu", "Sin", "AddV2")
    assert {op.device for op in run.placed.graph.get_operations() if op.type in types} <= workers
    assert {variable.device for variable in run.variables} <= workers
    assert len(set(run.devices.values())) == 3
