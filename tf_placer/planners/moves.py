"""What local search tries next: one connected piece of units on another device, or two that change places."""

from __future__ import annotations

import functools

import numpy as np

from tf_placer.grouper.partition import unit_slack
from tf_placer.ops.local_search import MoveTables
from tf_placer.planners.local_search_config import LocalSearchConfig
from tf_placer.planners.random_bits import RandomBits
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import local_edges, unit_graph

_SIZES = 256  # of the table that sizes are drawn from
_IDLE_WORK = 5  # a unit that costs nothing is drawn as often as one with a fifth of the mean work
_SWAP_TRIES = 8
_SLACK = 0.05  # a unit has slack when it can wait longer than this share of the critical path


def move_tables(problem: Problem, config: LocalSearchConfig) -> MoveTables:
    """What moves on a problem are drawn from."""
    graph = unit_graph(problem)
    neighbors = local_edges(problem, graph).neighbors("both")
    work_ns = problem.work_ns()
    work = work_ns + max(int(work_ns.sum()) // len(work_ns) // _IDLE_WORK, 1)
    largest = max(config.largest_piece * problem.num_units, 2.0)
    return MoveTables(
        edges=graph.edges,
        neighbor_offset=np.cumsum([0, *map(len, neighbors)]).astype(np.int32),
        neighbors=np.concatenate(neighbors).astype(np.int32),
        work_before=np.concatenate([[0], np.cumsum(work)]).astype(np.int64),
        # Log-uniform, from one unit to the largest piece.
        piece_sizes=(largest ** ((np.arange(_SIZES) + 0.5) / _SIZES)).astype(np.int32),
        allowed=problem.allowed,
        kind_of_unit=(unit_slack(problem) > _SLACK).astype(np.int32),
        crossing_chance=chance(config.crossing),
        towards_chance=chance(config.towards),
        swap_chance=chance(config.swaps),
        kind_chance=chance(config.one_kind),
    )


def chance(probability: float) -> int:
    """Of 2^32."""
    return round(probability * 2**32)


class Moves:
    """Draws moves, as the C++ does (tf_placer/ops/cc/moves.h).

    moves = Moves(tables)
    rows = moves.draw(device_of_unit, random)  # [U] -> [U]
    """

    def __init__(self, tables: MoveTables) -> None:
        self._tables = tables

    @functools.cached_property
    def _neighbors(self) -> list[list[int]]:
        parts = np.split(self._tables.neighbors, self._tables.neighbor_offset[1:-1])
        return [part.tolist() for part in parts]

    def draw(self, device_of_unit: np.ndarray, random: RandomBits) -> np.ndarray:
        """[U] int32, one move away from a placement [U]; it itself where nothing of the piece may move."""
        tables = self._tables
        units, devices = tables.allowed.shape
        moved: np.ndarray = np.array(device_of_unit, np.int32)
        if devices == 1 or units == 0:
            return moved
        size = int(tables.piece_sizes[random.below(len(tables.piece_sizes))])
        one_kind = random.chance(tables.kind_chance)
        first, target = self._first(device_of_unit, random)
        source = int(device_of_unit[first])
        if target == source or not random.chance(tables.towards_chance):
            target = (source + 1 + random.below(devices - 1)) % devices
        self._shift(moved, self._piece(device_of_unit, first, size, one_kind), target)
        if not random.chance(tables.swap_chance):
            return moved
        for _ in range(_SWAP_TRIES):
            unit, _ = self._first(device_of_unit, random)
            if device_of_unit[unit] == target:
                self._shift(moved, self._piece(device_of_unit, unit, size, one_kind), source)
                break
        return moved

    def _first(self, device_of_unit: np.ndarray, random: RandomBits) -> tuple[int, int]:
        """A unit to grow from, and the device of the other end of the edge it was found at, or its own."""
        tables = self._tables
        if random.chance(tables.crossing_chance):
            devices = device_of_unit[tables.edges]
            crossing = np.flatnonzero(devices[:, 0] != devices[:, 1])
            if len(crossing):
                edge, end = crossing[random.below(len(crossing))], random.below(2)
                return int(tables.edges[edge, end]), int(devices[edge, 1 - end])
        drawn = random.below(int(tables.work_before[-1]))
        unit = int(np.searchsorted(tables.work_before[1:], drawn, side="right"))
        return unit, int(device_of_unit[unit])

    def _shift(self, moved: np.ndarray, piece: np.ndarray, target: int) -> None:
        """Moves a piece as far as it may be there."""
        moved[piece[self._tables.allowed[piece, target]]] = target

    def _piece(self, device_of_unit: np.ndarray, first: int, size: int, one_kind: bool) -> np.ndarray:
        """Up to ``size`` units of one device, and of one kind, around one of them, in breadth-first order."""
        here = device_of_unit == device_of_unit[first]
        if one_kind:
            here &= self._tables.kind_of_unit == self._tables.kind_of_unit[first]
        piece = {first: None}
        queue = [first]
        for unit in queue:
            for neighbor in self._neighbors[unit]:
                if len(piece) >= size:
                    return np.fromiter(piece, np.int64)
                if neighbor not in piece and here[neighbor]:
                    piece[neighbor] = None
                    queue.append(neighbor)
        return np.fromiter(piece, np.int64)
