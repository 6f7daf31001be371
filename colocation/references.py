"""References to the buffers of v1 variables: which tensors are such, and who reads and writes behind them."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator

from colocation.argument_types import input_types, is_ref, op_definition, output_types
from colocation.graph_index import GraphIndex, reached
from colocation.op_facts import having

LEAVES_AS_IT_IS, _SAME_BUFFER = having("keeps_reference"), having("same_buffer")


@dataclasses.dataclass(frozen=True)
class References:
    """The references in a graph.

    Attributes:
      made: (op, output) of those that are made or handed on.
      taken: (op, input) of the inputs that take the reference itself. Any other that one leads to takes its value.
    """

    made: frozenset[tuple[int, int]]
    taken: frozenset[tuple[int, int]]


def references_of(index: GraphIndex) -> References:
    """Finds the references of a graph; of functions that it calls by name none is asked."""
    nodes = index.graph_def.node
    made = frozenset(
        (op, output)
        for op, op_type in enumerate(index.op_types)
        if _has_references(op_type)[1]
        for output, dtype in enumerate(output_types(nodes[op]))
        if is_ref(dtype)
    )
    taken = frozenset(
        (op, position)
        for op, op_type in enumerate(index.op_types)
        if made and _has_references(op_type)[0]
        for position, dtype in enumerate(input_types(nodes[op]))
        if is_ref(dtype)
    )
    return References(made, taken)


class Buffers:
    """The buffers behind the references of a graph in topological order.

    Attributes:
      readers: (op with a reference, consumer that takes its value).
    """

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self.readers: list[tuple[int, int]] = []
        self._views: list[tuple[int, int]] = []  # (op that has handed a buffer on, consumer)
        self._writers: dict[int, list[int]] = collections.defaultdict(list)  # of the variable
        references = references_of(index)
        self._variable = {op: op for op, _ in references.made}  # behind each op that gives its buffer
        for producer, output, consumer, position in index.data_edges.tolist() if references.made else ():
            if producer not in self._variable:
                continue
            variable, op_type = self._variable[producer], index.op_types[consumer]
            if (consumer, position) in references.taken:
                self._variable[consumer] = variable
                if op_type not in LEAVES_AS_IT_IS:
                    self._writers[variable].append(consumer)
                continue
            is_reference = (producer, output) in references.made
            (self.readers if is_reference else self._views).append((producer, consumer))
            if op_type in _SAME_BUFFER:
                self._variable[consumer] = variable

    def late_readers(self) -> Iterator[tuple[int, int]]:
        """Yields (op that handed a buffer on, consumer) where the consumer is behind a write to it, the first not."""
        behind = {
            variable: reached(self._writers[variable], lambda op: self._index.consumers[op])
            for variable in sorted({self._variable[view] for view, _ in self._views})
        }
        for view, consumer in self._views:
            written = behind[self._variable[view]]
            if consumer in written and view not in written:
                yield view, consumer


@functools.cache
def _has_references(op_type: str) -> tuple[bool, bool]:
    """Whether inputs, and outputs, of a type are references."""
    definition = op_definition(op_type)
    if definition is None:
        return False, False
    return any(a.is_ref for a in definition.input_arg), any(a.is_ref for a in definition.output_arg)
