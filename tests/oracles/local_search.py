"""Moves of local search, drawn in Python: what the C++ (tf_placer/ops/cc/moves.h) must equal."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.ops.simulator import MoveTables
from tf_placer.planners.local_search import LocalSearch, LocalSearchConfig, move_tables
from tf_placer.problem.problem import Problem

_MASK = 2**64 - 1


@dataclasses.dataclass
class RandomBits:
    """splitmix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").

    The C++ op draws alike (tf_placer/ops/cc/random_bits.h), so that the two can be compared.
    """

    state: int  # all of it, in [0, 2^64)

    def next(self) -> int:
        """64 bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, count: int) -> int:
        """A whole number in [0, count)."""
        return (self.next() * count) >> 64

    def chance(self, chance: int) -> bool:
        """True with probability chance / 2^32."""
        return self.next() >> 32 < chance


_TRIES = 8  # units that are drawn until one fits


class Moves:
    """Draws moves."""

    def __init__(self, tables: MoveTables) -> None:
        self._tables = tables
        parts = np.split(tables.neighbors, tables.neighbor_offset[1:-1])
        self._neighbors = [part.tolist() for part in parts]

    def draw(self, device_of_unit: np.ndarray, random: RandomBits) -> np.ndarray:
        """[U] int32, one move away from a placement [U]; the same where no unit of the piece may move."""
        tables = self._tables
        units, devices = tables.allowed.shape
        moved: np.ndarray = np.array(device_of_unit, np.int32)
        if devices == 1 or units == 0:
            return moved
        size = int(tables.piece_sizes[random.below(len(tables.piece_sizes))])
        one_kind = random.chance(tables.kind_chance)
        for _ in range(_TRIES):
            first, target = self._first(device_of_unit, random)
            source = int(device_of_unit[first])
            around = (source + 1 + np.arange(devices - 1)) % devices
            elsewhere = around[tables.allowed[first, around]]
            if len(elsewhere):
                break
        else:
            return moved
        is_towards = target != source and random.chance(tables.towards_chance)
        if not (is_towards and tables.allowed[first, target]):
            target = int(elsewhere[random.below(len(elsewhere))])
        piece = self._piece(device_of_unit, first, size, one_kind)
        moved[piece[tables.allowed[piece, target]]] = target
        parts = tables.copies.shape[1]
        if parts and random.chance(tables.copies_chance):
            # The copies of the piece's units go along, as far as they are in no piece and may be there.
            together, pieces = random.chance(tables.together_chance), set(piece.tolist())
            for unit in piece[tables.allowed[piece, target]].tolist():
                part = int(tables.part_of_unit[unit])
                for target_part, copy in enumerate(tables.copies[unit].tolist() if part >= 0 else ()):
                    if copy < 0 or copy in pieces:
                        continue
                    to = target if together else int(tables.turned[target, (target_part - part) % parts])
                    if to != moved[copy] and tables.allowed[copy, to]:
                        moved[copy] = to
                        pieces.add(copy)
        elif random.chance(tables.swap_chance):
            for _ in range(_TRIES):
                unit, _ = self._first(device_of_unit, random)
                if device_of_unit[unit] == target:
                    back = self._piece(device_of_unit, unit, size, one_kind)
                    moved[back[tables.allowed[back, source]]] = source
                    break
        return moved

    def _first(self, device_of_unit: np.ndarray, random: RandomBits) -> tuple[int, int]:
        """A unit to grow from, and the device at the other end of its crossing edge, or its own."""
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


class PythonLocalSearch(LocalSearch):
    """Local search whose moves are drawn here; its state has the state of ``RandomBits``."""

    def __init__(
        self, problem: Problem, config: LocalSearchConfig, start: np.ndarray, seed: int, chain: int = 0
    ) -> None:
        super().__init__(problem, config, start, seed, chain)
        self._drawn_moves: Any = Moves(move_tables(problem, config))

    def ask(self, most: float) -> np.ndarray:
        """As of ``LocalSearch``."""
        if self._rounds == 0:
            return super().ask(most)
        random = RandomBits(self._random_bits)
        moved = self._drawn_moves.draw(self.device_of_unit, random)[np.newaxis]
        self._random_bits = random.state
        return moved
