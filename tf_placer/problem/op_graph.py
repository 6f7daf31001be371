"""Tensors and the graph between ops, for planners that decide op by op."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np

from tf_placer.cluster.cluster import Cluster


@dataclasses.dataclass(frozen=True, eq=False)
class TensorTable:
    """T tensors by ascending producer, and the consumers of each (see ``Problem``)."""

    producer: np.ndarray  # [T] int32
    output: np.ndarray  # [T] the id of each among its producer's
    num_bytes: np.ndarray  # [T] int64
    consumer_offset: np.ndarray  # [T + 1] int32
    consumer_op: np.ndarray  # [E'] int32


def tensor_of_edge(consumer_offset: np.ndarray) -> np.ndarray:
    """[E] int64: the tensor of each entry of ``consumer_op``, from where each tensor's entries begin [T + 1]."""
    return np.repeat(np.arange(len(consumer_offset) - 1), np.diff(consumer_offset))


def tensor_table(edges: np.ndarray, tensor_ids: np.ndarray, bytes_of_edge: np.ndarray) -> TensorTable:
    """Groups edges of one tensor; a consumer reading a tensor twice waits once, and no op waits for itself.

    Args:
      edges: [E, 2] producer op, consumer op; an edge of an op to itself is a tensor that may have no consumer.
      tensor_ids: [E] ids; edges of one producer with one id are one tensor.
      bytes_of_edge: [E] int64; a tensor has the bytes of its largest edge.
    """
    keys = np.stack([edges[:, 0], tensor_ids, edges[:, 1]], axis=1)
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    keys, num_bytes = keys[order], bytes_of_edge[order]
    begins_tensor = np.ones(len(keys), bool)
    begins_tensor[1:] = (keys[1:, :2] != keys[:-1, :2]).any(axis=1)
    begins_consumer = begins_tensor.copy()
    begins_consumer[1:] |= keys[1:, 2] != keys[:-1, 2]
    starts = np.flatnonzero(begins_tensor)
    consumers = np.flatnonzero(begins_consumer & (keys[:, 0] != keys[:, 2]))
    counts = np.bincount((np.cumsum(begins_tensor) - 1)[consumers], minlength=len(starts))
    largest = np.maximum.reduceat(num_bytes, starts) if len(starts) else np.zeros(0, np.int64)
    return TensorTable(
        producer=keys[starts, 0].astype(np.int32),
        output=keys[starts, 1],
        num_bytes=largest.astype(np.int64),
        consumer_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        consumer_op=keys[consumers, 2].astype(np.int32),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class TransferTimes:
    """Transfer times over the links of a cluster, sending and receiving included.

    A tensor of b bytes takes ``fixed_ns + ns_per_byte * b``. That is what the simulator takes for it where its channel
    is free and neither end has anything else to do, but for rounding to whole nanoseconds.
    """

    # [D, D] int64, latency, hand-over and the ends' part that does not depend on the size, from row to column
    fixed_ns: np.ndarray
    # [D, D] float64. Nothing crosses on the diagonals: they are not read.
    ns_per_byte: np.ndarray

    @staticmethod
    def of(cluster: Cluster) -> TransferTimes:
        """The times of a cluster's links."""
        handled_ns = cluster.link_tensor_ns() + cluster.link_send_ns() + cluster.link_receive_ns()
        per_byte_ps = cluster.link_send_ps_per_byte() + cluster.link_receive_ps_per_byte()
        per_byte_ns = 1e9 / cluster.link_bytes_per_s() + per_byte_ps / 1e3
        return TransferTimes(cluster.link_latency_ns() + handled_ns, per_byte_ns)

    def between_ns(self, num_bytes: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """[...] float64: bytes from source to target devices, broadcast against each other; 0 where they are one."""
        time_ns = self.fixed_ns[source, target] + self.ns_per_byte[source, target] * num_bytes
        return np.where(np.equal(source, target), 0.0, time_ns)

    def mean_ns(self, num_bytes: np.ndarray) -> np.ndarray:
        """[...] float64: the mean over all links; 0 on a cluster without links."""
        links = ~np.eye(len(self.fixed_ns), dtype=bool)
        if not links.any():
            return np.zeros(np.shape(num_bytes))
        time_ns: np.ndarray = self.fixed_ns[links].mean() + self.ns_per_byte[links].mean() * num_bytes
        return time_ns


@dataclasses.dataclass(frozen=True, eq=False)
class OpGraph:
    """Edges between ops, one per (producer tensor, consumer op), in the order of tensors.

    Ops are in topological order, so every edge leads to a later op; between units there may be cycles
    (``unit_graph``). Everything is computed once for a problem (``Problem.op_graph``), in
    O(N + E) steps but for one sort of the edges.

    Rows are compressed: op i makes the edges ``out_offset[i]:out_offset[i + 1]``, and reads the edges
    ``in_edge[in_offset[i]:in_offset[i + 1]]``, ascending. An op that reads two tensors of another has two
    edges from it.
    """

    op_ns: np.ndarray  # [N] int64, time of each op on the fastest device that it may run on
    tensor_producer: np.ndarray  # [T] int32, ascending
    tensor_bytes: np.ndarray  # [T] int64
    consumer_offset: np.ndarray  # [T + 1] int32, where each tensor's edges begin
    consumer: np.ndarray  # [E] int32, the op at the end of each edge
    transfer: TransferTimes  # what crossing takes

    @property
    def num_ops(self) -> int:
        return len(self.op_ns)

    @functools.cached_property
    def tensor(self) -> np.ndarray:
        """[E] int64, the tensor that each edge is of."""
        return tensor_of_edge(self.consumer_offset)

    @functools.cached_property
    def producer(self) -> np.ndarray:
        """[E] int32, the op at the beginning of each edge, ascending."""
        return self.tensor_producer[self.tensor]

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """[E, 2] int32, the ops at the beginning and at the end of each edge."""
        return np.stack([self.producer, self.consumer], axis=1)

    @functools.cached_property
    def edge_bytes(self) -> np.ndarray:
        """[E] int64, of the edge's tensor; edges of one tensor cross to a device together, and once."""
        return self.tensor_bytes[self.tensor]

    @functools.cached_property
    def out_offset(self) -> np.ndarray:
        """[N + 1] int64."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.producer, minlength=self.num_ops))])

    @functools.cached_property
    def in_offset(self) -> np.ndarray:
        """[N + 1] int64."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.consumer, minlength=self.num_ops))])

    @functools.cached_property
    def in_edge(self) -> np.ndarray:
        """[E] int64."""
        return np.argsort(self.consumer, kind="stable")

    def predecessors(self, op: int) -> np.ndarray:
        """The distinct ops that ``op`` waits for, ascending."""
        return np.unique(self.producer[self.in_edge[self.in_offset[op] : self.in_offset[op + 1]]])

    def successors(self, op: int) -> np.ndarray:
        """The distinct ops that wait for ``op``, ascending."""
        return np.unique(self.consumer[self.out_offset[op] : self.out_offset[op + 1]])

    @functools.cached_property
    def mean_transfer_ns(self) -> np.ndarray:
        """[T] float64, what each tensor takes over a link, in the mean over all links."""
        return self.transfer.mean_ns(self.tensor_bytes)

    @functools.cached_property
    def top_level_ns(self) -> np.ndarray:
        """[N] int64, the longest way from the beginning of the step to the op, which does not count; transfers free."""
        return self.top_levels(self.op_ns)

    @functools.cached_property
    def bottom_level_ns(self) -> np.ndarray:
        """[N] int64, the longest way from the beginning of the op to the end of the step; transfers free."""
        return self.bottom_levels(self.op_ns)

    @functools.cached_property
    def bottom_level_with_transfers_ns(self) -> np.ndarray:
        """[N] float64, ``bottom_level_ns`` where every tensor takes ``mean_transfer_ns``: HEFT's upward rank."""
        return self.bottom_levels(self.op_ns.astype(float), self.mean_transfer_ns)

    def top_levels(self, op_ns: np.ndarray) -> np.ndarray:
        """[N] longest way from the beginning of the step to each op [N], which does not count; transfers free."""
        cost, before = op_ns.tolist(), [0] * self.num_ops
        # Plain lists, because NumPy's calls take longer than the sums. Producers ascend, so theirs are complete.
        for producer, readers in zip(self.tensor_producer.tolist(), self.readers(), strict=True):
            arrival = before[producer] + cost[producer]
            for op in readers:
                if before[op] < arrival:
                    before[op] = arrival
        return np.array(before, op_ns.dtype)

    def bottom_levels(self, op_ns: np.ndarray, tensor_ns: np.ndarray | None = None) -> np.ndarray:
        """[N] longest way from the beginning of each op [N] to the end of the step.

        Tensors [T] take no time without ``tensor_ns``. Whole numbers stay exact where both are.
        """
        cost = op_ns.tolist()
        moves = [0] * len(self.tensor_producer) if tensor_ns is None else tensor_ns.tolist()
        after = [0] * self.num_ops
        producers, all_readers = self.tensor_producer.tolist(), self.readers()
        for tensor in range(len(producers) - 1, -1, -1):
            readers = all_readers[tensor]
            if readers:
                longest = moves[tensor] + max([cost[op] + after[op] for op in readers])
                if after[producers[tensor]] < longest:
                    after[producers[tensor]] = longest
        sums = np.result_type(op_ns, np.int64 if tensor_ns is None else tensor_ns)
        levels: np.ndarray = op_ns + np.array(after, sums)
        return levels

    def readers(self) -> list[list[int]]:
        """[T] lists of the ops that wait for each tensor, ascending."""
        return _rows(self.consumer, self.consumer_offset)

    def inputs(self) -> list[list[int]]:
        """[N] lists of the tensors that each op reads, ascending."""
        return _rows(self.tensor[self.in_edge], self.in_offset)


def _rows(values: np.ndarray, offset: np.ndarray) -> list[list[int]]:
    """Compressed rows as lists."""
    flat, ends = values.tolist(), offset.tolist()
    return [flat[a:b] for a, b in itertools.pairwise(ends)]
