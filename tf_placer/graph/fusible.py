"""Ops that XLA may compile, by what is known of their types and of this program."""

from __future__ import annotations

import tensorflow as tf

from colocation.op_facts import ENTERS, having, reached
from tf_placer.graph.item import Item
from tf_placer.graph.sizes.output_specs import OutputSpec

_XLA = having("xla")
_CONDITIONAL = ENTERS | having("switch")
_NO_NUMBERS = frozenset([tf.resource, tf.variant, tf.string])
_OWN_GRADIENT = "_gradient_op_type"


def why_not_fusible(item: Item) -> list[str]:
    """[N] for each op one clause that says why it cannot be in a cluster; "" where it can.

    Constants are in no cluster, because each has copies of those that it reads. Reads and updates of variables stay
    outside. So do random ops: XLA's generator takes a thousand times as long on a CPU as TensorFlow's.
    """
    index, outputs = item.index, item.outputs
    specs: list[list[OutputSpec]] = [list(of_op) for of_op in outputs]
    for producer, output, consumer, _ in index.data_edges.tolist():
        specs[consumer].append(outputs[producer][output])
    enters = [op for op, op_type in enumerate(index.op_types) if op_type in _CONDITIONAL]
    conditional = reached(enters, lambda op: index.consumers[op])
    kept = {*item.control_outputs, *item.host_ops}
    found = []
    for op, (name, op_type) in enumerate(zip(index.names, index.op_types, strict=True)):
        if op_type not in _XLA:
            found.append(f"XLA is not given ops of type {op_type}")
        elif name in kept:
            found.append("it has an effect outside of the step's results")
        elif any(spec.rule for spec in specs[op]):
            found.append("the shape of what it reads or makes depends on data")
        elif any(spec.dtype in _NO_NUMBERS for spec in specs[op]):
            found.append("it reads or makes no numbers")
        elif op in conditional:
            found.append("it runs in a loop or a branch of TensorFlow 1")
        elif _OWN_GRADIENT in item.graph_def.node[op].attr:
            found.append("it has a gradient of its own")
        else:
            found.append("")
    return found
