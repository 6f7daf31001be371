"""Legality of clusters: ops that XLA compiles, on one device, with no way out of a cluster and back into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from colocation.op_facts import NEXT_ITERATIONS, GraphIndex, topological_order, values
from tf_placer.base.arguments import InputError
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import NO_CLUSTER

PREFIX = "fused_cluster"
"""What the names of clusters' calls begin with."""
_WORK = values("work")


def convex_clusters(
    item: Item, label_of_op: Sequence[object], device_of_op: Mapping[str, str], least: int = 2
) -> np.ndarray:
    """[N] int32, legal clusters of ops that have one label; -1 for ops in none.

    Ops of one label and device are joined where that makes no cycle (``convex_roots``), so any labels will do.

    Args:
      item: the program, N ops.
      label_of_op: [N] what belongs together; None for ops that stay outside. Ops that cannot be fused stay outside too.
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
    """[N] an op of the cluster that each op is in; -1 of ops that are in none.

    An op's level is the largest number of clusters that a way to it has left. Ops of one key and level that are joined
    are a cluster. A way that leaves a cluster reaches higher levels alone, so it never leads back, and the clusters
    together have no cycle either: every edge between two leads to a higher level.

    Args:
      edges: [E, 2] producer and consumer, which has the larger number.
      joins: [E', 2] edges whose ends are one cluster where they can be.
      keys: [N] what may be in one cluster; None of ops that stay outside.
    """
    producers: list[list[int]] = [[] for _ in keys]
    for producer, consumer in edges.tolist():
        producers[consumer].append(producer)
    level = [0] * len(keys)
    for op, of_op in enumerate(producers):
        for one in of_op:
            leaves = keys[one] is not None and keys[one] != keys[op]
            level[op] = max(level[op], level[one] + leaves)
    first = list(range(len(keys)))

    def root(op: int) -> int:
        while first[op] != op:
            first[op] = first[first[op]]
            op = first[op]
        return op

    for producer, consumer in joins.tolist():
        if (
            keys[producer] is not None
            and keys[producer] == keys[consumer]
            and level[producer] == level[consumer]
        ):
            a, b = root(producer), root(consumer)
            first[max(a, b)] = min(a, b)
    return np.array([NO_CLUSTER if key is None else root(op) for op, key in enumerate(keys)])


def large_enough(roots: np.ndarray, starts: np.ndarray, least: int) -> np.ndarray:
    """[N] int32, the clusters that have so many kernels, numbered from 0.

    Args:
      roots: [N] a number of the cluster of each op, below N; -1 for ops in none.
      starts: [N] bool, ops that start a kernel.
      least: fewest of them.
    """
    counts = np.zeros(len(roots) + 1, np.int64)  # the last is of ops in none
    np.add.at(counts, roots, starts)
    return numbered(np.where(counts[roots] >= least, roots, NO_CLUSTER))


def numbered(cluster_of_op: np.ndarray) -> np.ndarray:
    """[N] int32, the same clusters with numbers from 0 in the order of their first ops."""
    new_number: dict[int, int] = {}
    for cluster in cluster_of_op.tolist():
        if cluster != NO_CLUSTER:
            new_number.setdefault(cluster, len(new_number))
    return np.array([new_number.get(cluster, NO_CLUSTER) for cluster in cluster_of_op.tolist()], np.int32)


def starts_kernel(item: Item) -> np.ndarray:
    """[N] bool, ops that start a kernel; reshapes and the like do not."""
    free = {op_type for op_type, formula in _WORK.items() if formula == "free"}
    return np.array([op_type not in free for op_type in item.index.op_types])


def check_clusters(item: Item, cluster_of_op: np.ndarray, device_of_op: Mapping[str, str]) -> None:
    """Raises InputError where an op cannot be fused, or a cluster is on two devices or in a cycle.

    Args:
      item: the program, N ops.
      cluster_of_op: [N] as in ``Decisions``.
      device_of_op: op name -> device.
    """
    index, device_of_cluster = item.index, dict[int, tuple[str, str]]()
    why_not = why_not_fusible(item)
    for op in np.flatnonzero(cluster_of_op != NO_CLUSTER).tolist():
        name, cluster = index.names[op], int(cluster_of_op[op])
        if why_not[op]:
            raise InputError(f"op {name!r} cannot be in cluster {cluster}: {why_not[op]}; take it out")
        other, device = device_of_cluster.setdefault(cluster, (name, device_of_op[name]))
        if device != device_of_op[name]:
            raise InputError(
                f"cluster {cluster} has {other!r} on {device} and {name!r} on {device_of_op[name]}; give all of a "
                "cluster the same device, or make it two"
            )
    stuck = _on_a_cycle(index, cluster_of_op)
    if stuck is not None:
        raise InputError(
            f"cluster {int(cluster_of_op[stuck])} makes a cycle: something outside needs it and it needs that, by way "
            f"of {index.names[stuck]!r}; take that op out, or what is between in"
        )


def contracted(index: GraphIndex, cluster_of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each op [N] in the graph in which a cluster is one node, and that graph's edges [E, 2]."""
    number = np.arange(index.num_ops)
    first: dict[int, int] = {}
    for op in np.flatnonzero(cluster_of_op != NO_CLUSTER).tolist():
        number[op] = first.setdefault(int(cluster_of_op[op]), op)
    edges = number[_forward_edges(index)]
    return number, edges[edges[:, 0] != edges[:, 1]]


def _forward_edges(index: GraphIndex) -> np.ndarray:
    """[E, 2] data and control edges but those that lead back in a loop."""
    back = np.array([op_type in NEXT_ITERATIONS for op_type in index.op_types], bool)
    return index.edges[~back[index.edges[:, 0]]] if len(index.edges) else index.edges


def _on_a_cycle(index: GraphIndex, cluster_of_op: np.ndarray) -> int | None:
    """An op of a cluster that the contracted graph has on a cycle or behind one; None where there is no cycle."""
    number, edges = contracted(index, cluster_of_op)
    done = np.zeros(index.num_ops, bool)
    done[topological_order(index.num_ops, edges)] = True
    stuck = np.flatnonzero(~done[number] & (cluster_of_op != NO_CLUSTER))
    return int(stuck[0]) if len(stuck) else None
