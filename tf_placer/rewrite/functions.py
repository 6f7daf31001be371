"""Names and arguments of library functions, and custom gradients of copied graphs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, types_pb2

from colocation.tensorflow_internals import (
    FuncGraph,
    call_flat,
    called_graph,
    get_resource_handle_data,
    registered_gradient,
)
from tf_placer.base.arguments import InputError
from tf_placer.graph.program import fresh_name
from tf_placer.graph.program.functions import function_names, functions_in, functions_of


def with_functions_renamed(graph_def: tf.compat.v1.GraphDef, suffix: str) -> tf.compat.v1.GraphDef:
    """Gives the library functions names that no other function of this process has."""
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    names = {function.signature.name for function in result.library.function}
    new_name = {name: name + suffix for name in names}
    with_references_renamed(result.node, new_name)
    for function in result.library.function:
        function.signature.name += suffix
        with_references_renamed(function.node_def, new_name)
    for gradient in result.library.gradient:
        if gradient.function_name in names:
            gradient.function_name += suffix
        if gradient.gradient_func in names:
            gradient.gradient_func += suffix
    return result


def with_references_renamed(nodes: Iterable[node_def_pb2.NodeDef], new_name: Mapping[str, str]) -> None:
    """Renames the functions that nodes call, in place."""
    for node in nodes:
        node.op = new_name.get(node.op, node.op)
        for value in node.attr.values():
            for function in functions_in(value):
                function.name = new_name.get(function.name, function.name)


def with_handle_data(graph_def: tf.compat.v1.GraphDef, traced: FuncGraph) -> tf.compat.v1.GraphDef:
    """Says of every argument of a library function that is a handle what variable is behind it.

    TensorFlow knows that of functions that it has traced, and needs it to differentiate them; a FunctionDef can say it,
    but is written without. The shape of the handle itself, which a loop says of what it carries and a branch takes from
    what is passed to it, would be taken for the variable's; it is left open.

    Args:
      graph_def: its library functions have the names that they were traced with.
      traced: the graph that calls them, or that they were inlined into.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    for function in result.library.function:
        known = called_graph(traced, function.signature.name)
        inputs = known.inputs if known is not None else []
        for k, (argument, tensor) in enumerate(zip(function.signature.input_arg, inputs, strict=False)):
            if tensor.dtype != tf.resource:
                continue
            shapes = function.arg_attr[k].attr["_output_shapes"].list.shape
            del shapes[:]
            shapes.add(unknown_rank=True)
            if not argument.handle_data:
                data = get_resource_handle_data(tensor)
                for one in data.shape_and_type:
                    argument.handle_data.add(dtype=one.dtype, shape=one.shape)
    for node in [*result.node, *(node for function in result.library.function for node in function.node_def)]:
        if "output_shapes" in node.attr and "T" in node.attr:
            carried = zip(node.attr["T"].list.type, node.attr["output_shapes"].list.shape, strict=False)
            for dtype, shape in carried:
                if dtype == types_pb2.DT_RESOURCE:
                    shape.unknown_rank = True
    return result


