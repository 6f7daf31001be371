"""Which tensors replicas have to agree on: found by comparing a step with the same step of a smaller batch."""

from __future__ import annotations

import dataclasses

from tf_placer.data_parallel.batch_graph import BatchGraph, Tensor
from tf_placer.data_parallel.slices import find_slices
from tf_placer.graph.item import Item

Readers = tuple[tuple[int, int], ...]
"""(op, input) of those that read a tensor after it has crossed."""


@dataclasses.dataclass(frozen=True)
class Gradients:
    """What crosses between replicas of a step, as (op, output) of its graph.

    Attributes:
      dense: sums over the batch that an update reads, in the order of their ops: an all-reduce makes them equal
        everywhere. Beside gradients these are the statistics of a batch that a step keeps.
      consumers: of each of ``dense``, the (op, input) that read what was reduced.
      sparse: what an update reads of each example (slices of a gradient), which all replicas gather.
      sparse_consumers: of each of ``sparse``, the (op, input) that read what was gathered.
    """

    dense: tuple[Tensor, ...]
    consumers: tuple[Readers, ...]
    sparse: tuple[Tensor, ...]
    sparse_consumers: tuple[Readers, ...]


def find_gradients(whole: Item, part: Item) -> Gradients:
    """Finds where the sums over the batch end and what is done with them begins.

    The output of a sum over the batch is a gradient where an op that touches no example reads it on the way to a
    variable. Sums of gradients are gradients themselves, so that what an unrolled network adds up crosses once. Rows of
    a table's gradient are not added up before they cross (``slices``).

    Args:
      whole: the step.
      part: the same step of a smaller batch.

    Raises:
      InputError: they differ in more than sizes.
    """
    graph = BatchGraph(whole, part)
    slices = find_slices(graph)
    dense: dict[Tensor, list[tuple[int, int]]] = {}
    sparse: dict[Tensor, list[tuple[int, int]]] = {tensor: [] for tensor in slices.tensors}
    for producer, output, consumer, position in graph.edges:
        tensor = (producer, output)
        if producer in slices.readers:  # the same on every replica already
            continue
        if tensor in sparse and consumer in slices.readers:
            sparse[tensor].append((consumer, position))
        elif graph.is_sum(tensor) and graph.updates[consumer] and not graph.is_sum((consumer, 0)):
            dense.setdefault(tensor, []).append((consumer, position))
    reduced = sorted(dense)
    return Gradients(
        dense=tuple(reduced),
        consumers=tuple(tuple(dense[tensor]) for tensor in reduced),
        sparse=tuple(sparse),
        sparse_consumers=tuple(tuple(consumers) for consumers in sparse.values()),
    )
