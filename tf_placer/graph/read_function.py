"""A traced ``tf.function`` as one Program: captures become variables and constants, inputs feeds."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.tensorflow_internals import (
    ConcreteFunction,
    functions_of,
    get_resource_handle_data,
    has_python_gradient,
)
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, told
from tf_placer.graph.program import (
    Feed,
    HostCapture,
    ItemVariable,
    Program,
    check_restorable,
    fresh_name,
    renamed_input,
    tensor_bytes,
    with_nodes,
)

# Type in a resource's handle; below, its name for users.
_RESOURCE_TYPE = re.compile(r'type="(?:tensorflow::)?([^"]*)"')
_KINDS = {
    "data::IteratorResource": "an iterator",
    "data::MultiDeviceIterator": "an iterator",
    "lookup::LookupInterface": "a table",
    "QueueInterface": "a queue",
    "SummaryWriterInterface": "a summary writer",
    "Var": "a variable that holds no numbers",
}


def program_of_function(fn: Any, *example_args: Any) -> Program:
    """Traces ``fn`` on example arguments and returns its graph, calls not inlined yet.

    Args:
      fn: a ``tf.function`` or ``ConcreteFunction``, or what ``tf.function`` can trace.
      *example_args: what it would be called with; tensors, arrays and a ``tf.TensorSpec`` become feeds.

    Returns:
      The program; each captured variable is a ``VarHandleOp`` with a unique ``shared_name``,
      other captured tensors are constants, tables, iterators and datasets stay placeholders
      (``host_captures``). Nodes keep the devices that they ask for.
    """
    example_args = example_tensors(example_args)
    concrete = traced(fn, example_args)
    for name, function in functions_of(concrete.graph).items():
        if has_python_gradient(function):
            raise InputError(
                f"function {function_name(concrete)!r} calls the Defun {name!r}, whose gradient in Python placing "
                "would lose; write it with tf.custom_gradient"
            )
    # Right after tracing: taking a gradient later changes this graph's loops and branches.
    graph_def = concrete.graph.as_graph_def()
    # A gradient taken before has appended what it needs to the outputs.
    outputs = concrete.outputs[: len(concrete.function_type.flat_outputs)]
    values = _input_values(concrete, example_args)
    captures = dict(zip(_names(concrete.graph.internal_captures), concrete.captured_inputs, strict=True))
    handles = {name: value for name, value in values.items() if value.dtype in (tf.resource, tf.variant)}
    replaced = _Captures(graph_def, concrete, {**captures, **handles})
    nodes = [replaced.node(node) for node in graph_def.node]
    is_open = {tensor.op.name: not tensor.shape.is_fully_defined() for tensor in concrete.graph.inputs}
    feeds = {
        name: Feed(name, tuple(value.shape.as_list()), value.dtype, _array(value), is_open[name])
        for name, value in values.items()
        if name not in handles
    }
    for node in nodes:
        if node.name in feeds:
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(feeds[node.name].shape).as_proto())
            node.attr.pop("_output_shapes", None)
    return Program(
        graph_def=with_nodes(graph_def, nodes),
        feeds=tuple(feeds.values()),
        fetches=tuple(replaced.renamed_input(tensor.name) for tensor in outputs),
        control_outputs=tuple(op.name for op in concrete.graph.control_outputs),
        variables=tuple(replaced.variables),
        host_captures=tuple(replaced.host_captures),
    )


def example_tensors(example_args: tuple) -> tuple:
    """Example arguments with tensors for arrays, and zeros for each ``tf.TensorSpec``."""
    return tuple(
        tf.nest.map_structure(functools.partial(_as_tensor, f"example_args[{position}]"), value)
        for position, value in enumerate(example_args)
    )


def _as_tensor(where: str, value: Any) -> Any:
    is_dense = isinstance(value, tf.TensorSpec) and value.dtype not in (tf.resource, tf.variant)
    if isinstance(value, tf.TypeSpec) and not (is_dense and value.shape.is_fully_defined()):
        raise InputError(
            f"{where} is {arguments.shown(value)}, which leaves open what is passed; give a tensor, or a tf.TensorSpec "
            "with every size"
        )
    # A handle of a graph stands for what no example holds anyway: an iterator that functions hand on.
    if tf.is_symbolic_tensor(value) and value.dtype not in (tf.resource, tf.variant):
        raise InputError(
            f"{where} is the tensor {value.name!r} of a graph, which has no value; give an array or a tf.TensorSpec"
        )
    try:
        if isinstance(value, tf.TypeSpec):
            return tf.zeros(value.shape, value.dtype)
        return tf.constant(value) if isinstance(value, np.ndarray) else value
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"{where} is {arguments.shown(value)}, which makes no tensor ({told(error)}); give one of numbers or texts"
        ) from error


def traced(fn: Any, example_args: tuple) -> ConcreteFunction:
    """The concrete function that a call of ``fn`` with ``example_tensors`` would run."""
    if isinstance(fn, ConcreteFunction):
        return fn
    if not hasattr(fn, "get_concrete_function"):
        fn = tf.function(arguments.function("fn", fn, "give a tf.function, or a function that can be one"))
    try:
        return fn.get_concrete_function(*example_args)
    except InputError:
        raise
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"example_args do not fit {function_name(fn)!r}: {told(error)}; give what it is called with"
        ) from error


def function_name(fn: Any) -> str:
    """Name of a function for users, traced or not."""
    if isinstance(fn, ConcreteFunction):
        return str(fn.graph.name)
    return str(getattr(fn, "__name__", None) or getattr(fn, "name", None) or "function")


def _input_values(concrete, example_args: tuple) -> dict[str, tf.Tensor]:
    """Returns the example value of each input placeholder that is no capture."""
    captured = set(_names(concrete.graph.internal_captures))
    inputs = [tensor for tensor in concrete.graph.inputs if tensor.op.name not in captured]
    leaves = [
        leaf.handle if isinstance(leaf, tf.Variable) else leaf
        for leaf in tf.nest.flatten(example_args, expand_composites=True)
    ]
    # Tracing gives a variable one placeholder, however often it is passed; a tensor gets one each time.
    variables = {id(leaf) for leaf in leaves if isinstance(leaf, tf.Tensor) and leaf.dtype == tf.resource}
    values = []
    for leaf in leaves:
        if isinstance(leaf, tf.Tensor) and (leaf.dtype != tf.resource or id(leaf) in variables):
            variables.discard(id(leaf))
            values.append(leaf)
    if len(values) != len(inputs):
        raise InputError(
            f"function {function_name(concrete)!r} takes {len(inputs)} tensors, but example_args "
            f"hold {len(values)}; give a tf.Tensor, tf.TensorSpec or numpy array for each"
        )
    for tensor, value in zip(inputs, values, strict=True):
        if value.dtype != tensor.dtype or not tensor.shape.is_compatible_with(value.shape):
            raise InputError(
                f"input {tensor.op.name!r} takes {tensor.dtype.name} {tensor.shape}, but its example in example_args "
                f"is {value.dtype.name} {value.shape}; give one that fits"
            )
    return {tensor.op.name: value for tensor, value in zip(inputs, values, strict=True)}


def _array(value: tf.Tensor) -> np.ndarray:
    # A scalar string comes as bytes; left to itself, numpy would make it an array of letters' own type.
    return np.asarray(value.numpy(), dtype=object if value.dtype == tf.string else None)


def _names(tensors) -> list[str]:
    return [tensor.op.name for tensor in tensors]


class _Captures:
    """Replacements of the captured placeholders."""

    def __init__(self, graph_def, concrete, captures: dict[str, tf.Tensor]):
        self.variables: list[ItemVariable] = []
        self.host_captures: list[HostCapture] = []
        self._new_name: dict[str, str] = {}
        self._new_node: dict[str, node_def_pb2.NodeDef] = {}
        names = {node.name for node in graph_def.node}
        variable_name = {id(v.handle): v.name.partition(":")[0] for v in concrete.graph.variables}
        for name, value in captures.items():
            if _stays_on_host(value, concrete.graph.get_tensor_by_name(f"{name}:0")):
                self.host_captures.append(_host_capture(name, value))
            elif tf.is_symbolic_tensor(value):
                raise InputError(
                    f"capture {name!r} ({value.dtype.name}) is a tensor of the graph around this function, so it has "
                    "no value yet; pass it as an argument, or place that graph with Item.from_meta_graph"
                )
            elif value.dtype == tf.resource:
                variable_of_capture = variable_name.get(id(value), name)
                node_name = name if variable_of_capture == name else fresh_name(variable_of_capture, names)
                data = get_resource_handle_data(concrete.graph.get_tensor_by_name(f"{name}:0"))
                dtype = tf.as_dtype(data.shape_and_type[0].dtype)  # the placeholder knows it
                check_restorable(node_name, dtype)
                array = variable_value(node_name, value, dtype)
                num_bytes = tensor_bytes(array.shape, dtype)
                variable = ItemVariable(node_name, tuple(array.shape), dtype, num_bytes, array, capture=name)
                self.variables.append(variable)
                self._new_node[name] = _handle_node(variable)
                self._new_name[name] = variable.node
            else:
                self._new_node[name] = _constant_node(name, value)

    def node(self, node: node_def_pb2.NodeDef) -> node_def_pb2.NodeDef:
        """Returns what stands for a node of the traced graph: a new node, or a rewired copy."""
        result = node_def_pb2.NodeDef()
        result.CopyFrom(self._new_node.get(node.name, node))
        for position, text in enumerate(result.input):
            result.input[position] = self.renamed_input(text)
        return result

    def renamed_input(self, text: str) -> str:
        """Returns an input text that names the variable instead of its placeholder."""
        return renamed_input(text, self._new_name)


def _stays_on_host(value: tf.Tensor, placeholder: tf.Tensor) -> bool:
    """True if a capture is neither a tensor of numbers nor a variable that holds one."""
    if value.dtype != tf.resource:
        return value.dtype == tf.variant
    data = get_resource_handle_data(placeholder)
    if not data.is_set or len(data.shape_and_type) != 1:
        return True
    return tf.as_dtype(data.shape_and_type[0].dtype) in (tf.resource, tf.variant)


def _host_capture(name: str, value: tf.Tensor) -> HostCapture:
    text = repr(value) if value.dtype == tf.resource else ""
    match = _RESOURCE_TYPE.search(text)
    kind = _KINDS.get(match[1], f"a resource ({match[1]})") if match else "a resource"
    if value.dtype == tf.variant:
        kind = "a dataset or another variant"
    is_anonymous = "container=" not in text or 'container="Anonymous"' in text or "_Anonymous" in text
    return HostCapture(name, value.dtype, kind, value.device or "", is_anonymous)


def variable_value(node: str, handle: tf.Tensor, dtype: tf.DType) -> np.ndarray:
    """Reads a variable by its handle.

    Args:
      node: what to call it in errors.
      handle: of its storage.
      dtype: of its value.
    """
    # Asked for, because the value that is not there would be read as an empty one.
    if not tf.raw_ops.VarIsInitializedOp(resource=handle):
        raise InputError(f"variable {node!r} has no value; initialize it before placing")
    try:
        return _array(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
    except tf.errors.OpError as error:
        raise InputError(
            f"variable {node!r} cannot be read ({told(error)}); assign it again before placing"
        ) from error


def _handle_node(variable: ItemVariable) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=variable.node, op="VarHandleOp")
    node.attr["dtype"].type = variable.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(variable.shape).as_proto())
    node.attr["shared_name"].s = variable.node.encode()
    node.attr["container"].s = b""
    return node


def _constant_node(name: str, value: tf.Tensor) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = value.dtype.as_datatype_enum
    proto = tf.make_tensor_proto(value.numpy(), dtype=value.dtype, shape=value.shape)
    node.attr["value"].tensor.CopyFrom(proto)
    return node
