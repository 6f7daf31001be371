"""Loops that do not say how large their results are, because they were traced with a dimension of any size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import LOOPS, MERGES, alone, data_inputs, parse_input
from colocation.tensorflow_internals import folded_constant, graph_of_function_def
from tf_placer.graph.program import functions_of, returned_functions
from tf_placer.graph.size_rules import (
    AS_INPUT,
    AS_LEADING,
    AS_READ,
    BRANCHES,
    DEFAULT_BATCH,
    DERIVED,
    LIST,
    LOOP,
    PARTS_PER_STRING,
    REFUSED,
    Readers,
    Shape,
    TensorArrays,
    TensorList,
    Unsized,
    filled,
    imported_alone,
    lists_of,
    sized,
)


def called_shapes(
    function: function_pb2.FunctionDef, inputs: Sequence[tf.TensorShape | None]
) -> list[tf.TensorShape]:
    """Shapes of a function's results by the shapes of its arguments (None: a handle), as far as inference knows.

    Its own calls are in the library of the default graph. Raises an error of ``REFUSED`` where TensorFlow does not
    accept the body, with these shapes or at all.
    """
    body = function_pb2.FunctionDef()
    body.CopyFrom(function)
    keep_callbacks_from_running(body.node_def)
    body.arg_attr.clear()  # the shapes that were not known when it was traced
    graph = graph_of_function_def(body, list(inputs))
    return [tensor.shape for tensor in graph.outputs]


def keep_callbacks_from_running(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    """Marks Python functions, in place, as having side effects, so that inference does not call them for values."""
    for node in nodes:
        if node.op == "PyFuncStateless":
            node.op = "PyFunc"


def is_open_loop(node: node_def_pb2.NodeDef) -> bool:
    """True if a node is a loop that does not say how large its results are."""
    if node.op not in LOOPS:
        return False
    return not all(
        tf.TensorShape(shape).is_fully_defined() for shape in node.attr["output_shapes"].list.shape
    )


def is_handle(tensor: tf.Tensor) -> bool:
    """True if a tensor stands for something that lies elsewhere, and has no size itself."""
    return tensor.dtype in (tf.resource, tf.variant)


def changed_shapes(
    node: node_def_pb2.NodeDef, inputs: Sequence[tf.Tensor], library: Mapping[str, function_pb2.FunctionDef]
) -> dict[int, tuple[tf.TensorShape, tf.TensorShape]]:
    """Loop variables whose shape differs after an iteration: position -> shapes before and after.

    ``inputs`` enter the loop, in the default graph. Raises as ``called_shapes``.
    """
    before = [None if is_handle(tensor) else tensor.shape for tensor in inputs]
    after = called_shapes(library[node.attr["body"].func.name], before)
    return {
        i: (shape, result)
        for i, (shape, result) in enumerate(zip(before, after, strict=True))
        if shape is not None and str(shape) != str(result)
    }


def common_shape(shapes: Sequence[tf.TensorShape]) -> tf.TensorShape:
    """Most specific shape that is compatible with several shapes."""
    if any(shape.rank is None or shape.rank != shapes[0].rank for shape in shapes):
        return tf.TensorShape(None)
    sizes = zip(*(shape.as_list() for shape in shapes), strict=True)
    return tf.TensorShape([dimension[0] if len(set(dimension)) == 1 else None for dimension in sizes])


def largest_shape(shapes: Sequence[tf.TensorShape]) -> tf.TensorShape:
    """Largest size of each dimension, None for unknown; shapes of other ranks than the first are ignored."""
    of_rank = [shape for shape in shapes if shape.rank is not None and shape.rank == shapes[0].rank]
    if not of_rank:
        return next((shape for shape in shapes if shape.rank is not None), tf.TensorShape(None))
    sizes = zip(*(shape.as_list() for shape in of_rank), strict=True)
    return tf.TensorShape(
        [max((size for size in dimension if size is not None), default=None) for dimension in sizes]
    )


def estimated_sizes(
    graph_def: tf.compat.v1.GraphDef,
    operations: Sequence[tf.Operation],
    inferred: Sequence[Sequence[tf.TensorShape]],
    next_shapes: Mapping[str, tf.TensorShape] | None = None,
) -> list[list[tuple[Shape, str]]]:
    """Gives every output of a graph a size.

    Args:
      graph_def: the graph, as inference likes it best.
      operations: its ops in a graph of TensorFlow, in the same order.
      inferred: shape of each of their outputs, as far as inference knows it.
      next_shapes: node that stands for what comes back in a loop -> the largest shape of it that is known.

    Returns:
      Per op and output: shape, and the rule that it is an estimate by, or "" where it is known.
    """
    arrays = TensorArrays()
    contents: dict[str, TensorList] = {}
    readers = Readers(graph_def, operations)
    fed = [node.attr["shape"].shape.dim for node in graph_def.node if node.op == "Placeholder"]
    batch = next((max(1, sizes[0].size) for sizes in fed if sizes), DEFAULT_BATCH)  # rows of what is fed
    while True:
        walk = _Walk(graph_def, batch, next_shapes or {}, arrays, readers)
        with tf.Graph().as_default():
            tf.graph_util.import_graph_def(
                tf.compat.v1.GraphDef(library=graph_def.library, versions=graph_def.versions), name=""
            )
            walk.add_certain(graph_def, inferred)
            sizes = [
                walk.sizes(node, operation, shapes)
                for node, operation, shapes in zip(graph_def.node, operations, inferred, strict=True)
            ]
        if arrays.is_complete or arrays.known == contents:
            return sizes
        contents = arrays.known  # what is put in late may have been taken out early
        arrays = TensorArrays(contents)


class _Walk:
    """Builds a second graph of ops whose outputs all have a size."""

    def __init__(
        self,
        graph_def: tf.compat.v1.GraphDef,
        batch: int,
        next_shapes: Mapping[str, tf.TensorShape],
        arrays: TensorArrays,
        readers: Readers,
    ) -> None:
        self._readers = readers
        self._versions = graph_def.versions
        self._library = functions_of(graph_def.library)
        self._batch = batch
        self._next_shapes = next_shapes
        self._arrays = arrays
        self._tensor: dict[tuple[str, int], tf.Tensor] = {}
        self._list: dict[tuple[str, int], TensorList] = {}
        self._by_estimates: set[str] = set()  # ops that depend on one
        self._certain: dict[str, tf.Operation] = {}

    def add_certain(
        self, graph_def: tf.compat.v1.GraphDef, inferred: Sequence[Sequence[tf.TensorShape]]
    ) -> None:
        """Adds at once the ops whose sizes are known and depend on no other: most, where an estimate comes late."""
        certain: dict[str, node_def_pb2.NodeDef] = {}
        for node, shapes in zip(graph_def.node, inferred, strict=True):
            data = data_inputs(node)
            is_sized = all(shape.is_fully_defined() for shape in shapes)
            if is_sized and all(parse_input(text)[1] in certain for text in data):
                certain[node.name] = alone(node, data)
        added = tf.graph_util.import_graph_def(
            tf.compat.v1.GraphDef(node=certain.values(), versions=self._versions),
            return_elements=list(certain),
            name="",
        )
        self._certain = dict(zip(certain, added, strict=True))

    def sizes(
        self, node: node_def_pb2.NodeDef, operation: tf.Operation, inferred: Sequence[tf.TensorShape]
    ) -> list[tuple[Shape, str]]:
        """Adds an op; returns the size of each of its outputs, and its rule."""
        names = [parse_input(text)[1:] for text in data_inputs(node)]
        inputs = [
            self._tensor[name] if name in self._tensor else _stand_in(tensor.dtype, tensor.shape)
            for name, tensor in zip(names, operation.inputs, strict=True)
        ]
        lists = [self._list.get(name) for name in names]
        added = self._certain.get(node.name) or imported_alone(node, inputs, self._versions)
        if added is not None:
            outputs = list(added.outputs)
        else:  # TensorFlow refuses the estimates
            outputs = list(map(_stand_in, (tensor.dtype for tensor in operation.outputs), inferred))
        depends = any(name in self._by_estimates for name, _ in names)
        sizes = []
        for i, tensor in enumerate(outputs):
            shape, rule = self._size(node, i, tensor, inferred[i], inputs, names, lists, depends)
            sizes.append((shape, rule))
            if not is_handle(tensor):
                if tensor.shape.is_compatible_with(shape):
                    tensor.set_shape(shape)
                else:
                    tensor = _stand_in(tensor.dtype, tf.TensorShape(shape))
            self._tensor[node.name, i] = tensor
        if node.op in ("StringSplit", "StringSplitV2"):  # their last output says how many rows there are
            rows = max(1, inputs[0].shape.num_elements() or 0)
            self._tensor[node.name, 2] = tf.constant([rows, PARTS_PER_STRING], tf.int64)
        if depends or any(rule for _, rule in sizes):
            self._by_estimates.add(node.name)
        shapes = [None if is_handle(tensor) else tuple(tensor.shape.as_list()) for tensor in inputs]
        size = _value(inputs[0]) if node.op == "TensorArrayV3" else None
        self._arrays.saw(node, names, shapes, int(size) if size is not None and np.ndim(size) == 0 else 0)
        if node.op == "TensorArraySizeV3" and self._arrays.length(names[0]):
            self._tensor[node.name, 0] = tf.constant(self._arrays.length(names[0]), tf.int32)
        for i, tensor_list in lists_of(node, shapes, lists, lambda k: _value(inputs[k])).items():
            self._list[node.name, i] = tensor_list
        return sizes

    def _size(
        self,
        node: node_def_pb2.NodeDef,
        i: int,
        tensor: tf.Tensor,
        inferred: tf.TensorShape,
        inputs: Sequence[tf.Tensor],
        names: Sequence[tuple[str, int]],
        lists: Sequence[TensorList | None],
        depends: bool,
    ) -> tuple[Shape, str]:
        if is_handle(tensor):
            return (), ""
        if inferred.is_fully_defined():
            return tuple(inferred.as_list()), ""
        follows = DERIVED if depends else ""
        shape, rule = tensor.shape, ""
        branches = returned_functions(node)
        if is_open_loop(node):
            try:
                changed = changed_shapes(node, inputs, self._library)
            except REFUSED:
                changed, rule = {}, LOOP
            if i in changed:
                shape = tf.TensorShape(filled(largest_shape(changed[i]), self._batch))
                rule = LOOP
        elif branches and not shape.is_fully_defined():
            passed = inputs[1:] if len(branches) > 1 else inputs
            arguments = [None if is_handle(read) else read.shape for read in passed]
            try:
                results = [called_shapes(self._library[name], arguments)[i] for name in branches]
            except REFUSED:
                results = []
            shape = common_shape(results) if results else shape
            if results and not shape.is_fully_defined():
                shape = tf.TensorShape(filled(largest_shape(results), self._batch))
                rule = BRANCHES
        if not shape.is_fully_defined():
            value = folded_constant(tensor)
            shape = shape if value is None else tf.TensorShape(value.shape)
        if shape.is_fully_defined():
            return tuple(shape.as_list()), rule or follows
        if node.name in self._next_shapes:
            return filled(self._next_shapes[node.name], self._batch), LOOP
        if node.op in MERGES:
            largest = largest_shape([read.shape for read in inputs])
            rule = LOOP if any(name in self._next_shapes for name, _ in names) else BRANCHES
            return filled(largest, self._batch), rule
        shapes = tuple(None if is_handle(read) else tuple(read.shape.as_list()) for read in inputs)
        element = self._arrays.taken(node, names, shapes)
        if element is not None and shape.is_compatible_with(element):
            return element, LIST
        size, rule = sized(
            Unsized(node, shape, shapes, tuple(lists), lambda k: _value(inputs[k]), self._batch)
        )
        # What whole numbers are of unknown rank is a shape, mostly, whose length would say of what rank others are.
        if rule in (AS_INPUT, AS_LEADING) and tensor.dtype.is_floating:  # which are guesses
            fitted = self._readers.fitted((node.name, i), shape, size, self._batch)
            if fitted != size:
                return fitted, AS_READ
        return size, rule


def _value(tensor: tf.Tensor) -> np.ndarray | None:
    """Value of a tensor or an upper bound; None if unknown."""
    if is_handle(tensor):
        return None
    value = folded_constant(tensor)
    if value is None and tensor.op.type == "Minimum":
        bounds = [bound for bound in map(_value, tensor.op.inputs) if bound is not None]
        return bounds[0] if len(bounds) == 1 else None
    if value is None and tensor.op.type in ("Identity", "Cast"):
        return _value(tensor.op.inputs[0])
    return value


def _stand_in(dtype: tf.DType, shape: tf.TensorShape) -> tf.Tensor:
    return tf.compat.v1.placeholder(dtype.base_dtype, shape)
