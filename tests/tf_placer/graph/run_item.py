"""Runs each program for three steps, as traced and as an Item, and writes what both computed.

A process of its own: threads and determinism can only be set before TensorFlow's first op.
Usage: python run_item.py OUTPUT.pickle
"""

import pathlib
import pickle
import sys

import numpy as np
import tensorflow as tf
from programs import PROGRAMS
from tensorflow.python.ops import gen_resource_variable_ops

from tf_placer import workloads
from tf_placer.graph.item import Item

STEPS = 3


def run_eagerly(concrete, args, item: Item) -> dict:
    """Calls the traced function; the variables are those it captured or was given."""
    results = [tf.nest.flatten(concrete(*args), expand_composites=True) for _ in range(STEPS)]
    captures = [tensor.op.name for tensor in concrete.graph.internal_captures]
    named = dict(zip(captures, concrete.captured_inputs, strict=True))
    for argument in args:
        if isinstance(argument, tf.Variable):
            named[argument.name.partition(":")[0]] = argument.handle
    variables = {
        v.node: gen_resource_variable_ops.read_variable_op(named[v.capture], v.dtype).numpy()
        for v in item.variables
    }
    return {"fetches": [[t.numpy() for t in step] for step in results], "variables": variables}


def run_item(item: Item) -> dict:
    """Runs the graph in a session, from the variables' captured values."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(item.graph_def, name="")
        assigns, values, reads = [], {}, {}
        for variable in item.variables:
            handle = graph.get_tensor_by_name(f"{variable.node}:0")
            value = tf.compat.v1.placeholder(variable.dtype, variable.shape)
            assigns.append(gen_resource_variable_ops.assign_variable_op(handle, value))
            values[value] = variable.value
            reads[variable.node] = gen_resource_variable_ops.read_variable_op(handle, variable.dtype)
        effects = [graph.get_operation_by_name(name) for name in item.control_outputs]
        feeds = {f"{feed.node}:0": feed.value for feed in item.feeds}
        with tf.compat.v1.Session(config=config) as session:
            session.run(assigns, values)
            steps = [session.run([list(item.fetches), effects], feeds)[0] for _ in range(STEPS)]
            return {"fetches": [[np.asarray(x) for x in s] for s in steps], "variables": session.run(reads)}


def traced(name: str) -> Item:
    """A workload that is traced here, and not one that another process kept."""
    fn, args = workloads.function(name)
    return Item.from_function(fn, *args)


def main(path: str) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # Before determinism is on: with it TensorFlow traces some losses to other ops.
    fingerprints = {name: traced(name).fingerprint for name in workloads.names() if name in PROGRAMS}
    tf.random.set_seed(0)
    tf.config.experimental.enable_op_determinism()
    results = {}
    for name, factory in PROGRAMS.items():
        fn, args = factory()
        concrete = fn.get_concrete_function(*args)
        item = Item.from_function(concrete, *args, name=name)
        results[name] = {
            "item": run_item(item),
            "eager": run_eagerly(concrete, args, item),
            "fingerprint": fingerprints.get(name, item.fingerprint),
        }
    pathlib.Path(path).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
