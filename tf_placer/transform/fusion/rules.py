"""Rules that cluster a program: labels of ops that belong together, or priorities by which they are merged."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from colocation.op_facts import topological_order, values
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import NO_CLUSTER
from tf_placer.problem.problem import Problem
from tf_placer.transform.fusion.clusters import convex_clusters, convex_roots, large_enough
from tf_placer.transform.fusion.costs import launches

Labels = Sequence[object]
"""[N] what belongs together; None for ops that stay outside."""

_WORK = values("work")
_PRODUCTS = frozenset(["matmul", "batch_matmul", "einsum"])
_WINDOWS = ("convolution", "depthwise", "pool")
_MOST_MERGED = 64  # ops in a cluster of greedy merges
_SCOPE = 2  # parts of a name that say the layer
_BACKWARD = "gradient_tape/"


@dataclasses.dataclass(frozen=True)
class Rule:
    """A way to cluster a program.

    Attributes:
      what: one clause for reports.
      labels: of a program's ops.
      least: fewest kernels in a cluster.
    """

    what: str
    labels: Callable[[Item], Labels]
    least: int

    def clusters(self, item: Item, device_of_op: Mapping[str, str]) -> np.ndarray:
        """[N] int32, its clusters of a program; -1 for ops in none."""
        return convex_clusters(item, self.labels(item), device_of_op, self.least)


def _everything(item: Item) -> Labels:
    return [0] * item.index.num_ops


def _without_windows(item: Item) -> Labels:
    return [None if _WORK.get(op_type, "").startswith(_WINDOWS) else 0 for op_type in item.index.op_types]


def _is_heavy(item: Item) -> list[bool]:
    """[N] products, convolutions and pools."""
    works = [_WORK.get(op_type, "") for op_type in item.index.op_types]
    return [work in _PRODUCTS or work.startswith(_WINDOWS) for work in works]


def _regions(item: Item) -> Labels:
    return [None if heavy else 0 for heavy in _is_heavy(item)]


def _chain(item: Item) -> Labels:
    """None for the last products of each way, mostly gradients of weights: other threads run them side by side."""
    is_heavy = _is_heavy(item)
    leads_to_heavy = [False] * len(is_heavy)
    for op in reversed(range(len(is_heavy))):  # an item's ops are in topological order
        leads_to_heavy[op] = any(is_heavy[one] or leads_to_heavy[one] for one in item.index.consumers[op])
    return [0 if leads_to_heavy[op] or not heavy else None for op, heavy in enumerate(is_heavy)]


def _layers(item: Item) -> Labels:
    """The scope of an op, forward and backward apart."""
    found: list[object] = []
    for name in item.index.names:
        is_backward = name.startswith(_BACKWARD)
        found.append((is_backward, tuple(name.removeprefix(_BACKWARD).split("/")[:_SCOPE])))
    return found


def _greedy(item: Item) -> Labels:
    """Merges of producers with consumers, the most bytes between two first, as GO merges by priority (2020)."""
    index = item.index
    can = [not why for why in why_not_fusible(item)]
    group, members = list(range(index.num_ops)), {op: [op] for op in range(index.num_ops)}
    num_bytes: dict[tuple[int, int], int] = collections.defaultdict(int)
    for producer, output, consumer, _ in index.data_edges.tolist():
        if can[producer] and can[consumer]:
            num_bytes[producer, consumer] += item.outputs[producer][output].num_bytes
    for producer, consumer in sorted(num_bytes, key=lambda edge: (-num_bytes[edge], edge)):
        a, b = group[producer], group[consumer]
        if a != b and len(members[a]) + len(members[b]) <= _MOST_MERGED:
            for op in members[b]:
                group[op] = a
            members[a] += members.pop(b)
    return group


RULES: Mapping[str, Rule] = {
    "everything": Rule("all that XLA compiles, as its own clustering does", _everything, 4),
    "chain": Rule("all but products that lead to no other product, which run side by side", _chain, 4),
    "layers": Rule("each layer's ops, forward and backward apart", _layers, 4),
    "greedy": Rule("producers merged with consumers, the most bytes first", _greedy, 4),
    "regions": Rule("what is between products, convolutions and pools", _regions, 4),
    "without_windows": Rule("all but convolutions and pools", _without_windows, 4),
}
"""In the order in which a search tries them."""


# Merging by a priority of each op, of a problem.

_LEAST_MERGED = 2  # kernels in a cluster: with one there is nothing to save


def merged_by_priority(problem: Problem, device_of_op: np.ndarray, priority_of_op: np.ndarray) -> np.ndarray:
    """[N] int32, legal clusters as ``Decisions`` take them; -1 for ops in none.

    GO merges ops with their neighbors in the order of a priority of each (Zhou et al. 2020). Priorities
    are few, so all ops of one are merged together, with those of higher ones: what was merged before stays together,
    and what a cycle through it forbids later stays apart (``convex_roots``).

    Args:
      problem: N ops, of which some may be fused (``Problem.fusible_of_op``).
      device_of_op: [N]; a cluster is on one device.
      priority_of_op: [N] whole numbers, higher is merged first; 0 is not merged at all.
    """
    consumers = np.diff(problem.consumer_offset)
    tensor = np.repeat(np.arange(len(consumers)), consumers)
    edges = np.stack([problem.tensor_producer[tensor], problem.consumer_op], axis=1).astype(np.int64)
    is_data = problem.tensor_bytes[tensor] > 0
    may = problem.fusible_of_op & (priority_of_op > 0)
    node = np.arange(problem.num_ops)  # an op of the cluster that each op is in, itself at first
    for least in np.unique(priority_of_op[may])[::-1]:
        between = node[edges]
        leaves = between[:, 0] != between[:, 1]
        order = topological_order(problem.num_ops, between[leaves])
        place = np.argsort(order)
        is_in = (may & (priority_of_op >= least))[order].tolist()
        keys = [
            device if one else None for device, one in zip(device_of_op[order].tolist(), is_in, strict=True)
        ]
        roots = convex_roots(place[between[leaves]], place[between[leaves & is_data]], keys)
        node = np.where(roots == NO_CLUSTER, order, order[roots])[place][node]
    return large_enough(np.where(may, node, NO_CLUSTER), launches(problem) > 0, _LEAST_MERGED)
