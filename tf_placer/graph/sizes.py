"""Shape, dtype and bytes of every tensor of a graph.

Shapes are TensorFlow's own static shape inference, with each input as large as its example. What depends on data is
bounded or estimated (``size_rules``), and says so: loops that were traced with a dimension of any size, too.
Bytes are elements times the size of the dtype; a string counts 16 bytes an element (its handle
and a short text: the true length is not static). Resources, variants and references to v1 variables count 0, since what
moves between devices, if anything, is not in the handle.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation import op_facts
from colocation.op_facts import MERGES, alone, copy_of, data_inputs, new_node, parse_input
from colocation.tensorflow_internals import folded_constant, graph_of_function_def
from tf_placer.base.arguments import InputError, told
from tf_placer.graph import program, size_rules
from tf_placer.graph.program import MAX_TENSOR_BYTES, fresh_name, functions_of, tensor_bytes, with_nodes
from tf_placer.graph.size_rules import AS_INPUT, AS_LEADING, BRANCHES, LOOP, Shape, TensorList, filled

# Control flow -> what hands its input on and lets the shape through.
_HANDS_ON = {"Enter": "Identity", "RefEnter": "RefIdentity"}

# Outputs that only tell the gradient's kernel what the forward kernel chose to keep: nothing on a CPU, and nothing that
# a shape function knows on a GPU.
_WORKSPACES = frozenset({("FusedBatchNormV3", 5)})


def _opened(
    graph_def: tf.compat.v1.GraphDef, back: Mapping[str, str], next_shapes: Mapping[str, tf.TensorShape]
) -> tuple[tf.compat.v1.GraphDef, dict[str, str]]:
    """The graph without edges back (``Merge`` -> ``NextIteration``), and the node that stands for each.

    Only where the shape after an iteration differs from what enters: ``next_shapes`` has what is known of it.
    """
    names = {node.name for node in graph_def.node}
    stand_ins: dict[str, str] = {}
    nodes: list[node_def_pb2.NodeDef] = []
    for node in graph_def.node:
        copy = copy_of(node)
        if node.op in _HANDS_ON:
            copy.op = _HANDS_ON[node.op]
            copy.attr.clear()
            copy.attr["T"].type = node.attr["T"].type
        elif node.name in back:
            inputs = [text for text in node.input if parse_input(text)[1] != back[node.name]]
            if node.name in next_shapes:
                name = fresh_name(f"{node.name}/next", names)
                dtype, shape = tf.as_dtype(node.attr["T"].type), next_shapes[node.name]
                nodes.append(new_node("Placeholder", name, dtype=dtype, shape=shape))
                stand_ins[node.name] = name
                inputs.insert(1, name)
            copy.input[:] = inputs
            copy.attr["N"].i = sum(not text.startswith("^") for text in inputs)
        nodes.append(copy)
    return with_nodes(graph_def, nodes), stand_ins


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """One output tensor of an op: static shape, dtype, bytes (0 for resources, variants and references)."""

    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int
    rule: str = ""  # what the shape is an estimate by, where it depends on data; "" where it is known

    @staticmethod
    def of(shape: tuple[int, ...], dtype: tf.DType) -> OutputSpec:
        """The spec of a tensor whose shape is known."""
        return OutputSpec(shape, dtype, tensor_bytes(shape, dtype))


def output_specs(
    graph_def: tf.compat.v1.GraphDef, known: Mapping[str, tuple[OutputSpec, ...]] | None = None
) -> tuple[tuple[OutputSpec, ...], ...]:
    """Returns the specs of each node's outputs, [N] tuples in ``graph_def`` order, which is topological.

    ``known`` is name -> specs, of nodes for which nothing has to be inferred; TensorFlow does not see these.
    """
    if known:
        # What lies behind a handle follows from the op that makes it.
        all_specs_of = {
            name: specs
            for name, specs in known.items()
            if not any(spec.dtype in (tf.resource, tf.variant) for spec in specs)
        }
        unknown = _without_known(graph_def, all_specs_of)
        all_specs_of |= zip((node.name for node in unknown.node), output_specs(unknown), strict=True)
        return tuple(all_specs_of[node.name] for node in graph_def.node)
    easier, operations, largest = _inferable(graph_def)
    in_order = [operations[node.name] for node in easier.node]
    inferred = [[_inferred(tensor) for tensor in operation.outputs] for operation in in_order]
    if all(shape.is_fully_defined() for shapes in inferred for shape in shapes):
        sizes = [[(tuple(shape.as_list()), "") for shape in shapes] for shapes in inferred]
    else:
        sizes = estimated_sizes(easier, in_order, inferred, largest)
    size_of = dict(zip(operations, sizes, strict=True))
    all_specs = []
    for node in graph_def.node:
        specs = []
        for tensor, (shape, rule) in zip(operations[node.name].outputs, size_of[node.name], strict=True):
            dtype = tensor.dtype.base_dtype
            num_bytes = tensor_bytes(shape, dtype) if tensor.dtype == dtype else 0
            if num_bytes > MAX_TENSOR_BYTES and not rule:
                raise InputError(
                    f"op {node.name!r} ({tensor.op.type}) output {tensor.value_index} has the shape {list(shape)}, "
                    "which is larger than any device; give a smaller batch size or input"
                )
            specs.append(OutputSpec(shape, dtype, min(num_bytes, MAX_TENSOR_BYTES), rule))
        all_specs.append(tuple(specs))
    return tuple(all_specs)


def _without_known(
    graph_def: tf.compat.v1.GraphDef, known: Mapping[str, tuple[OutputSpec, ...]]
) -> tf.compat.v1.GraphDef:
    """The nodes without known specs; known tensors become placeholders or their constants."""
    names = {node.name for node in graph_def.node}
    node_of = {node.name: node for node in graph_def.node}
    read: dict[tuple[int, str], str] = {}
    nodes: list[node_def_pb2.NodeDef] = []
    for node in graph_def.node:
        if node.name in known:
            continue
        texts = []
        for text in data_inputs(node):
            _, name, output = parse_input(text)
            if name not in known:
                texts.append(text)
                continue
            if (output, name) not in read:
                stand_in = alone(node_of[name], [])  # a constant: sizes follow from its value
                if stand_in.op != "Const":
                    spec, free = known[name][output], fresh_name(f"{name}/{output}", names)
                    shape = tf.TensorShape(spec.shape)
                    stand_in = new_node("Placeholder", free, dtype=spec.dtype, shape=shape)
                nodes.append(stand_in)
                read[output, name] = stand_in.name
            texts.append(read[output, name])
        nodes.append(alone(node, texts))
    return with_nodes(graph_def, nodes)


def _inferable(
    graph_def: tf.compat.v1.GraphDef,
) -> tuple[tf.compat.v1.GraphDef, dict[str, tf.Operation], dict[str, tf.TensorShape]]:
    """A graph of which TensorFlow infers as much as is true in every iteration of every loop.

    Returns:
      The graph, in topological order; name -> op of it; and of the nodes that it has for what comes back in a loop of
      ``Enter`` and ``Merge``, the largest shape that is known.
    """
    # Without what hides known shapes: a loop that was traced with a dimension of any size says so of results for ever;
    # without that attribute a result is as large as what enters (``_imported`` sees where it is not). A table looks up
    # values of the keys' shape, but its op knows of no values.
    straight = copy_of(graph_def)
    keep_callbacks_from_running(straight.node)
    for node in straight.node:
        if is_open_loop(node):
            node.attr["output_shapes"].list.ClearField("shape")
        elif node.op == "LookupTableFindV2":
            source, target = node.attr["Tin"].type, node.attr["Tout"].type
            node.op, node.input[:] = "Cast", [node.input[1], *op_facts.control_inputs(node)]
            node.attr.clear()
            node.attr["SrcT"].type, node.attr["DstT"].type = source, target
    leads_back = {node.name for node in straight.node if node.op in op_facts.NEXT_ITERATIONS}
    back: dict[str, str] = {}  # loop variable, by its ``Merge`` -> the ``NextIteration`` that leads back
    for node in straight.node if leads_back else ():
        names = [parse_input(text)[1] for text in data_inputs(node)] if node.op in MERGES else []
        nexts = [name for name in names if name in leads_back]
        if nexts and len(nexts) < len(names):
            back[node.name] = nexts[0]
    has_frames = back or any(node.op in _HANDS_ON for node in straight.node)
    next_shapes: dict[str, tf.TensorShape] = {}
    sizes: dict[str, tf.TensorShape] = {}
    while True:
        easier, stand_ins = _opened(straight, back, next_shapes) if has_frames else (straight, {})
        try:
            operations, changed = _imported(graph_def, easier)
        except InputError:
            if len(next_shapes) == len(back):
                raise
            # What enters contradicts something in the loop: nothing is taken for granted there, as TensorFlow does.
            next_shapes = dict.fromkeys(back, tf.TensorShape(None))
            continue
        is_settled = not changed
        for node in straight.node if changed else ():
            if node.name in changed:  # what is behind such a loop is not known either
                del node.attr["output_shapes"].list.shape[:]
                node.attr["output_shapes"].list.shape.extend(shape.as_proto() for shape in changed[node.name])
        for merge, after in back.items():
            before, following = operations[merge].outputs[0], operations[after].outputs[0]
            if is_handle(before) or before.dtype != before.dtype.base_dtype:  # a reference is to one variable
                continue
            shapes = before.shape, following.shape
            if str(common_shape(shapes)) != str(before.shape):
                is_settled = False
                sizes.setdefault(merge, largest_shape(shapes))
                next_shapes[merge] = common_shape(shapes)
        if is_settled:
            largest = {stand_ins[merge]: sizes.get(merge, tf.TensorShape(None)) for merge in stand_ins}
            return easier, operations, largest


def _inferred(tensor: tf.Tensor) -> tf.TensorShape:
    """Shape by inference, or of a constant value: ``BroadcastGradientArgs``' follows from static shapes."""
    if is_handle(tensor):
        # A list of handles has no static length sometimes.
        return tensor.shape if tensor.shape.is_fully_defined() else tf.TensorShape([])
    if tensor.shape.is_fully_defined():
        return tensor.shape
    if (tensor.op.type, tensor.value_index) in _WORKSPACES:
        return tf.TensorShape([0])
    value = folded_constant(tensor)
    return tensor.shape if value is None else tf.TensorShape(value.shape)


