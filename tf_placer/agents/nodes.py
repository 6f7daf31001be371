"""What some agents decide one by one: groups of units or units, in the order in which the step needs them."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.agents.learner import SimulateFn
from tf_placer.agents.legality import legality_classes
from tf_placer.agents.unit_groups import unit_groups
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph
from tf_placer.problem.unit_order import order_of_use


@dataclasses.dataclass(frozen=True, eq=False)
class Nodes:
    """Units in nodes that are decided as one.

    Units with one legal device are in a node for each such device, of which nothing is decided: what others read from
    there is seen like everything else.

    Attributes:
      node_of_unit: [U] int32, from 0 to V - 1 in the order of use.
      legal: [V, D] bool, the same for all units of the node; at least one True in each row.
      edges: [E', 2] int64 producer node, consumer node; sorted, distinct, of two nodes each.
      edge_bytes: [E'] int64.
    """

    node_of_unit: np.ndarray
    legal: np.ndarray
    edges: np.ndarray
    edge_bytes: np.ndarray

    @property
    def count(self) -> int:
        """V."""
        return len(self.legal)

    def sums(self, amounts: np.ndarray) -> np.ndarray:
        """[V, ...] float64 of what each unit [U, ...] has."""
        total = np.zeros((self.count, *amounts.shape[1:]))
        np.add.at(total, self.node_of_unit, amounts)
        return total

    def devices_of(self, problem: Problem, plans: np.ndarray) -> np.ndarray:
        """[K, V] int32: each node's legal device with most of its work and of its bytes in plans [K, U]."""
        weight = _share(problem.work_ns()) + _share(problem.resident_bytes + held_bytes(problem))
        votes = np.zeros((len(plans), *self.legal.shape))
        for plan, table in zip(plans, votes, strict=True):
            np.add.at(table, (self.node_of_unit, plan), weight)
        devices: np.ndarray = np.where(self.legal, votes, -1).argmax(axis=2)
        return devices.astype(np.int32)

    def best_of(self, problem: Problem, plans: np.ndarray, simulate: SimulateFn) -> np.ndarray:
        """[V] int32, the plan that is fastest once every node is on one device.

        Args:
          problem: what is placed.
          plans: [K, U] int32, K >= 1; the first is taken where none fits as nodes.
          simulate: times them as nodes.
        """
        rows = self.devices_of(problem, plans)
        runtime_s, fits = simulate(rows[:, self.node_of_unit])
        best: np.ndarray = rows[int(np.argmin(np.where(fits, runtime_s, np.inf)))]
        return best


def nodes_of(problem: Problem, num_groups: int | None) -> Nodes:
    """Makes nodes of the units of a problem: at most so many groups (``unit_groups``); None for each unit by itself."""
    if num_groups is None:
        decided, free = np.arange(problem.num_units), problem.allowed.sum(axis=1) > 1
    else:
        groups = unit_groups(problem, num_groups)
        decided, free = groups.group_of_unit, groups.group_of_unit < groups.count
    fixed = int(decided.max()) + 1 + legality_classes(problem.allowed).first_legal
    key = np.where(free, decided, fixed)
    _, first, node = np.unique(key, return_index=True, return_inverse=True)
    node = node.reshape(-1)
    place = np.empty(problem.num_units)
    place[order_of_use(problem)] = np.arange(problem.num_units)
    mean = np.bincount(node, place) / np.bincount(node)
    order = np.lexsort((first, mean))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    node_of_unit = rank[node]
    return Nodes(node_of_unit, problem.allowed[first[order]], *_edges(problem, node_of_unit, len(order)))


def _edges(problem: Problem, node_of_unit: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges [E', 2] between different nodes and their bytes [E'], parallel ones merged."""
    graph = unit_graph(problem)
    pair = node_of_unit[graph.edges.reshape(-1, 2)].astype(np.int64)
    between = pair[:, 0] != pair[:, 1]
    keys, position = np.unique(pair[between] @ np.array([nodes, 1]), return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, position.reshape(-1), graph.edge_bytes[between])
    return np.stack([keys // nodes, keys % nodes], axis=1), total


def _share(amounts: np.ndarray) -> np.ndarray:
    """Each unit's share of the sum; a little for those that have none."""
    return (amounts + 1e-9) / (amounts.sum() + 1e-9 * len(amounts))
