"""A traced ``tf.function`` as one Program: captures become variables and constants, inputs feeds."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation import tensorflow_internals as internals
from colocation.op_facts import copy_of, new_node
from colocation.tensorflow_internals import ConcreteFunction
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, told
from tf_placer.graph import program
from tf_placer.graph.program import Feed, HostCapture, ItemVariable, Program, fresh_name, renamed_input

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
    """Traces ``fn`` on example arguments, as ``Item.from_function``, and returns its graph, calls not inlined yet.

    Each captured variable is a ``VarHandleOp`` with a unique ``shared_name``, other captured tensors are constants,
    tables, iterators and datasets stay placeholders (``host_captures``). Nodes keep the devices that they ask for.
    """
    example_args = example_tensors(example_args)
    concrete = traced(fn, example_args)
    for name, function in internals.functions_of(concrete.graph).items():
        if internals.has_python_gradient(function):
            raise InputError(
                f"function {function_name(concrete)!r} calls the Defun {name!r}, whose gradient in Python placing "
                "would lose; write it with tf.custom_gradient"
            )
    # Right after tracing: taking a gradient later changes this graph's loops and branches.
    graph_def = concrete.graph.as_graph_def()
    # A gradient taken before has appended what it needs to the outputs.
    outputs = concrete.outputs[: len(concrete.function_type.flat_outputs)]
    names = (tensor.op.name for tensor in concrete.graph.internal_captures)
    captures = dict(zip(names, concrete.captured_inputs, strict=True))
    values = _input_values(concrete, example_args, captures.keys())
    handles = {name: value for name, value in values.items() if value.dtype in (tf.resource, tf.variant)}
    variables, host_captures, replaced, new_name = _replaced_captures(
        graph_def, concrete, {**captures, **handles}
    )
    nodes = []
    for node in graph_def.node:
        source = replaced.get(node.name, node)
        nodes.append(copy_of(source, [renamed_input(text, new_name) for text in source.input]))
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
        graph_def=program.with_nodes(graph_def, nodes),
        feeds=tuple(feeds.values()),
        fetches=tuple(renamed_input(tensor.name, new_name) for tensor in outputs),
        control_outputs=tuple(op.name for op in concrete.graph.control_outputs),
        variables=tuple(variables),
        host_captures=tuple(host_captures),
    )


def example_tensors(example_args: tuple) -> tuple:
    """Example arguments with tensors for arrays, and zeros for each ``tf.TensorSpec``."""

    def as_tensor(where: str, value: Any) -> Any:
        is_dense = isinstance(value, tf.TensorSpec) and value.dtype not in (tf.resource, tf.variant)
        if isinstance(value, tf.TypeSpec) and not (is_dense and value.shape.is_fully_defined()):
            raise InputError(
                f"{where} is {arguments.shown(value)}, which leaves open what is passed; give a tensor, or a "
                "tf.TensorSpec with every size"
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
                f"{where} is {arguments.shown(value)}, which makes no tensor ({told(error)}); give one of numbers or "
                "texts"
            ) from error

    return tuple(
        tf.nest.map_structure(functools.partial(as_tensor, f"example_args[{position}]"), value)
        for position, value in enumerate(example_args)
    )


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


def _input_values(concrete, example_args: tuple, captured: Collection[str]) -> dict[str, tf.Tensor]:
    """Returns the example value of each input placeholder that is no capture."""
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


def _replaced_captures(
    graph_def: tf.compat.v1.GraphDef, concrete: ConcreteFunction, captures: dict[str, tf.Tensor]
) -> tuple[list[ItemVariable], list[HostCapture], dict[str, node_def_pb2.NodeDef], dict[str, str]]:
    """Variables and objects of this process behind captured placeholders, and what takes the place of these.

    The latter is placeholder -> node, and placeholder -> name of the node where that is another.
    """
    variables: list[ItemVariable] = []
    host_captures: list[HostCapture] = []
    replaced: dict[str, node_def_pb2.NodeDef] = {}
    new_name: dict[str, str] = {}
    names = {node.name for node in graph_def.node}
    variable_name = {id(v.handle): v.name.partition(":")[0] for v in concrete.graph.variables}
    for name, value in captures.items():
        dtypes: list[tf.DType] | None = None
        if value.dtype == tf.resource:  # the placeholder knows its types
            data = internals.get_resource_handle_data(concrete.graph.get_tensor_by_name(f"{name}:0"))
            dtypes = [tf.as_dtype(held.dtype) for held in data.shape_and_type] if data.is_set else []
        # Neither a tensor of numbers nor a variable that holds one.
        if value.dtype == tf.variant or (
            dtypes is not None and (len(dtypes) != 1 or dtypes[0] in (tf.resource, tf.variant))
        ):
            text = repr(value) if value.dtype == tf.resource else ""
            match = _RESOURCE_TYPE.search(text)
            kind = _KINDS.get(match[1], f"a resource ({match[1]})") if match else "a resource"
            if value.dtype == tf.variant:
                kind = "a dataset or another variant"
            is_anonymous = "container=" not in text or 'container="Anonymous"' in text or "_Anonymous" in text
            host_captures.append(HostCapture(name, value.dtype, kind, value.device or "", is_anonymous))
        elif tf.is_symbolic_tensor(value):
            raise InputError(
                f"capture {name!r} ({value.dtype.name}) is a tensor of the graph around this function, so it has "
                "no value yet; pass it as an argument, or place that graph with Item.from_meta_graph"
            )
        elif dtypes is not None:
            variable_of_capture = variable_name.get(id(value), name)
            node_name = name if variable_of_capture == name else fresh_name(variable_of_capture, names)
            program.check_restorable(node_name, dtypes[0])
            array = variable_value(node_name, value, dtypes[0])
            num_bytes = program.tensor_bytes(array.shape, dtypes[0])
            variables.append(
                ItemVariable(node_name, tuple(array.shape), dtypes[0], num_bytes, array, capture=name)
            )
            replaced[name] = new_node(
                "VarHandleOp",
                node_name,
                dtype=dtypes[0],
                shape=tf.TensorShape(array.shape),
                shared_name=node_name.encode(),
                container=b"",
            )
            new_name[name] = node_name
        else:
            proto = tf.make_tensor_proto(value.numpy(), dtype=value.dtype, shape=value.shape)
            replaced[name] = new_node("Const", name, dtype=value.dtype, value=proto)
    return variables, host_captures, replaced, new_name


def variable_value(node: str, handle: tf.Tensor, dtype: tf.DType) -> np.ndarray:
    """Reads a variable by the handle of its storage; ``node`` is its name in errors."""
    # Asked for, because the value that is not there would be read as an empty one.
    if not tf.raw_ops.VarIsInitializedOp(resource=handle):
        raise InputError(f"variable {node!r} has no value; initialize it before placing")
    try:
        return _array(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
    except tf.errors.OpError as error:
        raise InputError(
            f"variable {node!r} cannot be read ({told(error)}); assign it again before placing"
        ) from error
