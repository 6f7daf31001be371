"""Replaces the calls inside library functions, too: in the bodies of loops and in branches.

Left there they would be something else than in the traced function, where TensorFlow inlines them:

- it remembers the gradient of what is called with the call that was traced, so a gradient taken of a
  placed function from outside would not be found;
- in a session, all calls of one function share its ops, and with them the states of its random ops.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import CALLS
from tf_placer.graph.cleaning.inline_calls import inline_calls
from tf_placer.graph.program import Program, with_nodes
from tf_placer.graph.program.function_tensors import all_offsets, flat_tensor, write_body
from tf_placer.graph.program.functions import is_compiled, keep_functions


def inline_in_functions(program: Program) -> Program:
    """Returns the program without calls in its library functions, as ``inline_calls`` does it and with its errors.

    A function that XLA must compile stays as it is.
    """
    library = program.graph_def.library
    call_ops = CALLS | {function.signature.name for function in library.function}
    result = with_nodes(program.graph_def, program.graph_def.node)
    for function in result.library.function:
        if any(node.op in call_ops for node in function.node_def) and not is_compiled(function):
            _write(function, inline_calls(_program_of(function, library)))
    return dataclasses.replace(program, graph_def=result)


def _program_of(function: function_pb2.FunctionDef, library: function_pb2.FunctionDefLibrary) -> Program:
    """Returns a function's body as a program of its own, its arguments as placeholders."""
    signature = function.signature
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.extend(node_def_pb2.NodeDef(name=a.name, op="Placeholder") for a in signature.input_arg)
    graph_def.node.extend(function.node_def)
    keep_functions(library, graph_def)
    offsets = all_offsets(function.node_def, graph_def.library)
    for node in graph_def.node:
        node.input[:] = [flat_tensor(text, offsets) for text in node.input]
    return Program(
        graph_def=graph_def,
        feeds=(),
        fetches=tuple(flat_tensor(function.ret[a.name], offsets) for a in signature.output_arg),
        control_outputs=tuple(function.control_ret[name] for name in signature.control_output),
        variables=(),
    )


def _write(function: function_pb2.FunctionDef, body: Program) -> None:
    """Gives a function another body: a program that has a placeholder for each of its arguments."""
    arguments = [argument.name for argument in function.signature.input_arg]
    results = [result.name for result in function.signature.output_arg]
    write_body(
        function,
        body.graph_def,
        dict(zip(arguments, arguments, strict=True)),
        dict(zip(results, body.fetches, strict=True)),
        body.control_outputs,
    )
