"""Custom gradients of a graph that was copied: they compute with the copy's tensors.

``tf.custom_gradient`` leaves an ``IdentityN`` in the traced graph and registers, under a name that the op bears, a
Python function whose closure holds tensors of that graph. In a copy of the graph it would ask for tensors that are not
there: "out of scope", as soon as somebody differentiates the copy from outside.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.tensorflow_internals import FuncGraph, call_flat, registered_gradient
from tf_placer.errors import InputError
from tf_placer.graph.program.functions import function_names

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
    """What stands in the graph of ``op`` for a captured tensor; itself where it is of no traced graph.

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
