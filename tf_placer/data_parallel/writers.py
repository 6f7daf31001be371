"""Ops that change a variable: by themselves, or in the body of a loop or in a branch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import having
from colocation.tensorflow_internals import registered_op
from tf_placer.graph.program.functions import function_names, functions_of

# Of the ops that take a resource or a reference, all others write.
_READERS = having("keeps_reference") | having("reads_variable") | having("reads_resource")
# What these change is gone when the step ends.
_OF_A_STEP = ("Stack", "TensorArray")


def writers(graph_def: tf.compat.v1.GraphDef) -> np.ndarray:
    """[N] bool, in the order of the nodes."""
    library = functions_of(graph_def.library)
    return np.array([_writes(node, library, set()) for node in graph_def.node], bool)


def _writes(
    node: node_def_pb2.NodeDef, library: Mapping[str, function_pb2.FunctionDef], seen: set[str]
) -> bool:
    """Whether a node changes a variable; functions that are ``seen`` are looked at elsewhere."""
    called = [name for name in function_names(node) if name in library]
    if called:
        new = [name for name in called if name not in seen]
        seen.update(new)
        return any(_writes(child, library, seen) for name in new for child in library[name].node_def)
    definition = registered_op(node.op)
    takes = [] if definition is None else definition.input_arg
    return not (node.op in _READERS or node.op.startswith(_OF_A_STEP)) and any(
        argument.is_ref or argument.type == tf.resource.as_datatype_enum for argument in takes
    )
