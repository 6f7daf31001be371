"""Values that a graph has before it runs: small whole numbers made of constants and sizes of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import GraphIndex, copy_of, data_inputs, having
from colocation.tensorflow_internals import registered_op
from tf_placer.graph.sizes import OutputSpec

_MOST_ELEMENTS = 4096
_SIZES = having("metadata")
_NEVER = (
    having("loop") | having("branch") | having("call") | having("python") | having("enter") | having("exit")
)
_NEVER |= having("merge") | having("next") | having("switch") | {"Placeholder", "_Arg"}


def known_values(
    index: GraphIndex, outputs: Sequence[Sequence[OutputSpec]]
) -> dict[tuple[int, int], np.ndarray]:
    """(op, output) -> value of the small tensors of whole numbers that depend on no data.

    Args:
      index: a graph in topological order.
      outputs: [N] of each op; a size that is an estimate makes no value.
    """
    inputs: list[list[tuple[int, int]]] = [[] for _ in index.names]
    for producer, output, consumer, _ in index.data_edges.tolist():
        inputs[consumer].append((producer, output))
    known: dict[tuple[int, int], np.ndarray] = {}
    to_run: list[int] = []
    is_known = np.zeros(index.num_ops, bool)
    for op, node in enumerate(index.graph_def.node):
        if not _is_small(outputs[op]):
            continue
        if node.op == "Const":
            known[op, 0] = tf.make_ndarray(node.attr["value"].tensor)
            is_known[op] = True
        elif node.op in _SIZES:
            is_known[op] = _add_sizes(op, node.op, inputs[op], outputs, known)
        elif all(is_known[producer] for producer, _ in inputs[op]) and may_run(node):
            is_known[op] = True
            to_run.append(op)
    known.update(_run(index, outputs, inputs, to_run, known))
    return known


def _is_small(specs: Sequence[OutputSpec]) -> bool:
    return bool(specs) and all(
        (spec.dtype.is_integer or spec.dtype.is_bool)
        and math.prod(spec.shape) <= _MOST_ELEMENTS
        and not spec.rule
        for spec in specs
    )


def may_run(node: tf.compat.v1.NodeDef) -> bool:
    """Whether an op can be run before the step: its value depends on its inputs alone, of which it has some."""
    definition = registered_op(node.op)
    return (
        definition is not None
        and not definition.is_stateful
        and node.op not in _NEVER
        and bool(data_inputs(node))
    )


def _add_sizes(
    op: int,
    op_type: str,
    inputs: Sequence[tuple[int, int]],
    outputs: Sequence[Sequence[OutputSpec]],
    known: dict[tuple[int, int], np.ndarray],
) -> bool:
    for number, (producer, output) in enumerate(inputs):
        source = outputs[producer][output]
        if source.rule or source.dtype in (tf.resource, tf.variant):
            return False
        size = {"Rank": len(source.shape), "Size": math.prod(source.shape)}.get(op_type, source.shape)
        known[op, number] = np.asarray(size, outputs[op][number].dtype.as_numpy_dtype)
    return True


def _run(
    index: GraphIndex,
    outputs: Sequence[Sequence[OutputSpec]],
    inputs: Sequence[Sequence[tuple[int, int]]],
    to_run: Sequence[int],
    known: dict[tuple[int, int], np.ndarray],
) -> dict[tuple[int, int], np.ndarray]:
    """Runs ops without state on constants, all in one session, and gives their outputs."""
    if not to_run:
        return {}
    graph_def = tf.compat.v1.GraphDef(versions=index.graph_def.versions)
    made: set[tuple[int, int]] = set()
    for op in to_run:
        for producer, output in inputs[op]:
            if (producer, output) in known and (producer, output) not in made:
                made.add((producer, output))
                node = graph_def.node.add(name=f"known_{producer}_{output}", op="Const")
                value = tf.make_tensor_proto(known[producer, output])
                node.attr["value"].tensor.CopyFrom(value)
                node.attr["dtype"].type = value.dtype
        node = index.graph_def.node[op]
        texts = []
        for producer, output in inputs[op]:
            is_constant = (producer, output) in known
            texts.append(f"known_{producer}_{output}" if is_constant else f"op_{producer}:{output}")
        copy = copy_of(node, texts, f"op_{op}")
        copy.attr.pop("_class", None)
        graph_def.node.append(copy)
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    wanted = {(op, i): f"op_{op}:{i}" for op in to_run for i in range(len(outputs[op]))}
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        return session.run(wanted)