def _imported(
    graph_def: tf.compat.v1.GraphDef, easier: tf.compat.v1.GraphDef
) -> tuple[dict[str, tf.Operation], dict[str, list[tf.TensorShape]]]:
    """Name -> op of the easier graph, and the results of the loops whose variables change their shape in silence."""
    library = functions_of(graph_def.library)
    changed = {}
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(easier, name="")
        except (ValueError, tf.errors.OpError) as error:
            raise InputError(f"TensorFlow does not accept the graph: {told(error)}") from error
        operations = {node.name: graph.get_operation_by_name(node.name) for node in easier.node}
        simple = {node.name: node for node in easier.node}
        for node in graph_def.node:
            if not is_open_loop(node) or simple[node.name].attr["output_shapes"].list.shape:
                continue
            operation = operations[node.name]
            try:
                changes = changed_shapes(node, list(operation.inputs), library)
            except (ValueError, RuntimeError, tf.errors.OpError) as error:  # RuntimeError: an unknown op
                raise InputError(
                    f"loop {node.name!r}: TensorFlow does not accept its body: {told(error)}"
                ) from error
            if changes:
                changed[node.name] = [
                    common_shape(changes[i]) if i in changes else tensor.shape
                    for i, tensor in enumerate(operation.outputs)
                ]
    return operations, changed


