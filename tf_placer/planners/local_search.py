"""Local search over connected pieces of the program."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.method_spec import Kind, MethodSpec, Role
from tf_placer.planners.local_search_config import LocalSearchConfig
from tf_placer.planners.moves import Moves, move_tables
from tf_placer.planners.random_bits import RandomBits
from tf_placer.planners.simulated_local_search import SimulatedLocalSearch
from tf_placer.problem.problem import Problem


class LocalSearch:
    """Moves one connected piece at a time to another device, by late acceptance (Burke & Bykov 2017).

    A move is kept if it is no slower than where the search is, or than where it was L rounds before: it may go
    through slower placements for a while, and is stuck less often than one that only descends. The caller keeps the
    fastest seen.

    A piece is grown breadth first from one unit over units of the same device, up to a size that is drawn
    log-uniformly, so that moves range from one unit to a whole branch with its gradients and variables. Single units
    alone get nowhere: a unit that leaves its neighbors only adds messages. Half of the pieces grow from an end of an
    edge that crosses, where what is wrong can be mended, and mostly go to the other end's device; the others grow from
    where the work is. Some moves bring a piece of as many units back in exchange (Kernighan & Lin 1970): where the
    devices share the work evenly, one piece alone makes one of them the slower.

    It is one chain of ``SimulatedLocalSearch``, decision by decision: for evaluators that are no simulators, and what
    the fast one is tested against. It waits for each evaluation, which takes far longer than drawing a move.

        climber = LocalSearch(problem, LocalSearchConfig(), start, seed)
        rows = climber.propose()
        climber.learn(rows, runtime_s)
    """

    def __init__(
        self, problem: Problem, config: LocalSearchConfig, start: np.ndarray, seed: int, chain: int = 0
    ) -> None:
        """Starts from a placement ``start`` [U], which is what it proposes first; as chain ``chain`` of a seed."""
        self._moves = Moves(move_tables(problem, config))
        self._random = RandomBits.of(seed, chain)
        self.device_of_unit = np.array(start, np.int32)
        self.runtime_s = float("inf")
        self._late_s = np.full(config.late, np.inf)  # a ring
        self._rounds = 0

    def propose(self) -> np.ndarray:
        """[1, U] int32: where it starts, then a legal placement one move away from where it is."""
        if self._rounds == 0:
            return self.device_of_unit[np.newaxis]
        return self._moves.draw(self.device_of_unit, self._random)[np.newaxis]

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Goes to the proposed placement unless it is slower than now and than L rounds ago.

        Args:
          device_of_unit: [1, U]; of several rows the fastest counts.
          runtime_s: [1], inf where a placement does not run.
        """
        fastest = int(np.argmin(runtime_s))
        if self._rounds == 0:
            self._late_s[:] = runtime_s[fastest]
        late = self._rounds % len(self._late_s)
        if runtime_s[fastest] <= max(self.runtime_s, self._late_s[late]):
            self.device_of_unit = np.array(device_of_unit[fastest], np.int32)
            self.runtime_s = float(runtime_s[fastest])
        self._late_s[late] = min(self._late_s[late], self.runtime_s)
        self._rounds += 1

    def state(self) -> dict[str, Any]:
        """Where it is, how it got there, and where the random numbers are."""
        return {
            "device_of_unit": self.device_of_unit,
            "runtime_s": self.runtime_s,
            "late_s": self._late_s.copy(),
            "rounds": self._rounds,
            "random_bits": self._random.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        self.device_of_unit = np.array(state["device_of_unit"], np.int32)
        self.runtime_s = float(state["runtime_s"])
        self._late_s = np.array(state["late_s"], np.float64)
        self._rounds = int(state["rounds"])
        self._random = RandomBits(int(state["random_bits"]))


SPEC = MethodSpec(
    name="local_search",
    kind=Kind.IMPROVING,
    summary="Late acceptance: moves one connected piece of a plan at a time (Burke & Bykov 2017).",
    build=LocalSearch,
    config=LocalSearchConfig,
    build_inside=SimulatedLocalSearch,
    roles=frozenset({Role.PLAIN, Role.MEMBER}),
    uses_start=True,
)
