"""What is in the tensor lists of a graph: variants that hold the elements of a ``tf.TensorArray``, or of a loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import LOOPS

_PASSED_ON = frozenset({"Identity", "TensorListResize", "TensorListSetItem", "TensorListPushBack"})
_MAX_ITERATIONS_INPUT = 1


@dataclasses.dataclass(frozen=True)
class TensorList:
    """What a list holds.

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
    """How often a loop runs, by the lists that it goes through, or by the most that it may."""
    longest = max((one.length for one in lists if one is not None), default=0)
    most = value(_MAX_ITERATIONS_INPUT) if len(lists) > _MAX_ITERATIONS_INPUT else None
    return longest or _count(most)


def _count(value: np.ndarray | None) -> int:
    return max(0, int(value)) if value is not None and np.ndim(value) == 0 else 0
