"""Places functions over worker processes of which some ops need this one, and prints what differs, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.placed_function import move_variables, placed_concrete_function
from tf_placer.workers.connection import attach

HERE = "/job:localhost/replica:0/task:0/device:CPU:0"


def spread(function, args: tuple, cluster: Cluster, here: Mapping[str, str]):
    """``function`` on both workers, and the devices of its ops once it is made."""
    concrete = function.get_concrete_function(*args)
    item = Item.from_function(concrete, *args)
    problem = analytic_problem(item, cluster)
    generator = np.random.default_rng(1)
    row = [generator.choice(np.flatnonzero(allowed)) for allowed in problem.allowed]
    placement = Placement(problem, row)
    devices = {name: here[device] for name, device in placement.device_names.items()}
    move_variables(concrete, item, devices)
    placed = placed_concrete_function(concrete, item, placement, devices)
    return placed, {op.name: op.device for op in placed.graph.get_operations() if op.device}


def main() -> None:
    outcomes = {}
    rows = iter(tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(24.0), [8, 3])).batch(2))  # before
    cluster = Cluster.local(cores=2)
    here = attach(cluster)
    entries = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2]))
    table = tf.lookup.StaticHashTable(entries, 0)
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
    sums = [30.0, 1.5 * 2 * (21 + 30)]  # of rows 0 to 5 times ones, then of 6 to 11 times one and a half
    relu = [
        np.array([[3.0, 3.0], [12.0, 12.0]]) + 60.0,
        1.5 * np.array([[21.0] * 2, [30.0] * 2]) + 2 * sums[1],
    ]

    def values() -> bool:
        expected = [[relu[k].tolist(), [1, 2], 6] for k in range(2)]
        return [one[:3] for one in results] == expected and seen == sums

    def what_needs_this_process_is_in_it() -> bool:
        host = {"IteratorGetNext", "LookupTableFindV2", "ReduceDataset", "EagerPyFunc"}
        found = [op for op in placed.graph.get_operations() if op.type in host]
        return {op.type for op in found} == host and {op.device for op in found} == {HERE}

    def the_rest_is_on_the_workers() -> bool:
        workers = set(here.values())
        computing = {
            op.device for op in placed.graph.get_operations() if op.type in ("MatMul", "Relu", "Sin", "AddV2")
        }
        return (
            computing <= workers
            and {weights.device, count.device} <= workers
            and len(set(devices.values())) == 3
        )

    checks: tuple[Callable[[], bool], ...] = (
        values,
        what_needs_this_process_is_in_it,
        the_rest_is_on_the_workers,
    )
    for check in checks:
        outcomes[check.__name__] = "ok" if check() else f"different: {results} {seen} {devices}"
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
