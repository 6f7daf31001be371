"""Slices of a table's gradient: rows and where they belong, which replicas gather and do not add up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tf_placer.data_parallel.batch_graph import BatchGraph, Tensor

# Makes a table of slices; an optimizer that knows no slices begins with it (``tf.convert_to_tensor`` of them).
_ADDS_ROWS = "UnsortedSegmentSum"


@dataclasses.dataclass(frozen=True)
class Slices:
    """What replicas gather, and who works on the slices of all.

    Attributes:
      tensors: rows of gradients and where they belong, in the order of their ops.
      readers: ops that work on what was gathered, so that their results are the same on every replica.
    """

    tensors: tuple[Tensor, ...]
    readers: frozenset[int]


def find_slices(graph: BatchGraph) -> Slices:
    """Finds where the slices end and what is done with them begins.

    An op that writes rows into a variable reads slices, and so does one that makes a table of rows for an update. An
    optimizer reads the same rows more than once, as they are and squared, say: what it makes of them row by row belongs
    to it. So of rows for the same places only what all of them are made of is gathered.
    """
    ends = [op for op in range(len(graph.types)) if _ends_slices(graph, op)]
    rows_at: dict[tuple[Tensor, ...], list[Tensor]] = {}
    for op in ends:
        carried = graph.carried(op)
        places = tuple(tensor for tensor in carried if not graph.is_float(tensor))
        rows_at.setdefault(places, []).extend(tensor for tensor in carried if graph.is_float(tensor))
    rows = {root for found in rows_at.values() for root in _made_of(graph, found)}
    gathered = rows | {place for places in rows_at for place in places}
    readers = _readers(graph, rows, gathered, ends)
    return Slices(tuple(sorted(gathered)), readers)


def _ends_slices(graph: BatchGraph, op: int) -> bool:
    if graph.writes[op]:
        return bool(graph.carried(op))
    if graph.types[op] != _ADDS_ROWS or len(graph.carried(op)) < 2 or graph.carries((op, 0)):
        return False
    readers = [consumer for producer, _, consumer, _ in graph.edges if producer == op]
    # What is added to another sum is a dense gradient: of a table that is also multiplied with.
    return any(graph.updates[reader] and not graph.is_sum((reader, 0)) for reader in readers)


def _made_of(graph: BatchGraph, rows: Sequence[Tensor]) -> Iterable[Tensor]:
    """The nearest tensor that all are made of row by row; all of them where there is none."""
    lines = [_line(graph, tensor) for tensor in rows]
    common = [tensor for tensor in (lines[0] if lines else ()) if all(tensor in line for line in lines)]
    return common[:1] or rows


def _line(graph: BatchGraph, tensor: Tensor) -> list[Tensor]:
    """A tensor and those that it is made of, each from the next alone and of its shape."""
    line = [tensor]
    while True:
        made_of = [one for one in graph.carried(line[-1][0]) if graph.is_float(one)]
        if len(set(made_of)) != 1 or graph.shapes(made_of[0]) != graph.shapes(tensor):
            return line
        line.append(made_of[0])


def _readers(
    graph: BatchGraph, rows: set[Tensor], gathered: set[Tensor], ends: Sequence[int]
) -> frozenset[int]:
    """The ops at which slices end, and those that read no other examples than gathered rows and their places."""
    readers = set(ends)
    for op in range(len(graph.types)):  # in topological order
        carried = graph.carried(op)
        of_rows = [tensor in rows or tensor[0] in readers for tensor in carried]
        if any(of_rows) and all(
            is_of_rows or tensor in gathered for is_of_rows, tensor in zip(of_rows, carried, strict=True)
        ):
            readers.add(op)
    return frozenset(readers)
