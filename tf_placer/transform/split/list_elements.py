"""Lists of tensors whose elements are known before the step, replaced by edges from producers to readers.

A loop keeps in lists the tensors for its gradient, and those of a ``tf.TensorArray``. Once the loop is written out,
every index is a constant, so each element is an ordinary edge. Lists that are used by an op without a rule stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import control_inputs, copy_of, data_inputs, parse_input, reached
from colocation.units import DisjointSet
from tf_placer.graph.item import Item, rewritten
from tf_placer.graph.program import fresh_name, with_nodes, with_output
from tf_placer.graph.sizes import OutputSpec
from tf_placer.transform.split.states import Tensor, known_values

_Elements = tuple[str | None, ...]  # tensor of each element; None where none was put in, which reads as zero


def without_lists(item: Item, origin_of: Mapping[str, str]) -> tuple[Item, dict[str, str]]:
    """The program without the lists of tensors whose elements are known, and the origin of its ops.

    Args:
      item: the program.
      origin_of: op of ``item`` -> op that it came from.
    """
    while True:  # without some lists, the sizes of elements of others may be known
        values, stay = known_values(item.index, item.outputs), set[str]()
        while (lists := _Lists(item, values, stay)).not_known:
            stay |= lists.not_known
        if not lists.changed:
            return item, dict(origin_of)
        program = dataclasses.replace(
            item.as_program(),
            graph_def=with_nodes(item.graph_def, lists.rewired()),
            fetches=tuple(with_output(lists.same(text)) for text in item.fetches),
        )
        origins = {name: name for name in item.index.names} | lists.origin_of
        sizes = {name: specs for name, specs in sizes_to_keep(item).items() if name not in lists.changed}
        item = rewritten(item, program, origins, sizes)
        origin_of = {name: origin_of[origins[name]] for name in item.index.names}


def sizes_to_keep(item: Item) -> dict[str, tuple[OutputSpec, ...]]:
    """Op -> outputs that need not be inferred again; empty where some are estimates, which others follow from."""
    if any(spec.rule for specs in item.outputs for spec in specs):
        return {}
    return dict(zip(item.index.names, item.outputs, strict=True))


class _NotKnown(Exception):
    """The elements of a list depend on data, or an op on the list has no rule."""


class _Lists:
    """One walk over a program, from inputs to results.

    Rules read lists and tensors by ``elements``, ``whole_number``, ``shape`` and ``dtype``, and say what an output is
    by ``is_list``, ``is_tensor`` or by writing a node of the op's name.
    """

    def __init__(self, item: Item, known: Mapping[Tensor, np.ndarray], kept: Collection[str]) -> None:
        """Walks over ``item``, whose known values are ``known``; ``kept`` are ops on lists that stay."""
        # Ops on lists that stay: they have no rule, read data, or share a list with such an op.
        self.not_known: set[str] = set()
        self.origin_of: dict[str, str] = {}  # written node -> op that it was written for
        self.changed: set[str] = set()  # ops that are left out or replaced
        self._nodes: list[node_def_pb2.NodeDef] = []
        self._taken = set(item.index.names)
        self._op = ""  # that a rule is applied to
        self._elements: dict[str, _Elements] = {}  # of each list, "name:i"
        self._same: dict[str, str] = {}  # tensor of an op that is left out -> tensor that replaces it
        self._done: dict[str, list[str]] = {}  # op that is left out -> ops to wait for instead
        self._position = item.index.id_of_name
        self._families = DisjointSet(item.index.num_ops)  # ops whose lists are made of one another
        self._on_lists: list[str] = []
        self._specs: dict[str, OutputSpec] = {}
        self._values: dict[str, np.ndarray] = {}
        self._outputs: dict[str, list[str]] = {}
        for op, name in enumerate(item.index.names):
            self._outputs[name] = [f"{name}:{i}" for i in range(len(item.outputs[op]))]
            for i, spec in enumerate(item.outputs[op]):
                self._specs[f"{name}:{i}"] = spec
                if (op, i) in known:
                    self._values[f"{name}:{i}"] = known[op, i]
        self._fetched = {with_output(text) for text in item.fetches}
        failed = [node.name for node in item.graph_def.node if not self._apply_rule(node, kept)]
        lost = {self._family(name) for name in failed}
        self.not_known = {name for name in self._on_lists if self._family(name) in lost}

    def rewired(self) -> list[node_def_pb2.NodeDef]:
        """The remaining nodes, which read elements instead of lists."""
        nodes = []
        for node in self._nodes:
            data = [self.same(text) for text in data_inputs(node)]
            waits = reached(
                (text[1:] for text in control_inputs(node)), lambda name: self._done.get(name, [])
            )
            controls = sorted(waits - self._done.keys())
            nodes.append(copy_of(node, [*data, *(f"^{name}" for name in controls)]))
        return nodes

    def same(self, text: str) -> str:
        """The tensor that replaces one, or itself, with the number of its output."""
        text = with_output(text)
        while text in self._same:
            text = self._same[text]
        return text

    def elements(self, text: str) -> _Elements:
        """Elements of a list; raises _NotKnown."""
        if with_output(text) not in self._elements:
            raise _NotKnown
        return self._elements[with_output(text)]

    def whole_number(self, text: str) -> int:
        """Value of a tensor; raises _NotKnown."""
        value = self._values.get(self.same(text))
        if value is None:
            raise _NotKnown
        return int(value)

    def shape(self, text: str) -> tuple[int, ...]:
        """Shape of a tensor; raises _NotKnown for an estimate."""
        spec = self._specs[self.same(text)]
        if spec.rule:
            raise _NotKnown
        return spec.shape

    def dtype(self, text: str) -> tf.DType:
        return self._specs[self.same(text)].dtype

    def is_list(self, output: int, elements: Iterable[str | None]) -> None:
        """Sets the elements of an output."""
        self._elements[f"{self._op}:{output}"] = tuple(elements)

    def is_tensor(self, output: int, text: str) -> None:
        """Sets the tensor that replaces an output."""
        self._same[f"{self._op}:{output}"] = text

    def write(
        self, op_type: str, inputs: Sequence[str], shape: Sequence[int], dtype: tf.DType, name: str = ""
    ) -> node_def_pb2.NodeDef:
        """Writes a node with the op's name or one below; all outputs have one shape and type."""
        full = fresh_name(f"{self._op}/{name}", self._taken) if name else self._op
        node = node_def_pb2.NodeDef(op=op_type, name=full, input=inputs)
        node.attr["T" if op_type != "Const" else "dtype"].type = dtype.as_datatype_enum
        self._nodes.append(node)
        self.origin_of[full] = self._op
        self._specs[f"{full}:0"] = OutputSpec.of(tuple(shape), dtype)
        return node

    def constant(self, value: np.ndarray, name: str = "") -> str:
        """Writes a constant; returns the tensor."""
        node = self.write("Const", [], value.shape, tf.as_dtype(value.dtype), name)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        self._values[f"{node.name}:0"] = value
        return f"{node.name}:0"

    def zeros(self, shape: Sequence[int], dtype: tf.DType, name: str = "") -> str:
        """Writes zeros; returns the tensor."""
        sizes = self.constant(np.asarray(shape, np.int32), f"{name or 'zeros'}/sizes")
        zero = self.constant(np.zeros([], dtype.as_numpy_dtype), f"{name or 'zeros'}/zero")
        node = self.write("Fill", [sizes, zero], shape, dtype, name)
        node.attr["index_type"].type = tf.int32.as_datatype_enum
        return f"{node.name}:0"

    def unpacked(self, text: str, name: str) -> list[str]:
        """Writes an ``Unpack``; returns the tensors of the rows."""
        count, *shape = self.shape(text)
        dtype = self.dtype(text)
        node = self.write("Unpack", [text], shape, dtype, name)
        node.attr["num"].i = count
        rows = [f"{node.name}:{i}" for i in range(count)]
        self._specs |= dict.fromkeys(rows, OutputSpec.of(tuple(shape), dtype))
        return rows

    def _apply_rule(self, node: node_def_pb2.NodeDef, kept: Collection[str]) -> bool:
        """Passes over or replaces an op; False for an op on lists that has to stay and is not in ``kept``."""
        lists = [text for text in data_inputs(node) if self._specs[with_output(text)].dtype == tf.variant]
        outputs = self._outputs[node.name]
        if not lists and all(self._specs[text].dtype != tf.variant for text in outputs):
            self._nodes.append(node)
            return True
        self._on_lists.append(node.name)
        for _, name, _ in map(parse_input, lists):
            self._families.union(self._position[name], self._position[node.name])
        count, self._op = len(self._nodes), node.name
        try:
            if node.name in kept or node.op not in _RULES or not self._fetched.isdisjoint(outputs):
                raise _NotKnown
            _RULES[node.op](self, node)
        except _NotKnown:
            self._nodes.append(node)
            return node.name in kept
        if all(written.name != node.name for written in self._nodes[count:]):
            self._done[node.name] = [parse_input(text)[1] for text in node.input]
        self.changed.add(node.name)
        return True

    def _family(self, name: str) -> int:
        return self._families.find(self._position[name])


