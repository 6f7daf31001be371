"""Colocation units: the sets of ops that share a device."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from colocation.constraints import RULES, Merge
from colocation.op_facts import GraphIndex, index_graph

# Disjoint sets of the integers 0..n-1.


class DisjointSet:
    """Union by size with path halving: m operations take O(m α(n)) steps.

    Attributes:
      steps: parent pointers followed so far, plus one for each call; what the
        linear-time tests count instead of seconds.
    """

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))
        self._size = [1] * size
        self.steps = 0

    def find(self, element: int) -> int:
        """Returns the representative of the element's set."""
        parent = self._parent
        self.steps += 1
        while parent[element] != element:
            parent[element] = parent[parent[element]]
            element = parent[element]
            self.steps += 1
        return element

    def union(self, a: int, b: int) -> bool:
        """Joins the sets of a and b; returns whether they were two sets before."""
        root_a, root_b = self.find(a), self.find(b)
        if root_a == root_b:
            return False
        if self._size[root_a] < self._size[root_b]:
            root_a, root_b = root_b, root_a
        self._parent[root_b] = root_a
        self._size[root_a] += self._size[root_b]
        return True

    def labels(self) -> np.ndarray:
        """Numbers the sets by their smallest element.

        Returns:
          [n] int32: label of each element; set 0 holds element 0, and a set's label is the
          number of sets whose smallest element is smaller.
        """
        label_of_root: dict[int, int] = {}
        labels = np.empty(len(self._parent), np.int32)
        for element in range(len(self._parent)):
            labels[element] = label_of_root.setdefault(self.find(element), len(label_of_root))
        return labels


@dataclasses.dataclass(frozen=True)
class Units:
    """A partition of the N ops of a graph into U units.

    Attributes:
      unit_of_op: [N] int32; units are numbered by their smallest op id.
      member_offset: [U + 1] int64; unit u's ops are
        ``member_op[member_offset[u]:member_offset[u + 1]]``.
      member_op: [N] int64, ascending within a unit.
      merges: the N - U merges that made the units, in the order of the rules. A merge of two ops
        that were together already is left out, so these are the edges of a forest.
      union_find_steps: work that the disjoint set did; linear in the graph.
    """

    unit_of_op: np.ndarray  # [N]
    member_offset: np.ndarray  # [U + 1]
    member_op: np.ndarray  # [N]
    merges: tuple[Merge, ...]
    union_find_steps: int

    @property
    def num_units(self) -> int:
        return len(self.member_offset) - 1

    def members(self, unit: int) -> np.ndarray:
        """Returns the unit's op ids, ascending."""
        return self.member_op[self.member_offset[unit] : self.member_offset[unit + 1]]

    def sizes(self) -> np.ndarray:
        """Returns [U] ops per unit."""
        return np.diff(self.member_offset)

    def why(self, op_a: int, op_b: int) -> tuple[Merge, ...]:
        """Explains why two ops share a unit.

        Returns:
          The chain of merges that leads from ``op_a`` to ``op_b``; each shares an op with the
          next. Empty for an op and itself.

        Raises:
          ValueError: the two ops are in different units.
        """
        if self.unit_of_op[op_a] != self.unit_of_op[op_b]:
            raise ValueError(f"ops {op_a} and {op_b} are in different units; nothing ties them")
        merges_of_op: dict[int, list[Merge]] = collections.defaultdict(list)
        for merge in self.merges:
            merges_of_op[merge.op_a].append(merge)
            merges_of_op[merge.op_b].append(merge)
        # Search from op_b, so that walking back from op_a gives the chain in reading order.
        toward_b: dict[int, tuple[int, Merge] | None] = {op_b: None}
        queue = collections.deque([op_b])
        while op_a not in toward_b:
            op = queue.popleft()
            for merge in merges_of_op[op]:
                other = merge.op_b if merge.op_a == op else merge.op_a
                if other not in toward_b:
                    toward_b[other] = (op, merge)
                    queue.append(other)
        chain = []
        step = toward_b[op_a]
        while step is not None:
            chain.append(step[1])
            step = toward_b[step[0]]
        return tuple(chain)


Heuristic = Callable[[GraphIndex, Units], Iterable[Merge]]


def form_units(graph: tf.compat.v1.GraphDef | GraphIndex, heuristics: Sequence[Heuristic] = ()) -> Units:
    """Forms the units that TensorFlow's hard rules demand, then those that heuristics suggest.

    Linear in ops and edges (times the inverse Ackermann function of union-find).

    Args:
      graph: the graph, indexed or not.
      heuristics: soft rules of ``colocation.heuristics``, applied in this order; each sees the
        units formed before it.

    Raises:
      ValueError: the GraphDef is damaged; the message names the node.
    """
    index = graph if isinstance(graph, GraphIndex) else index_graph(graph)
    sets = DisjointSet(index.num_ops)
    merges: list[Merge] = []
    for rule in RULES:
        merges.extend(merge for merge in rule(index) if sets.union(merge.op_a, merge.op_b))
    return _merged(index, sets, merges, heuristics)


def extend_units(index: GraphIndex, unit_of_op: np.ndarray, heuristics: Sequence[Heuristic]) -> Units:
    """Merges units that are there already, as heuristics suggest; no hard rule is asked, nothing is split.

    Args:
      index: names, types and edges of the N ops; of its GraphDef only what the heuristics read has to be there.
      unit_of_op: [N] the unit of each op, by any number.
      heuristics: as in ``form_units``.

    Raises:
      ValueError: there is not one unit for each op.
    """
    if len(unit_of_op) != index.num_ops:
        raise ValueError(
            f"unit_of_op has {len(unit_of_op)} entries, but the graph has {index.num_ops} ops; give one for each"
        )
    sets = DisjointSet(index.num_ops)
    first: dict[int, int] = {}
    merges = []
    for op, unit in enumerate(unit_of_op):
        if sets.union(first.setdefault(int(unit), op), op):
            merges.append(Merge(first[int(unit)], op, "given", "they are given as one unit"))
    return _merged(index, sets, merges, heuristics)


def _merged(
    index: GraphIndex, sets: DisjointSet, merges: list[Merge], heuristics: Sequence[Heuristic]
) -> Units:
    """Applies the heuristics in their order."""
    units = _snapshot(sets, merges)
    for heuristic in heuristics:
        merges.extend(merge for merge in heuristic(index, units) if sets.union(merge.op_a, merge.op_b))
        units = _snapshot(sets, merges)
    return units


def _snapshot(sets: DisjointSet, merges: list[Merge]) -> Units:
    unit_of_op = sets.labels()
    num_units = int(unit_of_op.max()) + 1 if len(unit_of_op) else 0
    sizes = np.bincount(unit_of_op, minlength=num_units)
    return Units(
        unit_of_op=unit_of_op,
        member_offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        member_op=np.argsort(unit_of_op, kind="stable"),
        merges=tuple(merges),
        union_find_steps=sets.steps,
    )
