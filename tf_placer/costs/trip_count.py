"""How often a While loop runs, where its graph says so."""

from __future__ import annotations

import tensorflow as tf

from colocation.graph_index import GraphIndex, parse_input
from colocation.tensorflow_internals import folded_constant
from tf_placer.graph.sizes.called_shapes import keep_callbacks_from_running

# A maximum that takes more ops than this to compute is data, not a constant.
_MAX_ANCESTORS = 64
_MAX_ITERATIONS_INPUT = 1


def trip_count(index: GraphIndex, loop: int) -> int | None:
    """Iterations of a While op, or None when the graph does not say.

    ``tf.while_loop`` passes its ``maximum_iterations`` as the loop's second input (-1: no limit). Loops over
    a range and recurrent layers set it to their exact count, so it is taken for the count, which charges a
    loop that ends early too much; where it is a constant expression, its value is computed.

    Args:
      index: the graph with the loop.
      loop: op id of the While.
    """
    inputs = [text for text in index.graph_def.node[loop].input if not text.startswith("^")]
    if len(inputs) <= _MAX_ITERATIONS_INPUT:
        return None
    value = _constant_scalar(index, inputs[_MAX_ITERATIONS_INPUT])
    return value if value is not None and value >= 0 else None


def _constant_scalar(index: GraphIndex, tensor: str) -> int | None:
    """Value of an int32 scalar that depends on constants only."""
    _, name, output = parse_input(tensor)
    ancestors = _constant_ancestors(index, index.id_of_name[name])
    if ancestors is None:
        return None
    graph = tf.Graph()
    with graph.as_default():
        nodes = [index.graph_def.node[op] for op in sorted(ancestors)]
        constants = tf.compat.v1.GraphDef(node=nodes)
        keep_callbacks_from_running(constants.node)
        tf.graph_util.import_graph_def(constants, name="")
        constant = graph.get_tensor_by_name(f"{name}:{output}")
        if constant.dtype != tf.int32 or constant.shape.rank != 0:
            return None
        # Not in a session: what the value waits for (a file that is written) must not run.
        value = folded_constant(constant)
    return None if value is None else int(value)


def _constant_ancestors(index: GraphIndex, op: int) -> set[int] | None:
    """All ops that ``op`` depends on, itself included, or None if they are many or not constant."""
    found, pending = {op}, [op]
    while pending:
        node = index.graph_def.node[pending.pop()]
        if not node.input and node.op != "Const":
            return None
        for text in node.input:
            producer = index.id_of_name[parse_input(text)[1]]
            if producer not in found:
                found.add(producer)
                pending.append(producer)
        if len(found) > _MAX_ANCESTORS:
            return None
    return found
