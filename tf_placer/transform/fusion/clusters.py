"""Clusters of a program: rules that propose them, and their legality.

The ops of a legal cluster are compiled by XLA and on one device, and no way leads out of a cluster and back into it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from colocation.op_facts import NEXT_ITERATIONS, GraphIndex, topological_order, values
from tf_placer.base.arguments import InputError
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import NO_CLUSTER

PREFIX = "fused_cluster"  # of the names of clusters' calls
_WORK = values("work")
_PRODUCTS = frozenset(["matmul", "batch_matmul", "einsum"])
_WINDOWS = ("convolution", "depthwise", "pool")
LEAST_KERNELS = 4  # in a cluster of a rule
_MOST_MERGED = 64  # ops in a cluster of greedy merges
_SCOPE = 2  # parts of a name that say the layer
_BACKWARD = "gradient_tape/"


def convex_clusters(
    item: Item, label_of_op: Sequence[object], device_of_op: Mapping[str, str], least: int = 2
) -> np.ndarray:
    """[N] int32, legal clusters of ops with equal labels; -1 for ops in none.

    Ops of one label and device are joined where that makes no cycle (``convex_roots``), so any labels will do.

    Args:
      item: the program, N ops.
      label_of_op: [N], None for ops that stay outside; so do ops that cannot be fused.
      device_of_op: op name -> device; a cluster is on one.
      least: fewest kernels in a cluster, which costs a launch of its own.
    """
    index = item.index
    keys: list[object] = [
        None if why or label is None else (label, device_of_op[name])
        for name, label, why in zip(index.names, label_of_op, why_not_fusible(item), strict=True)
    ]
    roots = convex_roots(_forward_edges(index), index.data_edges[:, [0, 2]], keys)
    return large_enough(roots, starts_kernel(item), least)


def convex_roots(edges: np.ndarray, joins: np.ndarray, keys: Sequence[object]) -> np.ndarray:
    """[N] an op of the cluster that each op is in; -1 for ops in none.

    An op's level is the largest number of clusters that a way to the op has left. Ops of one key and level that are
    joined are a cluster. A way that leaves a cluster reaches higher levels alone, so it never leads back, and the
    clusters together have no cycle either: every edge between two leads to a higher level.

    Args:
      edges: [E, 2] producer and consumer, which has the larger number.
      joins: [E', 2] edges whose ends are one cluster where they can be.
      keys: [N], ops of different keys are in different clusters; None for ops that stay outside.
    """
    producers: list[list[int]] = [[] for _ in keys]
    for producer, consumer in edges.tolist():
        producers[consumer].append(producer)
    level = [0] * len(keys)
    for op, producers_of_op in enumerate(producers):
        for producer in producers_of_op:
            leaves = keys[producer] is not None and keys[producer] != keys[op]
            level[op] = max(level[op], level[producer] + leaves)
    parent = list(range(len(keys)))

    def root(op: int) -> int:
        while parent[op] != op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    for producer, consumer in joins.tolist():
        key = keys[producer]
        if key is not None and key == keys[consumer] and level[producer] == level[consumer]:
            a, b = root(producer), root(consumer)
            parent[max(a, b)] = min(a, b)
    return np.array([NO_CLUSTER if key is None else root(op) for op, key in enumerate(keys)])


def large_enough(roots: np.ndarray, starts: np.ndarray, least: int) -> np.ndarray:
    """[N] int32, the clusters with enough kernels, numbered from 0.

    Args:
      roots: [N] a number of the cluster of each op, below N; -1 for ops in none.
      starts: [N] bool, ops that start a kernel.
      least: fewest kernels.
    """
    counts = np.zeros(len(roots) + 1, np.int64)  # the last is of ops in none
    np.add.at(counts, roots, starts)
    return numbered(np.where(counts[roots] >= least, roots, NO_CLUSTER))


def numbered(cluster_of_op: np.ndarray) -> np.ndarray:
    """[N] int32, the same clusters with numbers from 0 in the order of their first ops."""
    new_number: dict[int, int] = {NO_CLUSTER: NO_CLUSTER}
    for cluster in cluster_of_op.tolist():
        new_number.setdefault(cluster, len(new_number) - 1)
    return np.array([new_number[cluster] for cluster in cluster_of_op.tolist()], np.int32)


def starts_kernel(item: Item) -> np.ndarray:
    """[N] bool, ops that start a kernel; reshapes and the like do not."""
    return np.array([_WORK.get(op_type) != "free" for op_type in item.index.op_types])


def check_clusters(item: Item, cluster_of_op: np.ndarray, device_of_op: Mapping[str, str]) -> None:
    """Raises InputError where an op cannot be fused, or a cluster is on two devices or in a cycle.

    Args:
      item: the program, N ops.
      cluster_of_op: [N] as in ``Decisions``.
      device_of_op: op name -> device.
    """
    index, device_of_cluster = item.index, dict[int, tuple[str, str]]()
    why_not = why_not_fusible(item)
    fused = np.flatnonzero(cluster_of_op != NO_CLUSTER).tolist()
    for op in fused:
        name, cluster = index.names[op], int(cluster_of_op[op])
        if why_not[op]:
            raise InputError(f"op {name!r} cannot be in cluster {cluster}: {why_not[op]}; take it out")
        member, device = device_of_cluster.setdefault(cluster, (name, device_of_op[name]))
        if device != device_of_op[name]:
            raise InputError(
                f"cluster {cluster} has {member!r} on {device} and {name!r} on {device_of_op[name]}; give all of a "
                "cluster the same device, or make it two"
            )
    number, edges = contracted(index, cluster_of_op)
    sorted_nodes = np.zeros(index.num_ops, bool)
    sorted_nodes[topological_order(index.num_ops, edges)] = True
    stuck = next((op for op in fused if not sorted_nodes[number[op]]), None)
    if stuck is not None:
        raise InputError(
            f"cluster {int(cluster_of_op[stuck])} makes a cycle: something outside needs it and it needs that, by way "
            f"of {index.names[stuck]!r}; take that op out, or what is between in"
        )


def contracted(index: GraphIndex, cluster_of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each op [N] in the graph in which a cluster is one node, and that graph's edges [E, 2]."""
    number = np.arange(index.num_ops)
    first_op: dict[int, int] = {}
    for op in np.flatnonzero(cluster_of_op != NO_CLUSTER).tolist():
        number[op] = first_op.setdefault(int(cluster_of_op[op]), op)
    edges = number[_forward_edges(index)]
    return number, edges[edges[:, 0] != edges[:, 1]]


def _forward_edges(index: GraphIndex) -> np.ndarray:
    """[E, 2] data and control edges, without back edges of loops."""
    back = np.array([op_type in NEXT_ITERATIONS for op_type in index.op_types], bool)
    return index.edges[~back[index.edges[:, 0]]] if len(index.edges) else index.edges


@dataclasses.dataclass(frozen=True)
class Rule:
    """A way to cluster a program."""

    what: str  # one clause for reports
    labels: Callable[
        [Item], Sequence[object]
    ]  # [N] labels of a program's ops; None for ops that stay outside

    def clusters(self, item: Item, device_of_op: Mapping[str, str]) -> np.ndarray:
        """[N] int32, clusters of a program; -1 for ops in none."""
        return convex_clusters(item, self.labels(item), device_of_op, LEAST_KERNELS)


def _is_heavy(item: Item) -> list[bool]:
    """[N] products, convolutions and pools."""
    works = [_WORK.get(op_type, "") for op_type in item.index.op_types]
    return [work in _PRODUCTS or work.startswith(_WINDOWS) for work in works]


def _chain(item: Item) -> Sequence[object]:
    """None for the last products of each way, mostly gradients of weights: other threads run them side by side."""
    is_heavy = _is_heavy(item)
    leads_to_heavy = [False] * len(is_heavy)
    for op in reversed(range(len(is_heavy))):  # an item's ops are in topological order
        leads_to_heavy[op] = any(
            is_heavy[consumer] or leads_to_heavy[consumer] for consumer in item.index.consumers[op]
        )
    return [0 if leads_to_heavy[op] or not heavy else None for op, heavy in enumerate(is_heavy)]


def _greedy(item: Item) -> Sequence[object]:
    """Merges of producers with consumers, the most bytes between two first, as GO merges by priority (2020)."""
    index = item.index
    is_fusible = [not why for why in why_not_fusible(item)]
    group, members = list(range(index.num_ops)), {op: [op] for op in range(index.num_ops)}
    num_bytes: dict[tuple[int, int], int] = collections.defaultdict(int)
    for producer, output, consumer, _ in index.data_edges.tolist():
        if is_fusible[producer] and is_fusible[consumer]:
            num_bytes[producer, consumer] += item.outputs[producer][output].num_bytes
    for producer, consumer in sorted(num_bytes, key=lambda edge: (-num_bytes[edge], edge)):
        a, b = group[producer], group[consumer]
        if a != b and len(members[a]) + len(members[b]) <= _MOST_MERGED:
            for op in members[b]:
                group[op] = a
            members[a] += members.pop(b)
    return group


# In the order in which a search tries them.
RULES: Mapping[str, Rule] = {
    "everything": Rule(
        "all that XLA compiles, as its own clustering does", lambda item: [0] * item.index.num_ops
    ),
    "chain": Rule("all but products that lead to no other product, which run side by side", _chain),
    "layers": Rule(
        "each layer's ops, forward and backward apart",
        lambda item: [
            (name.startswith(_BACKWARD), tuple(name.removeprefix(_BACKWARD).split("/")[:_SCOPE]))
            for name in item.index.names
        ],
    ),
    "greedy": Rule("producers merged with consumers, the most bytes first", _greedy),
    "regions": Rule(
        "what is between products, convolutions and pools",
        lambda item: [None if heavy else 0 for heavy in _is_heavy(item)],
    ),
    "without_windows": Rule(
        "all but convolutions and pools",
        lambda item: [
            None if _WORK.get(op_type, "").startswith(_WINDOWS) else 0 for op_type in item.index.op_types
        ],
    ),
}
