"""The devices that a program itself asks for, with ``tf.device`` or in its GraphDef."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tensorflow.core.framework import function_pb2, node_def_pb2, types_pb2

from colocation.argument_types import input_types, is_ref, takes_special_inputs
from tf_placer.graph.program import Program, with_nodes
from tf_placer.graph.program.functions import function_names, functions_of, is_compiled


def requested_devices(program: Program) -> dict[str, tuple[str, ...]]:
    """Returns what the ops of a program's main graph ask for; ops that ask for nothing are left out.

    An op asks for its own device first, then for those of the ops in its branches and bodies, because it runs with
    them on one device. What XLA compiles runs where its call is, whatever it asks for inside. An op that takes a
    variable's handle runs where the variable is: TensorFlow pays no heed to what it asks for, and it is left out.

    Args:
      program: after all calls were inlined.

    Returns:
      Op name -> device strings, whole or in part, each once.
    """
    library = functions_of(program.graph_def.library)
    inside: dict[str, tuple[str, ...]] = {}
    found = {node.name: _asked(node, library, inside) for node in program.graph_def.node}
    return {name: devices for name, devices in found.items() if devices}


def without_devices(program: Program) -> Program:
    """Returns the program with no device on any node, those of its functions included."""
    graph_def = with_nodes(program.graph_def, program.graph_def.node)
    for node in [*graph_def.node, *(node for f in graph_def.library.function for node in f.node_def)]:
        node.device = ""
    return dataclasses.replace(program, graph_def=graph_def)


def _asked(
    node: node_def_pb2.NodeDef,
    library: Mapping[str, function_pb2.FunctionDef],
    inside: dict[str, tuple[str, ...]],
) -> tuple[str, ...]:
    """What a node asks for; ``inside`` remembers it of functions."""
    called = [name for name in dict.fromkeys(function_names(node)) if name in library]
    if not called:
        return (node.device,) if node.device and not _follows_a_variable(node) else ()
    own = (node.device,) if node.device else ()
    if is_compiled(node):
        return own
    return tuple(
        dict.fromkeys([*own, *(device for name in called for device in _asked_in(name, library, inside))])
    )


def _asked_in(
    name: str, library: Mapping[str, function_pb2.FunctionDef], inside: dict[str, tuple[str, ...]]
) -> tuple[str, ...]:
    if name not in inside:
        inside[name] = ()  # for a function that calls itself
        if not is_compiled(library[name]):
            asked = (device for node in library[name].node_def for device in _asked(node, library, inside))
            inside[name] = tuple(dict.fromkeys(asked))
    return inside[name]


def _follows_a_variable(node: node_def_pb2.NodeDef) -> bool:
    return takes_special_inputs(node.op) and any(
        dtype == types_pb2.DT_RESOURCE or is_ref(dtype) for dtype in input_types(node)
    )