def _set_item(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    elements, position = list(lists.elements(node.input[0])), lists.whole_number(node.input[1])
    if not 0 <= position < len(elements):
        raise _NotKnown
    elements[position] = lists.same(node.input[2])
    lists.is_list(0, elements)


def _get_item(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    elements, position = lists.elements(node.input[0]), lists.whole_number(node.input[1])
    if not 0 <= position < len(elements):
        raise _NotKnown
    _is_element(lists, node, 0, elements[position])


def _pop(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    elements = lists.elements(node.input[0])
    if not elements:
        raise _NotKnown
    lists.is_list(0, elements[:-1])
    _is_element(lists, node, 1, elements[-1])


def _is_element(lists: _Lists, node: node_def_pb2.NodeDef, output: int, element: str | None) -> None:
    if element is None:
        shape = lists.shape(f"{node.name}:{output}")
        element = lists.zeros(shape, tf.as_dtype(node.attr["element_dtype"].type), f"zeros_{output}")
    lists.is_tensor(output, element)


def _stack(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    elements, dtype = lists.elements(node.input[0]), tf.as_dtype(node.attr["element_dtype"].type)
    shapes = {lists.shape(text) for text in elements if text is not None} or {lists.shape(node.name)[1:]}
    if not elements or len(shapes) > 1:
        raise _NotKnown
    (shape,) = shapes
    rows = [text or lists.zeros(shape, dtype, f"zeros_{i}") for i, text in enumerate(elements)]
    lists.write("Pack", rows, [len(rows), *shape], dtype).attr["N"].i = len(rows)


def _element_shape(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    elements = [text for text in lists.elements(node.input[0]) if text is not None]
    if not elements:
        raise _NotKnown
    dtype = tf.as_dtype(node.attr["shape_type"].type).as_numpy_dtype
    lists.constant(np.asarray(lists.shape(elements[0]), dtype))


def _sum(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    """Element by element; elements that were never put in add nothing."""
    sums: list[str | None] = []
    for i, row in enumerate(zip(*(lists.elements(text) for text in data_inputs(node)), strict=True)):
        addends = [text for text in row if text is not None]
        if len(addends) < 2:
            sums.append(addends[0] if addends else None)
            continue
        total = lists.write("AddN", addends, lists.shape(addends[0]), lists.dtype(addends[0]), f"element_{i}")
        total.attr["N"].i = len(addends)
        sums.append(f"{total.name}:0")
    lists.is_list(0, sums)


_RULES: Mapping[str, Callable[[_Lists, node_def_pb2.NodeDef], object]] = {
    "AddN": _sum,
    "EmptyTensorList": lambda lists, node: lists.is_list(0, []),
    "Identity": lambda lists, node: lists.is_list(0, lists.elements(node.input[0])),
    "TensorListElementShape": _element_shape,
    "TensorListFromTensor": lambda lists, node: lists.is_list(0, lists.unpacked(node.input[0], "elements")),
    "TensorListGetItem": _get_item,
    "TensorListLength": lambda lists, node: lists.constant(
        np.asarray(len(lists.elements(node.input[0])), np.int32)
    ),
    "TensorListPopBack": _pop,
    "TensorListPushBack": lambda lists, node: lists.is_list(
        0, [*lists.elements(node.input[0]), lists.same(node.input[1])]
    ),
    "TensorListReserve": lambda lists, node: lists.is_list(
        0, [None] * max(0, lists.whole_number(node.input[1]))
    ),
    "TensorListSetItem": _set_item,
    "TensorListStack": _stack,
    "ZerosLike": lambda lists, node: lists.is_list(0, [None] * len(lists.elements(node.input[0]))),
}
