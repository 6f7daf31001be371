"""What the project takes from TensorFlow beside its public API: nothing else imports or reads a private name of it.

TensorFlow may move these in any release. Each is exercised by ``tests/colocation/tensorflow_internals_test.py``, so an
upgrade that moves one fails there by name. It is in the lowest band because ``colocation`` reads op definitions, and it
imports nothing that ``import tensorflow`` has not loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import device_attributes_pb2, function_pb2, kernel_def_pb2, op_def_pb2
from tensorflow.python.client import device_lib
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import function_type_utils, tracing_compilation
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework import function_def_to_graph, kernels, op_def_registry, tensor_util
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.handle_data_util import copy_handle_data, get_resource_handle_data
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

__all__ = [
    "BaseResourceVariable",
    "ConcreteFunction",
    "FuncGraph",
    "Function",
    "add_function",
    "call_flat",
    "called_graph",
    "concrete_function_like",
    "copy_handle_data",
    "folded_constant",
    "get_resource_handle_data",
    "graph_of_function_def",
    "local_devices",
    "process_config",
    "registered_kernels",
    "registered_op",
    "replace_captures",
    "set_storage",
    "storage",
    "trace",
]


def registered_op(op_type: str) -> op_def_pb2.OpDef | None:
    """Returns the definition of an op type, or None for one that is not registered."""
    return op_def_registry.get(op_type)


def registered_kernels(op_type: str) -> tuple[kernel_def_pb2.KernelDef, ...]:
    """Returns the kernels of an op type on every kind of device, present or not."""
    return tuple(kernels.get_registered_kernels_for_op(op_type).kernel)


def local_devices() -> list[device_attributes_pb2.DeviceAttributes]:
    """Returns this process's devices with ``memory_limit`` in bytes and a description, which the public API lacks."""
    return list(device_lib.list_local_devices())


def process_config() -> tf.compat.v1.ConfigProto:
    """Returns the options that eager calls in this process run with: threads, graph optimizations."""
    return context.context().config


def add_function(function: function_pb2.FunctionDef) -> None:
    """Makes a function known to this process, so that graphs can call it by name."""
    context.context().add_function_def(function)


def graph_of_function_def(
    function: function_pb2.FunctionDef, input_shapes: Sequence[tf.TensorShape | None]
) -> FuncGraph:
    """Returns the body of a library function as a graph, with shapes inferred from those of its arguments.

    Args:
      function: what it calls must be known to the current graph.
      input_shapes: one for each argument; None for one that is not known.

    Raises:
      ValueError, RuntimeError, tf.errors.OpError: TensorFlow does not accept it.
    """
    return function_def_to_graph.function_def_to_graph(function, input_shapes=input_shapes)


def folded_constant(tensor: tf.Tensor) -> np.ndarray | None:
    """Returns the value of a graph's tensor that depends on constants only, by the ops' own kernels; else None.

    ``tf.get_static_value`` knows a handful of ops only.
    """
    return tensor_util.try_evaluate_constant(tensor)


def trace(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[ConcreteFunction, list[tf.Tensor]]:
    """Returns the concrete function that a call would run, from the function's own cache, and the call's tensors.

    It is what ``Function.__call__`` does before it runs, so it costs what a call costs.
    """
    bound = function_type_utils.canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values, function._is_pure
    )
    if function._variable_creation_config is None:
        # The first trace may create variables; this initializes them.
        function.get_concrete_function(*args, **kwargs)
    options = (
        function._no_variable_creation_config
        if function._created_variables
        else function._variable_creation_config
    )
    concrete = tracing_compilation.trace_function(bound.args, bound.kwargs, options)
    bound = concrete.function_type.bind(*bound.args, **bound.kwargs)
    return concrete, concrete.function_type.unpack_inputs(bound)


def call_flat(concrete: ConcreteFunction, tensors: Sequence[tf.Tensor]) -> Any:
    """Calls a concrete function with its flat tensors; captures are added, and the outputs come structured."""
    return concrete._call_flat(tensors, concrete.captured_inputs)


def concrete_function_like(concrete: ConcreteFunction, graph: FuncGraph) -> ConcreteFunction:
    """Returns a graph with the inputs, captures and outputs of ``concrete``'s as a concrete function.

    It can be called, differentiated and saved as ``concrete`` can.
    """
    result = ConcreteFunction.from_func_graph(graph, concrete.function_type, {})
    result.set_variables(concrete.graph.variables)
    result._arg_keywords = concrete._arg_keywords  # what saving asks for
    result._num_positional_args = concrete._num_positional_args
    return result


def called_graph(graph: FuncGraph, name: str) -> FuncGraph | None:
    """Returns the traced body of a function that a graph calls, or None where there is no such function."""
    function = graph._get_function(name)
    return None if function is None else function.graph


def storage(variable: BaseResourceVariable) -> tf.Tensor | None:
    """Returns the handle of a variable's storage; None for one whose construction did not end."""
    return getattr(variable, "_handle", None)


def set_storage(variable: BaseResourceVariable, handle: tf.Tensor) -> None:
    """Gives a variable other storage; functions traced before still have the old one (``replace_captures``)."""
    variable._handle = handle


def replace_captures(
    function: ConcreteFunction | FuncGraph, replaced: Callable[[tf.Tensor], tf.Tensor]
) -> None:
    """Gives a function, traced or being traced, other captured tensors.

    Args:
      function: changed in place.
      replaced: returns what stands for a captured tensor; the tensor itself where nothing changes.
    """
    if isinstance(function, ConcreteFunction):
        function._captured_inputs = [replaced(captured) for captured in function._captured_inputs]
        return
    captures = function.captures
    outers = [replaced(outer) for outer, _ in captures]
    if any(new is not outer for new, (outer, _) in zip(outers, captures, strict=True)):
        function.function_captures.reset_captures(outers, [inner for _, inner in captures])
