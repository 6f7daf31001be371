"""What is public, called where eager execution is off; prints what each call gives, as JSON.

Its first argument says how it is off: ``graph``, inside of ``tf.Graph().as_default()``; ``behavior``, by
``disable_v2_behavior``, which includes ``disable_eager_execution``; ``on``, not at all. The others are methods.
"""

import contextlib
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tf_placer


def graph_of_tensorflow_1() -> tf.compat.v1.MetaGraphDef:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 64], name="x")
        weights = tf.constant(np.ones((64, 64), np.float32))
        left, right = (tf.nn.relu(x @ weights + shift) @ weights for shift in (1.0, 2.0))
        tf.identity(left + right, name="y")
        return tf.compat.v1.train.export_meta_graph()


def state() -> list[Any]:
    """What ``eagerly`` may change for the time being."""
    return [
        tf.executing_eagerly(),
        type(tf.TensorShape([1])[0]).__name__,
        tf.compat.v1.resource_variables_enabled(),
        tf.compat.v1.control_flow_v2_enabled(),
        isinstance(tf.constant(1) == tf.constant(1), tf.Tensor),
    ]


def outcomes(methods: Sequence[str]) -> dict[str, Any]:
    before = state()
    found: dict[str, Any] = {}
    item = tf_placer.Item.from_meta_graph(graph_of_tensorflow_1(), ["y:0"])
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("k40x2"))
    one = problem.everything_on(0)
    evaluator = tf_placer.SimulatedEvaluator(problem)
    found["evaluate"] = evaluator.evaluate(one[np.newaxis]).runtime_s.tolist()
    found["schedule"] = int(np.asarray(evaluator.schedule(one[np.newaxis]).end_ns).max())
    for method in methods:
        result = tf_placer.search(problem, method, budget_evaluations=8, seed=3)
        found[method] = [result.runtime_s, result.lower_bound_s, result.placement.device_names]
    placed = tf_placer.apply_placement(item, result.placement)
    found["apply_placement"] = {node.name: node.device for node in placed.node}
    pinned = tf_placer.pinned(item, problem, {problem.op_names[0]: problem.cluster.devices[1].name})
    found["pinned"] = pinned.allowed.sum().item()
    with tempfile.TemporaryDirectory() as folder:
        tf_placer.write_timeline(pathlib.Path(folder) / "timeline.json", result.placement)
        found["write_timeline"] = (pathlib.Path(folder) / "timeline.json").stat().st_size
    doubled = tf.function(lambda x: x * 2.0)
    for name, example in {"array": np.ones([2], np.float32), "spec": tf.TensorSpec([2])}.items():
        traced = tf_placer.Item.from_function(doubled, example)
        found[f"from_function_{name}"] = [node.op for node in traced.graph_def.node]
        placement = tf_placer.Placement(
            of_one := tf_placer.build_problem(traced, tf_placer.Cluster.logical(1)), of_one.everything_on(0)
        )
        found[f"placed_function_{name}"] = tf_placer.placed_function(doubled, placement, example) is not None
    found["state"] = state() == before
    return found


def refusals() -> dict[str, str]:
    """Of tensors and variables of the graph, whose values are in a session."""
    variable = tf.Variable(tf.ones([2]))
    reading = tf.function(lambda x: x * variable)
    return {
        "example": _told(lambda: tf_placer.Item.from_function(tf.function(lambda x: x * 2.0), tf.ones([2]))),
        "capture": _told(lambda: tf_placer.Item.from_function(reading, np.ones([2], np.float32))),
    }


def _told(call: Callable[[], object]) -> str:
    try:
        call()
    except tf_placer.InputError as error:
        return str(error)
    return "not refused"


def main(how: str, *methods: str) -> None:
    around: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if how == "behavior":
        tf.compat.v1.disable_v2_behavior()
    elif how == "graph":
        around = tf.Graph().as_default()
    with around:
        found = outcomes(methods)
        if how != "on":
            found["refused"] = refusals()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
