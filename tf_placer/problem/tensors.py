"""Edges to tensors: the compressed rows that the simulator reads."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class TensorTable:
    """T tensors by ascending producer, and who waits for each (see ``Problem``)."""

    producer: np.ndarray  # [T] int32
    output: np.ndarray  # [T] the id of each among its producer's
    num_bytes: np.ndarray  # [T] int64
    consumer_offset: np.ndarray  # [T + 1] int32
    consumer_op: np.ndarray  # [E'] int32

    def without_self_consumers(self) -> TensorTable:
        """Drops edges of an op to itself: their tensors stay, with nobody waiting for them."""
        tensor = tensor_of_edge(self.consumer_offset)
        kept = self.consumer_op != self.producer[tensor]
        counts = np.bincount(tensor[kept], minlength=len(self.producer))
        return dataclasses.replace(
            self,
            consumer_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            consumer_op=self.consumer_op[kept],
        )


def tensor_of_edge(consumer_offset: np.ndarray) -> np.ndarray:
    """[E] int64: the tensor of each entry of ``consumer_op``, from where each tensor's entries begin [T + 1]."""
    return np.repeat(np.arange(len(consumer_offset) - 1), np.diff(consumer_offset))


def tensor_table(edges: np.ndarray, tensor_ids: np.ndarray, bytes_of_edge: np.ndarray) -> TensorTable:
    """Groups edges of one tensor; a consumer that reads a tensor twice waits for it once.

    Args:
      edges: [E, 2] producer op, consumer op.
      tensor_ids: [E] ids; edges of one producer with one id are one tensor.
      bytes_of_edge: [E] int64; a tensor has the bytes of its largest edge.
    """
    keys = np.stack([edges[:, 0], tensor_ids, edges[:, 1]], axis=1)
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    keys, num_bytes = keys[order], bytes_of_edge[order]
    first_of_tensor = np.ones(len(keys), bool)
    first_of_tensor[1:] = (keys[1:, :2] != keys[:-1, :2]).any(axis=1)
    first_of_consumer = first_of_tensor.copy()
    first_of_consumer[1:] |= keys[1:, 2] != keys[:-1, 2]
    starts = np.flatnonzero(first_of_tensor)
    tensor = np.cumsum(first_of_tensor) - 1
    consumers = np.flatnonzero(first_of_consumer)
    counts = np.bincount(tensor[consumers], minlength=len(starts))
    largest = np.maximum.reduceat(num_bytes, starts) if len(starts) else np.zeros(0, np.int64)
    return TensorTable(
        producer=keys[starts, 0].astype(np.int32),
        output=keys[starts, 1],
        num_bytes=largest.astype(np.int64),
        consumer_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        consumer_op=keys[consumers, 2].astype(np.int32),
    )
