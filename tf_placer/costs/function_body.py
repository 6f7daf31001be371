"""Bodies of called functions as graphs with known shapes."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from colocation.graph_index import GraphIndex, index_graph
from colocation.tensorflow_internals import graph_of_function_def
from tf_placer.errors import InputError
from tf_placer.graph.program.functions import functions_of
from tf_placer.graph.sizes.called_shapes import keep_callbacks_from_running
from tf_placer.graph.sizes.open_loops import is_handle
from tf_placer.graph.sizes.output_specs import OutputSpec, tensor_bytes
from tf_placer.tensorflow_message import told


@dataclasses.dataclass(frozen=True)
class FunctionBody:
    """One function of the library, instantiated for the shapes it is called with.

    Attributes:
      index: its ops; arguments are placeholders.
      outputs: [N] outputs of each op; a dimension that stays unknown counts as 1, a tensor of unknown rank is a scalar.
      is_shape_known: the bytes of every output were known.
    """

    index: GraphIndex
    outputs: tuple[tuple[OutputSpec, ...], ...]
    is_shape_known: bool


class FunctionLibrary:
    """The functions of a GraphDef; bodies are made once per function and input shapes."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef):
        self._library = function_pb2.FunctionDefLibrary()
        self._library.CopyFrom(graph_def.library)
        self._functions = functions_of(self._library)
        for function in self._library.function:
            keep_callbacks_from_running(function.node_def)
        self._bodies: dict[tuple[str, tuple[tuple[int, ...], ...]], FunctionBody] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def body(self, name: str, inputs: tuple[OutputSpec, ...]) -> FunctionBody:
        """The body of a function called with these inputs.

        Raises:
          InputError: TensorFlow does not accept it.
        """
        key = (name, tuple(spec.shape for spec in inputs))
        if key not in self._bodies:
            self._bodies[key] = self._instantiate(name, inputs)
        return self._bodies[key]

    def _instantiate(self, name: str, inputs: tuple[OutputSpec, ...]) -> FunctionBody:
        # A handle's own shape would be taken for that of the variable behind it.
        shapes = [None if is_handle(spec) else tf.TensorShape(spec.shape) for spec in inputs]
        try:
            graph = self._rebuilt(name, shapes)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:  # RuntimeError: an unknown op
            if not any(spec.is_estimated for spec in inputs):
                raise InputError(
                    f"TensorFlow does not accept function {name!r} of the graph: {told(error)}"
                ) from error
            # An estimate may contradict what the function knows.
            known = [None if spec.is_estimated else one for spec, one in zip(inputs, shapes, strict=True)]
            graph = self._rebuilt(name, known)
        index = index_graph(graph.as_graph_def())
        ops = [graph.get_operation_by_name(node_name) for node_name in index.names]
        return FunctionBody(
            index=index,
            outputs=tuple(tuple(_spec(tensor) for tensor in op.outputs) for op in ops),
            is_shape_known=all(_is_known(t) for op in ops for t in op.outputs),
        )

    def _rebuilt(self, name: str, shapes: list[tf.TensorShape | None]) -> tf.Graph:
        with tf.Graph().as_default():
            # The functions this one calls must be known where it is rebuilt.
            tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(library=self._library), name="")
            return graph_of_function_def(self._functions[name], shapes)


def _spec(tensor: tf.Tensor) -> OutputSpec:
    shape = () if tensor.shape.rank is None else tuple(1 if d is None else d for d in tensor.shape.as_list())
    return OutputSpec(shape, tensor.dtype, tensor_bytes(shape, tensor.dtype))


def _is_known(tensor: tf.Tensor) -> bool:
    """Whether the tensor's bytes are known; a handle or a list counts 0 bytes whatever its shape."""
    return is_handle(tensor) or tensor.shape.is_fully_defined()
