"""Local search over connected pieces of the program."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import local_edges, unit_graph

_LARGEST_PIECE = 4  # a fourth of the units
_LATE = 50  # rounds; with hundreds of them large programs converge too slowly
_SWAPS = 0.3  # of the moves
_SWAP_TRIES = 8


class LocalSearch:
    """Moves one connected piece at a time to another device, by late acceptance (Burke & Bykov 2017).

    A move is kept if it is no slower than where the search is, or than where it was ``_LATE`` rounds before: it may go
    through slower placements for a while, and is stuck less often than one that only descends. The caller keeps the
    fastest seen.

    A piece is grown breadth first from one unit over units of the same device, up to a size that is drawn
    log-uniformly, so that moves range from one unit to a whole branch with its gradients and variables. Single units
    alone get nowhere: a unit that leaves its neighbors only adds messages. Half of the pieces grow from an end of an
    edge that crosses, where what is wrong can be mended, the others from where the work is. Some moves bring a piece
    of as many units back in exchange (Kernighan & Lin 1970): where the devices share the work evenly, one piece alone
    makes one of them the slower.

        climber = LocalSearch(problem, start, seed)
        rows = climber.propose(4)
        climber.learn(rows, runtime_s)
    """

    def __init__(self, problem: Problem, start: np.ndarray, seed: int) -> None:
        """Starts from a placement ``start`` [U], as good as unknown until something was learned."""
        self._problem = problem
        graph = unit_graph(problem)
        self._edges = graph.edges
        self._neighbors = local_edges(problem, graph).neighbors("both")
        work_ns = problem.work_ns()
        # A little for every unit, so that those that cost nothing move too.
        self._work = np.cumsum(work_ns + max(0.2 * work_ns.mean(), 1.0))
        self._generator = np.random.default_rng(seed)
        self.device_of_unit = np.array(start, np.int32)
        self.runtime_s = float("inf")
        self._late_s = np.full(_LATE, np.inf)  # a ring
        self._rounds = 0

    def propose(self, count: int) -> np.ndarray:
        """[count, U] int32 legal placements, each one move away."""
        return np.stack([self._move() for _ in range(count)])

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Goes to the fastest of the proposed placements unless that is slower than now and than ``_LATE`` rounds ago.

        Args:
          device_of_unit: [B, U].
          runtime_s: [B], inf where a placement does not run.
        """
        fastest = int(np.argmin(runtime_s))
        if self._rounds == 0:
            self._late_s[:] = runtime_s[fastest]
        late = self._rounds % _LATE
        if runtime_s[fastest] <= max(self.runtime_s, self._late_s[late]):
            self.device_of_unit = device_of_unit[fastest]
            self.runtime_s = float(runtime_s[fastest])
        self._late_s[late] = min(self._late_s[late], self.runtime_s)
        self._rounds += 1

    def _move(self) -> np.ndarray:
        units, devices = self._problem.allowed.shape
        moved = self.device_of_unit.copy()
        if devices == 1:
            return moved
        size = int(np.exp(self._generator.uniform(0, np.log(max(units // _LARGEST_PIECE, 2)))))
        first = self._first_unit()
        source = self.device_of_unit[first]
        target = (source + 1 + self._generator.integers(devices - 1)) % devices
        self._shift(moved, first, size, target)
        if self._generator.random() < _SWAPS:
            other = self._first_unit_of(target)
            if other is not None:
                self._shift(moved, other, size, source)
        return moved

    def _shift(self, moved: np.ndarray, first: int, size: int, target: int) -> None:
        """Moves the piece around a unit, as far as it may be there."""
        piece = self._piece(first, size)
        moved[piece[self._problem.allowed[piece, target]]] = target

    def _first_unit_of(self, device: int) -> int | None:
        """A first unit that is on a device; None when a few draws give none."""
        draws = (self._first_unit() for _ in range(_SWAP_TRIES))
        return next((unit for unit in draws if self.device_of_unit[unit] == device), None)

    def _first_unit(self) -> int:
        generator = self._generator
        if generator.random() < 0.5:
            devices = self.device_of_unit[self._edges]
            crossing = np.flatnonzero(devices[:, 0] != devices[:, 1])
            if len(crossing):
                return int(self._edges[generator.choice(crossing), generator.integers(2)])
        return int(np.searchsorted(self._work, generator.random() * self._work[-1], side="right"))

    def _piece(self, seed_unit: int, size: int) -> np.ndarray:
        """Up to ``size`` units of one device around one of them, in breadth-first order."""
        device = self.device_of_unit[seed_unit]
        piece = {seed_unit: None}
        queue = [seed_unit]
        for unit in queue:
            for neighbor in self._neighbors[unit]:
                if len(piece) >= size:
                    return np.fromiter(piece, np.int64)
                if neighbor not in piece and self.device_of_unit[neighbor] == device:
                    piece[neighbor] = None
                    queue.append(neighbor)
        return np.fromiter(piece, np.int64)
