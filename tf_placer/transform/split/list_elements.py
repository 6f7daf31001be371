"""Lists of tensors whose elements are known before the step: who takes an element reads what was put there.

A loop keeps in lists what its gradient needs, and what a ``tf.TensorArray`` holds. Once the loop is written out, every
index is a constant, so each element is an ordinary edge. Lists that are used in a way that has no rule here stay.
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
from tf_placer.transform.split.known_values import known_values

_Elements = tuple[str | None, ...]
"""Tensor that is each element; None for one that nobody has put in, which is zero."""


def without_lists(item: Item, origin_of: Mapping[str, str]) -> tuple[Item, dict[str, str]]:
    """The program without those lists of tensors whose elements are known, and the origin of its ops.

    Args:
      item: the program.
      origin_of: op of it -> where that came from.
    """
    while True:  # without some lists, the sizes of what is in others may be known
        lists = _lists(item)
        if not lists.changed:
            return item, dict(origin_of)
        program = dataclasses.replace(
            item.as_program(),
            graph_def=with_nodes(item.graph_def, lists.rewired()),
            fetches=tuple(with_output(lists.same(text)) for text in item.fetches),
        )
        made_of = {name: name for name in item.index.names} | lists.made_of
        item = rewritten(
            item, program, made_of, {n: s for n, s in sizes_to_keep(item).items() if n not in lists.changed}
        )
        origin_of = {name: origin_of[made_of[name]] for name in item.index.names}


def sizes_to_keep(item: Item) -> dict[str, tuple[OutputSpec, ...]]:
    """Op -> its outputs, not to be inferred again: none of them where some are estimates, which others follow from."""
    if any(spec.is_estimated for specs in item.outputs for spec in specs):
        return {}
    return dict(zip(item.index.names, item.outputs, strict=True))


def _lists(item: Item) -> _Lists:
    known, kept = known_values(item.index, item.outputs), set[str]()
    while True:
        lists = _Lists(item, known, kept)
        if not lists.not_known:
            return lists
        kept |= lists.not_known


class _NotKnown(Exception):
    """The elements of a list depend on data, or an op on it has no rule."""


class _Lists:
    """One walk over a program, from inputs to results.

    Attributes:
      not_known: ops on lists that stay: one of them has no rule, or reads what depends on data, and the others share a
        list with it.
      made_of: node that was written -> op that it was written for.
      changed: ops that are left out, or in whose place others were written.
    """

    def __init__(
        self, item: Item, known: Mapping[tuple[int, int], np.ndarray], kept: Collection[str]
    ) -> None:
        """Walks.

        Args:
          item: the program.
          known: values of its tensors, where these are known.
          kept: ops on lists that stay.
        """
        self.made_of: dict[str, str] = {}
        self.changed: set[str] = set()
        self._nodes: list[node_def_pb2.NodeDef] = []
        self._taken = set(item.index.names)
        self._op = ""  # that a rule is applied to
        self._elements: dict[str, _Elements] = {}  # of each list, "name:i"
        self._same: dict[str, str] = {}  # tensor -> the one that it is
        self._done: dict[str, list[str]] = {}  # op that is left out -> what is done when it would be
        self._position = item.index.id_of_name
        self._families = DisjointSet(item.index.num_ops)  # ops on lists that are made of one another
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
        failed = [node.name for node in item.graph_def.node if not self._went_through(node, kept)]
        lost = {self._family(name) for name in failed}
        self.not_known = {name for name in self._on_lists if self._family(name) in lost}

    def rewired(self) -> list[node_def_pb2.NodeDef]:
        """The nodes that are left, which read elements instead of lists."""
        found = []
        for node in self._nodes:
            data = [self.same(text) for text in data_inputs(node)]
            controls = self._after(text[1:] for text in control_inputs(node))
            found.append(copy_of(node, [*data, *(f"^{name}" for name in controls)]))
        return found

    # What rules ask for and write.

    def same(self, text: str) -> str:
        """The tensor that stands for one, with its output."""
        text = with_output(text)
        while text in self._same:
            text = self._same[text]
        return text

    def elements(self, text: str) -> _Elements:
        """Of a list; raises _NotKnown."""
        if with_output(text) not in self._elements:
            raise _NotKnown
        return self._elements[with_output(text)]

    def whole_number(self, text: str) -> int:
        """A value that is known; raises _NotKnown."""
        value = self._values.get(self.same(text))
        if value is None:
            raise _NotKnown
        return int(value)

    def shape(self, text: str) -> tuple[int, ...]:
        """Of a tensor; raises _NotKnown where it is an estimate."""
        spec = self._specs[self.same(text)]
        if spec.is_estimated:
            raise _NotKnown
        return spec.shape

    def dtype(self, text: str) -> tf.DType:
        """Of a tensor."""
        return self._specs[self.same(text)].dtype

    def is_list(self, output: int, elements: Iterable[str | None]) -> None:
        """Says what the elements of an output are."""
        self._elements[f"{self._op}:{output}"] = tuple(elements)

    def is_tensor(self, output: int, text: str) -> None:
        """Says which tensor an output is."""
        self._same[f"{self._op}:{output}"] = text

    def write(
        self, op_type: str, inputs: Sequence[str], shape: Sequence[int], dtype: tf.DType, name: str = ""
    ) -> node_def_pb2.NodeDef:
        """Writes a node, named as the op or below it; its outputs have one shape and type."""
        full = fresh_name(f"{self._op}/{name}", self._taken) if name else self._op
        node = node_def_pb2.NodeDef(op=op_type, name=full, input=inputs)
        node.attr["T" if op_type != "Const" else "dtype"].type = dtype.as_datatype_enum
        self._nodes.append(node)
        self.made_of[full] = self._op
        self._specs[f"{full}:0"] = OutputSpec.of(tuple(shape), dtype)
        return node

    def constant(self, value: np.ndarray, name: str = "") -> str:
        """Writes a constant; gives its tensor."""
        node = self.write("Const", [], value.shape, tf.as_dtype(value.dtype), name)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        self._values[f"{node.name}:0"] = value
        return f"{node.name}:0"

    def zeros(self, shape: Sequence[int], dtype: tf.DType, name: str = "") -> str:
        """Writes zeros; gives their tensor."""
        sizes = self.constant(np.asarray(shape, np.int32), f"{name or 'zeros'}/sizes")
        zero = self.constant(np.zeros([], dtype.as_numpy_dtype), f"{name or 'zeros'}/zero")
        node = self.write("Fill", [sizes, zero], shape, dtype, name)
        node.attr["index_type"].type = tf.int32.as_datatype_enum
        return f"{node.name}:0"

    def unpacked(self, text: str, name: str) -> list[str]:
        """Writes what takes the rows of a tensor apart; gives their tensors."""
        count, *shape = self.shape(text)
        dtype = self.dtype(text)
        node = self.write("Unpack", [text], shape, dtype, name)
        node.attr["num"].i = count
        found = [f"{node.name}:{i}" for i in range(count)]
        self._specs |= dict.fromkeys(found, OutputSpec.of(tuple(shape), dtype))
        return found

    # The walk.

    def _went_through(self, node: node_def_pb2.NodeDef, kept: Collection[str]) -> bool:
        """Whether an op is none on lists, or one that need not stay."""
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
        if all(made.name != node.name for made in self._nodes[count:]):
            self._done[node.name] = [parse_input(text)[1] for text in node.input]
        self.changed.add(node.name)
        return True

    def _family(self, name: str) -> int:
        return self._families.find(self._position[name])

    def _after(self, names: Iterable[str]) -> list[str]:
        """The nodes to wait for instead of some ops."""
        found = reached(names, lambda name: self._done.get(name, []))
        return sorted(found - self._done.keys())


# Rules: what becomes of an op on lists.


def _reserve(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    lists.is_list(0, [None] * max(0, lists.whole_number(node.input[1])))


def _empty(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    del node
    lists.is_list(0, [])


def _from_tensor(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    lists.is_list(0, lists.unpacked(node.input[0], "elements"))


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


def _push(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    lists.is_list(0, [*lists.elements(node.input[0]), lists.same(node.input[1])])


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
    shapes = {lists.shape(one) for one in elements if one is not None} or {lists.shape(node.name)[1:]}
    if not elements or len(shapes) > 1:
        raise _NotKnown
    (shape,) = shapes
    rows = [one or lists.zeros(shape, dtype, f"zeros_{i}") for i, one in enumerate(elements)]
    lists.write("Pack", rows, [len(rows), *shape], dtype).attr["N"].i = len(rows)


def _length(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    lists.constant(np.asarray(len(lists.elements(node.input[0])), np.int32))


def _element_shape(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    elements = [one for one in lists.elements(node.input[0]) if one is not None]
    if not elements:
        raise _NotKnown
    lists.constant(
        np.asarray(lists.shape(elements[0]), tf.as_dtype(node.attr["shape_type"].type).as_numpy_dtype)
    )


def _sum(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    """Element by element; what nobody has put in adds nothing."""
    rows = list(zip(*(lists.elements(text) for text in data_inputs(node)), strict=True))
    found: list[str | None] = []
    for i, row in enumerate(rows):
        addends = [one for one in row if one is not None]
        if len(addends) < 2:
            found.append(addends[0] if addends else None)
            continue
        total = lists.write("AddN", addends, lists.shape(addends[0]), lists.dtype(addends[0]), f"element_{i}")
        total.attr["N"].i = len(addends)
        found.append(f"{total.name}:0")
    lists.is_list(0, found)


def _zeros_like(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    lists.is_list(0, [None] * len(lists.elements(node.input[0])))


def _identity(lists: _Lists, node: node_def_pb2.NodeDef) -> None:
    lists.is_list(0, lists.elements(node.input[0]))


_RULES: Mapping[str, Callable[[_Lists, node_def_pb2.NodeDef], None]] = {
    "AddN": _sum,
    "EmptyTensorList": _empty,
    "Identity": _identity,
    "TensorListElementShape": _element_shape,
    "TensorListFromTensor": _from_tensor,
    "TensorListGetItem": _get_item,
    "TensorListLength": _length,
    "TensorListPopBack": _pop,
    "TensorListPushBack": _push,
    "TensorListReserve": _reserve,
    "TensorListSetItem": _set_item,
    "TensorListStack": _stack,
    "ZerosLike": _zeros_like,
}
