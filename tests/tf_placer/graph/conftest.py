"""Small graphs for the clean-ups."""

import pytest
import tensorflow as tf

from tf_placer.graph.program import Program


@pytest.fixture
def program_of():
    """Makes a Program of ``name = Op(input, ...); ... -> results | control outputs``: every tensor is a float."""
    return _program_of


def _program_of(text: str) -> Program:
    graph_def = tf.compat.v1.GraphDef()
    nodes, _, ends = text.partition(" -> ")
    for line in nodes.split("; "):
        name, _, call = line.partition(" = ")
        op, _, arguments = call.rstrip(")").partition("(")
        node = graph_def.node.add(name=name, op=op)
        node.input.extend(argument for argument in arguments.split(", ") if argument)
        data = [argument for argument in node.input if not argument.startswith("^")]
        if op == "IdentityN":
            node.attr["T"].list.type.extend([tf.float32.as_datatype_enum] * len(data))
        elif op in ("Const", "Placeholder"):
            node.attr["dtype"].type = tf.float32.as_datatype_enum
            if op == "Const":
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1.5))
        elif op not in ("NoOp", "ReadVariableOp", "AssignVariableOp", "VarHandleOp"):
            node.attr["T"].type = tf.float32.as_datatype_enum
    fetches, control_outputs = (tuple(filter(None, names.split(", "))) for names in ends.split(" | "))
    return Program(graph_def, (), fetches, control_outputs, ())