def called_shapes(
    function: function_pb2.FunctionDef, inputs: Sequence[tf.TensorShape | None]
) -> list[tf.TensorShape]:
    """Shapes of a function's results by the shapes of its arguments (None: a handle), as far as inference knows.

    Its own calls are in the library of the default graph. Raises an error of ``REFUSED`` where TensorFlow does not
    accept the body, with these shapes or at all.
    """
    body = copy_of(function)
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
    shapes = node.attr["output_shapes"].list.shape if node.op in op_facts.LOOPS else []
    return not all(tf.TensorShape(shape).is_fully_defined() for shape in shapes)


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
    return functools.reduce(tf.TensorShape.most_specific_compatible_shape, shapes)


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
    next_shapes: Mapping[str, tf.TensorShape],
) -> list[list[tuple[Shape, str]]]:
    """Shape of each output of each op, and the rule that the shape is an estimate by, or "" for a known one.

    ``operations`` are the graph's ops in a graph of TensorFlow, in the same order; ``inferred`` the shapes of their
    outputs, as far as inference knows them. ``next_shapes`` is node that stands for what comes back in a loop -> the
    largest known shape of that.
    """
    arrays = size_rules.TensorArrays()
    contents: dict[str, TensorList] = {}
    readers = size_rules.Readers(graph_def, operations)
    fed = [node.attr["shape"].shape.dim for node in graph_def.node if node.op == "Placeholder"]
    # Rows of what is fed.
    batch = next((max(1, sizes[0].size) for sizes in fed if sizes), size_rules.DEFAULT_BATCH)
    while True:
        with tf.Graph().as_default():
            walk = _Walk(graph_def, inferred, batch, next_shapes, arrays, readers)
            sizes = [
                walk.sizes(node, operation, shapes)
                for node, operation, shapes in zip(graph_def.node, operations, inferred, strict=True)
            ]
        if arrays.is_complete or arrays.known == contents:
            return sizes
        contents = arrays.known  # what is put in late may have been taken out early
        arrays = size_rules.TensorArrays(contents)