def with_functions_of_their_own(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Gives every node of the main graph copies of its own of the functions that it names, directly or not.

    After two calls of one function were inlined, their loops share a body. TensorFlow rewrites the body of a loop
    when it is differentiated, under one name, and fails when another loop has done so before.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    originals = functions_of(graph_def.library)
    taken = set(originals)
    used: set[str] = set()

    def own(node: node_def_pb2.NodeDef) -> None:
        for value in node.attr.values():
            for called in functions_in(value):
                if called.name not in originals:
                    continue
                if called.name not in used:
                    used.add(called.name)
                    function = next(f for f in result.library.function if f.signature.name == called.name)
                else:
                    function = result.library.function.add()
                    function.CopyFrom(originals[called.name])
                    called.name = function.signature.name = fresh_name(called.name, taken)
                for inner in function.node_def:
                    own(inner)

    for node in result.node:
        own(node)
    return result


# Custom gradients of a graph that was copied: they compute with the copy's tensors.

_ATTRIBUTE = "_gradient_op_type"
_DO_NOT_SAVE = "save with tf.saved_model.SaveOptions(experimental_custom_gradients=False)"


def with_custom_gradients(
    graph_def: tf.compat.v1.GraphDef, graph: FuncGraph, suffix: str
) -> tf.compat.v1.GraphDef:
    """Gives each custom gradient in a graph and its functions a name of its own, under which it serves the copy.

    Args:
      graph_def: what will be imported.
      graph: where to; its tensors stand for those of the traced graph that have their names.
      suffix: what makes names that nobody else has.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    weak_graph = weakref.ref(graph)
    for nodes in (result.node, *(function.node_def for function in result.library.function)):
        for node in nodes:
            name = _custom_gradient(node)
            original = registered_gradient(name)
            if original is None:
                continue
            moved = f"{name}{suffix}"
            if registered_gradient(moved) is None:
                tf.RegisterGradient(moved)(_moved(original, name, moved, weak_graph))
            node.attr[_ATTRIBUTE].s = moved.encode()
    return result


def _custom_gradient(node: node_def_pb2.NodeDef) -> str:
    return node.attr[_ATTRIBUTE].s.decode() if node.op == "IdentityN" and _ATTRIBUTE in node.attr else ""


def _moved(
    original: Callable[..., Any], name: str, moved: str, weak_graph: weakref.ref[FuncGraph]
) -> Callable[..., Any]:
    """The gradient that was registered by a name, with tensors of the graph that is differentiated."""

    def gradient(op: tf.Operation | None, *upstream: tf.Tensor | None) -> Any:
        graph = weak_graph()
        is_saved = op is None  # TensorFlow saves gradients so
        if is_saved and graph is not None:
            op = _op_with(graph.get_operations(), moved)
        if op is None:
            raise InputError(f"the gradient {name!r} is asked for without its op; {_DO_NOT_SAVE}")

        def of_given(given: list[tf.Tensor]) -> Any:
            left = iter(given)
            return original(op, *(None if one is None else next(left) for one in upstream))

        given = [one for one in upstream if one is not None]  # None: of a result that nobody differentiates
        specs = [tf.TensorSpec(one.shape, one.dtype) for one in given]
        concrete = tf.function(of_given, autograph=False).get_concrete_function(specs)
        captures = [_here(captured, op, name, may_add=not is_saved) for captured in concrete.captured_inputs]
        return call_flat(concrete, given, captures)

    return gradient


def _here(captured: tf.Tensor, op: tf.Operation, name: str, may_add: bool) -> tf.Tensor:
    """Counterpart of a captured tensor in the graph of ``op``; itself where it is of no traced graph.

    Raises:
      InputError: it is not there, and cannot be added.
    """
    traced = getattr(captured, "graph", None)
    if traced is None or traced is op.graph:
        return captured
    original = _op_with(traced.get_operations(), name)
    if original is None or not op.name.endswith(original.name):
        return captured
    copy = _Copy(op, op.name.removesuffix(original.name))
    here = copy.found(captured)
    if here is None and not may_add:
        raise InputError(
            f"the custom gradient of {op.name!r} needs {captured.name!r}, which the saved function has not; "
            f"{_DO_NOT_SAVE}"
        )
    return copy.added(captured) if here is None else here


def _op_with(ops: Iterable[tf.Operation], gradient: str) -> tf.Operation | None:
    for op in ops:
        if op.type == "IdentityN" and _custom_gradient(op.node_def) == gradient:
            return op
    return None


class _Copy:
    """A traced graph as it is found in another: inlined under a prefix, without what no result needs."""

    def __init__(self, op: tf.Operation, prefix: str) -> None:
        self._op = op
        self._graph = op.graph
        self._prefix = prefix

    def found(self, traced: tf.Tensor) -> tf.Tensor | None:
        """The tensor that has this one's value; None where no result needs it."""
        here = self._op_here(traced.op)
        if here is not None and len(here.outputs) > traced.value_index:
            return here.outputs[traced.value_index]
        # An argument is what the ops that read it read; inlining leaves no op of its name.
        for reader in traced.consumers():
            here = self._op_here(reader)
            if here is not None and len(here.inputs) == len(reader.inputs):
                return here.inputs[_position(reader.inputs, traced)]
        return None

    def added(self, traced: tf.Tensor) -> tf.Tensor:
        """A tensor of this one's value, computed by new ops.

        Raises:
          InputError: it comes of more than plain ops.
        """
        missing: dict[str, tf.Operation] = {}
        known: dict[str, tf.Tensor] = {}
        frontier = [traced]
        while frontier:
            tensor = frontier.pop()
            here = self.found(tensor)
            if here is not None:
                known[tensor.name] = here
            elif tensor.op.name not in missing:
                self._check_can_be_copied(tensor.op)
                missing[tensor.op.name] = tensor.op
                frontier.extend(tensor.op.inputs)
        graph_def = tf.compat.v1.GraphDef()
        for op in missing.values():
            node = graph_def.node.add()
            node.CopyFrom(op.node_def)
            node.device = ""
            node.attr.pop("_class", None)
            del node.input[:]
            node.input.extend(tensor.name for tensor in op.inputs)
        with self._graph.as_default(), tf.control_dependencies(None):
            scope = f"{self._op.name}/residual"
            return tf.import_graph_def(graph_def, known, [traced.name], name=scope)[0]

    def _op_here(self, traced: tf.Operation) -> tf.Operation | None:
        try:
            found = self._graph.get_operation_by_name(self._prefix + traced.name)
        except KeyError:
            return None
        return found if found.type == traced.type or traced.type == "Placeholder" else None

    def _check_can_be_copied(self, op: tf.Operation) -> None:
        if op.type == "Placeholder" or op.op_def.is_stateful or len(function_names(op.node_def)) > 1:
            raise InputError(
                f"the custom gradient of {self._op.name!r} needs {op.name!r} ({op.type}), which no result of the "
                "placed function needs; return it, too, or take the gradient inside the function"
            )


def _position(inputs: Sequence[tf.Tensor], tensor: tf.Tensor) -> int:
    return next(k for k, one in enumerate(inputs) if one is tensor)
