"""Disjoint sets of the integers 0..n-1."""

from __future__ import annotations

import numpy as np


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
