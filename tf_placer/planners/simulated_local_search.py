"""Local search at the speed of the machine: in the simulator, a chain on each core."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer import arguments
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.ops.local_search import NEVER, Chains, ChainSearch
from tf_placer.planners.local_search_config import LocalSearchConfig
from tf_placer.planners.moves import move_tables
from tf_placer.planners.random_bits import RandomBits
from tf_placer.problem.problem import Problem

_STATE = {
    "device_of_unit": np.int32,
    "best_device_of_unit": np.int32,
    "late_ns": np.int64,
    "counts": np.int64,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Burst:
    """What a planner that simulates by itself has done in one call.

    Attributes:
      device_of_unit: [C, U] int32, the best placement so far of each chain.
      runtime_s: [C] float64 its step time, inf where none fitted.
      evaluations: placements that were judged in this call.
    """

    device_of_unit: np.ndarray
    runtime_s: np.ndarray
    evaluations: int


class SimulatedLocalSearch:
    """Chains of ``LocalSearch``, side by side and without Python between their rounds.

    Each chain proposes, simulates and decides in C++, on a thread of its own, and stops a simulation as soon as it is
    known that the move will not be accepted. Chains know nothing of each other: chain i of a seed is the same however
    many there are. Evaluation k is of chain k modulo C, so that it does not matter in how many bursts they are made.

        search = SimulatedLocalSearch(problem, LocalSearchConfig(), start, seed, search_simulator(problem))
        burst = search.advance(1000)
    """

    def __init__(
        self,
        problem: Problem,
        config: LocalSearchConfig,
        start: np.ndarray,
        seed: int,
        simulator: SimulatedEvaluator,
    ) -> None:
        """Every chain starts from ``start`` [U]; a step's time is what ``simulator`` says of it."""
        self._orders = simulator.orders
        self._search = ChainSearch(
            self._orders, move_tables(problem, config), problem.cluster.capacity_bytes()
        )
        states = [RandomBits.of(seed, chain).state for chain in range(config.num_chains)]
        self._chains = Chains.starting(start, config.late, states)

    def advance(self, evaluations: int) -> Burst:
        """Judges so many placements more, all chains together."""
        evaluations = arguments.whole_number("evaluations", evaluations, least=0)
        chains = len(self._chains.counts)
        made = int(self._chains.rounds.sum())
        # Chain i has made (made - i) / C rounds, rounded up.
        until = -(-(made + evaluations - np.arange(chains)) // chains)
        self._chains = self._search.advance(self._chains, until - self._chains.rounds)
        best_ns = self._chains.best_runtime_ns
        return Burst(
            device_of_unit=self._chains.best_device_of_unit,
            runtime_s=np.where(best_ns == NEVER, np.inf, best_ns / (1e9 * len(self._orders))),
            evaluations=evaluations,
        )

    def state(self) -> dict[str, Any]:
        """Where every chain is."""
        return chains_state(self._chains)

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave, with as many chains as there were."""
        self._chains = chains_of(state)


def chains_state(chains: Chains, prefix: str = "") -> dict[str, Any]:
    """Arrays by name, for ``chains_of``."""
    return {prefix + name: getattr(chains, name) for name in _STATE}


def chains_of(state: dict[str, Any], prefix: str = "") -> Chains:
    """Chains as ``chains_state`` gave them."""
    return Chains(**{name: np.array(state[prefix + name], kind) for name, kind in _STATE.items()})