class _Walk:
    """Builds a second graph, the default one, of ops whose outputs all have a size."""

    def __init__(
        self,
        graph_def: tf.compat.v1.GraphDef,
        inferred: Sequence[Sequence[tf.TensorShape]],
        batch: int,
        next_shapes: Mapping[str, tf.TensorShape],
        arrays: size_rules.TensorArrays,
        readers: size_rules.Readers,
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
        tf.graph_util.import_graph_def(with_nodes(graph_def, []), name="")
        # The ops whose sizes are known and depend on no other are added at once: most, where an estimate comes late.
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
        self._certain: dict[str, tf.Operation] = dict(zip(certain, added, strict=True))

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
        added = self._certain.get(node.name) or size_rules.imported_alone(node, inputs, self._versions)
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
            self._tensor[node.name, 2] = tf.constant([rows, size_rules.PARTS_PER_STRING], tf.int64)
        if depends or any(rule for _, rule in sizes):
            self._by_estimates.add(node.name)
        shapes = [None if is_handle(tensor) else tuple(tensor.shape.as_list()) for tensor in inputs]
        size = _value(inputs[0]) if node.op == "TensorArrayV3" else None
        self._arrays.saw(node, names, shapes, int(size) if size is not None and np.ndim(size) == 0 else 0)
        if node.op == "TensorArraySizeV3" and self._arrays.length(names[0]):
            self._tensor[node.name, 0] = tf.constant(self._arrays.length(names[0]), tf.int32)
        for i, tensor_list in size_rules.lists_of(node, shapes, lists, lambda k: _value(inputs[k])).items():
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
        follows = size_rules.DERIVED if depends else ""
        shape, rule = tensor.shape, ""
        branches = program.returned_functions(node)
        if is_open_loop(node):
            try:
                changed = changed_shapes(node, inputs, self._library)
            except size_rules.REFUSED:
                changed, rule = {}, LOOP
            if i in changed:
                shape = tf.TensorShape(filled(largest_shape(changed[i]), self._batch))
                rule = LOOP
        elif branches and not shape.is_fully_defined():
            passed = inputs[1:] if len(branches) > 1 else inputs
            arguments = [None if is_handle(read) else read.shape for read in passed]
            try:
                results = [called_shapes(self._library[name], arguments)[i] for name in branches]
            except size_rules.REFUSED:
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
            return element, size_rules.LIST
        size, rule = size_rules.sized(
            size_rules.Unsized(node, shape, shapes, tuple(lists), lambda k: _value(inputs[k]), self._batch)
        )
        # What whole numbers are of unknown rank is a shape, mostly, whose length would say of what rank others are.
        if rule in (AS_INPUT, AS_LEADING) and tensor.dtype.is_floating:  # which are guesses
            fitted = self._readers.fitted((node.name, i), shape, size, self._batch)
            if fitted != size:
                return fitted, size_rules.AS_READ
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
