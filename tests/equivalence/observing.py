"""What a program does, bit by bit: outputs, variables, side effects and gradients, under names to compare them by."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.eager import context

from tests.equivalence.building import Built
from tf_placer.graph.item import Item
from tf_placer.runtime.graph_program import session_config

CALLS = 3
Observation = dict[str, Any]


def bits(value: Any) -> Any:
    """A tensor's dtype, shape and bytes; texts as they are, since of those NumPy holds pointers."""
    if value is None:
        return None
    array = np.asarray(value)
    content = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return array.dtype.name, array.shape, content


def close(first: Any, second: Any) -> bool:
    """Whether two gradients' bits are those of numbers that differ by rounding only; None stands for zeros.

    Everything that is not float32 must be equal.
    """
    if first is None or second is None:
        one = first or second
        return one is None or not np.frombuffer(one[2], np.float32).any()
    if first == second or first[:2] != second[:2] or first[0] != "float32":
        return bool(first == second)
    a, b = (np.frombuffer(content, np.float32) for _, _, content in (first, second))
    largest = max(1.0, float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0)))
    return np.allclose(a, b, rtol=1e-4, atol=1e-5 * largest, equal_nan=True)


def observe(function: Callable[..., Any], built: Built) -> Observation:
    """Calls a function with the program's arguments, beginning from the variables as they are."""
    seen: Observation = {}
    for call in range(CALLS):
        outputs = function(*built.arguments(call))
        seen[f"structure of outputs, call {call}"] = repr(
            tf.nest.map_structure(lambda value: value is not None, outputs)
        )
        for k, output in enumerate(tf.nest.flatten(outputs)):
            seen[f"output {k}, call {call}"] = bits(output)
        seen |= _state(built, f"after call {call}")
    return seen


def observe_gradients(function: Callable[..., Any], built: Built) -> Observation:
    """Gradients through a call, taken outside of it, for the arguments and variables."""
    arguments = built.arguments(0)
    floats = [x for x in arguments if x.dtype.is_floating]
    sources: list[Any] = list(floats)
    names = [f"argument {k}" for k in range(len(sources))]
    for variable in built.state.matrices:
        sources.append(variable)
        names.append(variable.name)
    with tf.GradientTape() as tape:
        tape.watch(floats)  # variables it must find by itself
        outputs = [y for y in tf.nest.flatten(function(*arguments)) if y is not None and y.dtype.is_floating]
        # A weight for each output: else an exchange of two of them would change nothing.
        loss = tf.add_n([tf.reduce_sum(y) * (k + 1.0) for k, y in enumerate(outputs)] or [tf.constant(0.0)])
    gradients = [
        None if gradient is None else tf.convert_to_tensor(gradient)
        for gradient in tape.gradient(loss, sources)
    ]
    seen = {f"gradient for {name}": bits(gradient) for name, gradient in zip(names, gradients, strict=True)}
    return seen | _state(built, "after the gradients")


def observe_session(graph_def: tf.compat.v1.GraphDef, item: Item, built: Built) -> Observation:
    """Runs a placed graph in a session, from the values that the item's variables had when it was made.

    Returns:
      What ``observe`` says of outputs, side effects and of those variables that the item has.
    """
    built.state.recorded.clear()
    name_of_handle = {id(variable.handle): variable.name for variable in built.state.variables}
    names_of = {
        inner.op.name: name_of_handle[id(outer)]
        for outer, inner in built.concrete.graph.captures
        if id(outer) in name_of_handle
    }
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
        assignments, reads = [], {}
        for variable in item.variables:
            handle = graph.get_tensor_by_name(f"{variable.node}:0")
            value = tf.constant(variable.value, variable.dtype)
            assignments.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
            reads[names_of[variable.capture]] = tf.raw_ops.ReadVariableOp(
                resource=handle, dtype=variable.dtype
            )
    config = session_config()
    config.device_count["CPU"] = len(tf.config.list_logical_devices("CPU"))
    config.intra_op_parallelism_threads = 1
    names = [tensor.op.name for tensor in built.concrete.inputs]
    arguments = [[value.numpy() for value in built.arguments(call)] for call in range(CALLS)]
    fed = {feed.node for feed in item.feeds}
    effects = [graph.get_operation_by_name(name) for name in item.control_outputs]
    seen: Observation = {}
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        session.run(assignments)
        for call in range(CALLS):
            values = zip(names, arguments[call], strict=False)  # what follows in names are captures
            feeds = {f"{name}:0": value for name, value in values if name in fed}
            fetches, _ = session.run([list(item.fetches), effects], feeds)
            for k, fetch in enumerate(fetches):
                seen[f"fetch {k}, call {call}"] = bits(fetch)
            for name, value in session.run(reads).items():
                seen[f"{name} after call {call}"] = bits(value)
            seen[f"recorded after call {call}"] = _recorded(built)
    return seen


def as_session_saw_it(seen: Observation) -> Observation:
    """What ``observe`` saw, under the names of ``observe_session``: a session knows no structure and no None."""
    renamed = {key: value for key, value in seen.items() if not key.startswith(("output", "structure"))}
    for call in range(CALLS):
        values = [
            value for key, value in seen.items() if key.startswith("output") and key.endswith(f"call {call}")
        ]
        for k, value in enumerate(value for value in values if value is not None):
            renamed[f"fetch {k}, call {call}"] = value
    return renamed


def collecting(function: Callable[..., Any], graphs: list[graph_pb2.GraphDef]) -> Callable[..., Any]:
    """A function that was never called before, and that adds what TensorFlow runs for its first call to ``graphs``."""

    def collected(*arguments: tf.Tensor) -> Any:
        if graphs:
            return function(*arguments)
        ctx = context.context()
        ctx.enable_graph_collection()
        try:
            result = function(*arguments)
            graphs.extend(ctx.export_run_metadata().partition_graphs)
        finally:
            ctx.disable_graph_collection()
        return result

    return collected


def _state(built: Built, when: str) -> Observation:
    seen = {f"{variable.name} {when}": bits(variable.numpy()) for variable in built.state.variables}
    return seen | {f"recorded {when}": _recorded(built)}


def _recorded(built: Built) -> tuple[bytes, ...]:
    # Sorted: TensorFlow does not say in which order Python is called from the program and from a branch of it.
    return tuple(sorted(built.state.recorded))
