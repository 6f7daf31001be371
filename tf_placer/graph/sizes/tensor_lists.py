"""Contents of the tensor lists of a graph: variants that hold the elements of a ``tf.TensorArray``, or of a loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import LOOPS, having, values

_PASSED_ON = frozenset({"Identity", "TensorListResize", "TensorListSetItem", "TensorListPushBack"})
_MAX_ITERATIONS_INPUT = 1


@dataclasses.dataclass(frozen=True)
class TensorList:
    """Length and element shape of a list.

    Attributes:
      length: elements that it was made for, or that a loop puts in; 0 where nothing tells.
      element: shape of one, with -1 for what is open; None for any rank.
    """

    length: int
    element: tuple[int, ...] | None

    def element_or(self, batch: int) -> tuple[int, ...]:
        """Shape of one element, with ``batch`` for what is open; of unknown rank, a scalar."""
        return tuple(batch if size < 0 else size for size in self.element or ())


def lists_of(
    node: node_def_pb2.NodeDef,
    inputs: Sequence[tuple[int, ...] | None],
    lists: Sequence[TensorList | None],
    value: Callable[[int], np.ndarray | None],
) -> dict[int, TensorList]:
    """The lists among the outputs of an op.

    Args:
      node: the op.
      inputs: shape of each data input; a handle has none.
      lists: of each data input, the list that it is, if it is one.
      value: value of a data input, or None where it is no constant.

    Returns:
      Output -> list.
    """
    if node.op in ("TensorListReserve", "EmptyTensorList"):
        length = value(1) if node.op == "TensorListReserve" else None
        return {0: TensorList(_count(length), _element(value(0)))}
    if node.op == "TensorListFromTensor" and inputs[0]:
        return {0: TensorList(inputs[0][0], inputs[0][1:])}
    if node.op in _PASSED_ON and lists and lists[0] is not None:
        return {0: lists[0]}
    if node.op in LOOPS:
        iterations = _iterations(lists, value)
        return {
            i: dataclasses.replace(one, length=one.length or iterations)
            for i, one in enumerate(lists)
            if one is not None
        }
    return {}


def _element(shape: np.ndarray | None) -> tuple[int, ...] | None:
    """The shape behind an ``element_shape``, which is -1 for any rank."""
    return None if shape is None or np.ndim(shape) != 1 else tuple(int(size) for size in shape)


def _iterations(lists: Sequence[TensorList | None], value: Callable[[int], np.ndarray | None]) -> int:
    """Trip count of a loop, by the lists that it goes through, or by its limit."""
    longest = max((one.length for one in lists if one is not None), default=0)
    most = value(_MAX_ITERATIONS_INPUT) if len(lists) > _MAX_ITERATIONS_INPUT else None
    return longest or _count(most)


def _count(value: np.ndarray | None) -> int:
    return max(0, int(value)) if value is not None and np.ndim(value) == 0 else 0


# Elements of the arrays and stacks of TensorFlow 1, which one op puts behind a handle and another takes out.

Tensor = tuple[str, int]
"""(node, output)."""

_MAKES, _TAKES = having("makes_array"), values("takes")
# ``Enter`` is an ``Identity`` here.
_HANDS_ON = frozenset({"Identity", "Switch", "Merge", "Exit", "NextIteration"})
# Op type -> the input that is put in; in front of an element's dimensions a scattered one has one more.
_PUTS = {op_type: int(position) for op_type, position in values("puts").items()}
_SCATTERS, _SPLITS = "TensorArrayScatterV3", "TensorArraySplitV3"


class TensorArrays:
    """Elements by the op that made the array, as far as a walk over the graph has seen what is put in.

    An array of gradients has elements like those of what it is the gradient of.
    """

    def __init__(self, known: Mapping[str, TensorList] | None = None) -> None:
        """Starts with what an earlier walk has seen, because something may be taken out before it is put in."""
        self.known: dict[str, TensorList] = dict(known or {})
        self.is_complete = True  # nothing was taken out whose elements were not known
        self._maker: dict[Tensor, str] = {}
        self._gradient_of: dict[str, str] = {}

    def saw(
        self,
        node: node_def_pb2.NodeDef,
        names: Sequence[Tensor],
        inputs: Sequence[tuple[int, ...] | None],
        length: int,
    ) -> None:
        """Remembers what an op does to an array.

        Args:
          node: the op.
          names: its data inputs.
          inputs: their shapes; a handle has none.
          length: elements that the op makes an array for, 0 where nothing tells.
        """
        if node.op in _MAKES:
            self._maker[node.name, 0] = node.name
            if names and names[0] in self._maker:
                self._gradient_of[node.name] = self._maker[names[0]]
            elif length:
                self.known.setdefault(node.name, TensorList(length, None))
        elif names and names[0] in self._maker:
            maker = self._maker[names[0]]
            if node.op in _HANDS_ON:
                self._maker.update({(node.name, output): maker for output in range(2)})
            elif node.op == _SPLITS:
                if inputs[1] and inputs[2]:
                    parts = inputs[2][0]
                    self._put(maker, parts, (-(-inputs[1][0] // max(1, parts)), *inputs[1][1:]))
            elif node.op in _PUTS:
                value, leading = inputs[_PUTS[node.op]] or (), int(node.op == _SCATTERS)
                self._put(maker, value[0] if leading and value else 0, value[leading:])

    def found(self, handle: Tensor) -> TensorList | None:
        """List in the array behind a handle; None where it is not known."""
        return next((one for one in self._behind(handle) if one.element is not None), None)

    def length(self, handle: Tensor) -> int:
        """Elements of the array behind a handle; 0 where they are not known."""
        return next((one.length for one in self._behind(handle) if one.length), 0)

    def _behind(self, handle: Tensor) -> Iterator[TensorList]:
        """Lists known of the array behind a handle, and of those that it is the gradient of."""
        maker = self._maker.get(handle)
        while maker is not None:
            if maker in self.known:
                yield self.known[maker]
            maker = self._gradient_of.get(maker)

    def taken(
        self, node: node_def_pb2.NodeDef, names: Sequence[Tensor], inputs: Sequence[tuple[int, ...] | None]
    ) -> tuple[int, ...] | None:
        """Shape of what an op takes out of an array; None where it takes nothing, or that is not known."""
        if node.op not in _TAKES:
            return None
        array = self.found(names[0])
        if array is None or array.element is None:
            self.is_complete = False
            return None
        if _TAKES[node.op] == "one":
            return array.element
        count = self.length(names[0]) or (inputs[1] or (1,))[0]
        if node.op == "TensorArrayGatherV3":
            return (count, *array.element)
        return (count * array.element[0], *array.element[1:]) if array.element else None

    def _put(self, maker: str, length: int, element: tuple[int, ...]) -> None:
        before = self.known.get(maker, TensorList(0, None))
        self.known[maker] = TensorList(before.length or length, before.element or element)
