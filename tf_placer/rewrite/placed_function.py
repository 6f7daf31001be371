"""A placed graph as a callable again: the same arguments, captures, outputs and side effects."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import handle_data_util

from tf_placer.errors import InputError
from tf_placer.graph.from_function import example_tensors, function_name, traced
from tf_placer.graph.item import Item
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.apply_placement import check_made_for, check_placement
from tf_placer.rewrite.functions import (
    with_functions_of_their_own,
    with_functions_renamed,
    with_handle_data,
)
from tf_placer.rewrite.graph_def import place_graph
from tf_placer.rewrite.variables import move_to_devices, variables_of_handles

_serial = itertools.count()


def placed_function(fn: Any, placement: Placement, *example_args: Any) -> concrete_function.ConcreteFunction:
    """Returns ``fn`` as a concrete function whose ops and variables are where a placement puts them.

    Args:
      fn: a ``tf.function`` or ``ConcreteFunction``, or what ``tf.function`` can trace; left alone, though variables
        that move take it along.
      placement: one for ``Item.from_function(fn, *example_args)``.
      *example_args: what it was made for; without, zeros of the shapes that it was traced with. A ``tf.TensorSpec``
        stands for zeros of its shape. Other sizes of dimensions that were traced as unknown may be passed later.

    Raises:
      InputError: the placement was made for another graph, a variable cannot be moved, or an example is needed.
    """
    check_placement("placement", placement)
    example_args = example_tensors(example_args)
    concrete = traced(fn, example_args)
    item = Item.from_function(concrete, *(example_args or _zeros(concrete)))
    check_made_for(item, placement)
    devices = placement.device_names
    move_variables(concrete, item, devices)
    return placed_concrete_function(concrete, item, devices)


def _zeros(concrete: concrete_function.ConcreteFunction) -> list[tf.Tensor]:
    captured = {tensor.op.name for tensor in concrete.graph.internal_captures}
    inputs = [tensor for tensor in concrete.inputs if tensor.op.name not in captured]
    for tensor in inputs:
        if not tensor.shape.is_fully_defined():
            raise InputError(
                f"input {tensor.op.name!r} was traced with the shape {tensor.shape}; give example_args of the sizes "
                "that the placement was made for"
            )
    return [tf.zeros(tensor.shape, tensor.dtype) for tensor in inputs]


def move_variables(
    concrete: concrete_function.ConcreteFunction, item: Item, device_of_op: Mapping[str, str]
) -> None:
    """Moves the variables that a function captures to the devices of their handles' ops.

    Raises:
      InputError: one of them cannot be moved.
    """
    captures = (tensor.op.name for tensor in concrete.graph.internal_captures)
    handles = dict(zip(captures, concrete.captured_inputs, strict=True))
    for variable in item.variables:
        if variable.capture not in handles:
            raise InputError(
                f"variable {variable.node!r} is passed to {function_name(concrete)!r} as an argument, so a plan cannot "
                "move it; let the function capture it, as a closure or an attribute"
            )
    wanted = {variable.node: handles[variable.capture] for variable in item.variables}
    variable_of_handle = variables_of_handles(wanted.values(), likely=concrete.graph.variables)
    for node, handle in wanted.items():
        if id(handle) not in variable_of_handle:
            raise InputError(
                f"capture {node!r} is a resource that belongs to no tf.Variable any more, so it cannot be moved; keep "
                "the variable as long as the function"
            )
    move_to_devices((variable_of_handle[id(handle)], device_of_op[node]) for node, handle in wanted.items())


def placed_concrete_function(
    concrete: concrete_function.ConcreteFunction, item: Item, device_of_op: Mapping[str, str]
) -> concrete_function.ConcreteFunction:
    """Returns a concrete function that computes what ``concrete`` does, its ops where a plan puts them.

    It takes the same inputs, reads and updates the same variables, and may be called eagerly, from other
    functions and under a ``GradientTape``.

    Args:
      concrete: the traced function.
      item: ``Item.from_function(concrete, ...)``.
      device_of_op: a full device string for each op of the item. A variable must live where its handle's op is put
        (``move_variables``).

    Raises:
      InputError: the devices do not fit the graph (``place_graph``).
    """
    traced = {node.name: node for node in concrete.graph.as_graph_def().node}
    suffix = f"__placed_{next(_serial)}"
    placed_def = with_handle_data(place_graph(item.graph_def, device_of_op), concrete.graph)
    placed_def = with_functions_of_their_own(placed_def)
    graph_def = with_functions_renamed(placed_def, suffix)
    inputs = _restore_inputs(graph_def, concrete, item, traced)
    ctx = context.context()
    for function in graph_def.library.function:
        ctx.add_function_def(function)
    graph = func_graph.FuncGraph(
        f"{concrete.graph.name}{suffix}",
        structured_input_signature=concrete.structured_input_signature,
        structured_outputs=concrete.graph.structured_outputs,
    )
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
        _connect(graph, concrete, item, inputs)
    placed = concrete_function.ConcreteFunction.from_func_graph(graph, concrete.function_type, {})
    placed.set_variables(concrete.graph.variables)
    placed._arg_keywords = concrete._arg_keywords  # what saving asks for
    placed._num_positional_args = concrete._num_positional_args
    return placed


def _restore_inputs(
    graph_def: tf.compat.v1.GraphDef,
    concrete: concrete_function.ConcreteFunction,
    item: Item,
    traced: Mapping[str, node_def_pb2.NodeDef],
) -> list[str]:
    """Makes arguments of what the item made self-contained, with the shapes they were traced with.

    Returns:
      The node that stands for each of the function's inputs.
    """
    inputs = []
    node_of_name = {node.name: node for node in graph_def.node}
    handle_of_capture = {variable.capture: variable.node for variable in item.variables}
    for tensor in concrete.inputs:
        original = traced[tensor.op.name]
        name = handle_of_capture.get(original.name, original.name)
        node = node_of_name.get(name)
        if node is None:  # nothing needed it
            node = graph_def.node.add()
        elif node.op == "Const":  # a captured value: it stays a constant, on the devices that read it
            node = graph_def.node.add()
            name = f"{original.name}/unused"
        device = node.device
        node.CopyFrom(original)
        # An argument is where the caller has it; a variable's handle says where the variable is.
        node.name, node.device = name, device if original.name in handle_of_capture else ""
        node.attr.pop("_class", None)
        if tensor.dtype == tf.resource:
            # What is behind it is told later (`_connect`); until then its own shape would be taken for the variable's.
            node.attr["shape"].shape.Clear()
            node.attr["shape"].shape.unknown_rank = True
        inputs.append(name)
    return inputs


def _connect(
    graph: func_graph.FuncGraph,
    concrete: concrete_function.ConcreteFunction,
    item: Item,
    names: Sequence[str],
) -> None:
    """Sets the graph's inputs (the nodes of these names), captures, outputs and side effects."""
    inputs = []
    for tensor, name in zip(concrete.inputs, names, strict=True):
        here = graph.get_tensor_by_name(f"{name}:0")
        if tensor.dtype in (tf.resource, tf.variant):
            handle_data_util.copy_handle_data(tensor, here)
        if (
            tensor.dtype != tf.resource
        ):  # a known shape of a handle hides the variable's where a loop is differentiated
            here.set_shape(tensor.shape)
        inputs.append(here)
    here_of = {tensor.op.name: here for tensor, here in zip(concrete.inputs, inputs, strict=True)}
    graph.inputs = inputs
    for external, internal in concrete.graph.captures:
        graph.replace_capture(external, here_of[internal.op.name])
    outputs = [graph.get_tensor_by_name(name) for name in item.fetches]
    for output, original in zip(outputs, concrete.outputs, strict=False):
        if original.dtype in (tf.resource, tf.variant):
            handle_data_util.copy_handle_data(original, output)
    graph.outputs = outputs
    flat = iter(outputs)
    graph.structured_outputs = tf.nest.map_structure(
        lambda leaf: None if leaf is None else next(flat),
        concrete.graph.structured_outputs,
        expand_composites=True,
    )
    graph.control_outputs = [graph.get_operation_by_name(name) for name in item.control_outputs]
