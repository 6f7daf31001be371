"""Settings of the search over groups, then units."""

from __future__ import annotations

import dataclasses
import os

from tf_placer import arguments

_MOST = 2**20

LONGEST_LATE = _MOST
"""Rounds of a chain that are remembered at most."""


@dataclasses.dataclass(frozen=True)
class MemeticConfig:
    """How long it stays at each coarseness, and how chains accept.

    Attributes:
      chains: searches that run side by side in the simulator, a thread each; 0 for one on each core that the process
        may use. On an evaluator that is no simulator there is one, over units.
      late: L, a move is accepted if it is no slower than the chain was L rounds ago; twice as many after each turn of
        units that gained.
      parts: of the min cut at the coarsest level.
      finer: times as many parts at each level after it.
      levels: of groups, before the units.
      turn: evaluations at the coarsest level, and where chains cross over; twice as many at each level after the first,
        units included, and twice as many after each turn of units that gained.
      setback: share of a chain's time by which its plans may be slower when it begins a later turn, twice as much after
        each turn of units that gained nothing, until one gains.
      path: probability that a piece grows from the critical path of the chain's plan, a computation or an end of a
        transfer, in proportion to how long it takes; else it is drawn as local search draws.
      draws: moves that are drawn for each that is simulated: a small network, trained on searches of other steps, says
        which is the most likely to make the step faster. 1 for the one that is drawn, whatever it would say.
      uniform: probability that one is drawn all the same.

    Raises:
      InputError: a value out of its range.
    """

    chains: int = 0
    late: int = 20
    parts: int = 64
    finer: int = 4
    levels: int = 3
    turn: int = 1000
    setback: float = 0.01
    path: float = 0.4
    draws: int = 8
    uniform: float = 0.6

    def __post_init__(self) -> None:
        arguments.whole_number("chains", self.chains, least=0, most=_MOST)
        arguments.whole_number("late", self.late, least=1, most=_MOST)
        arguments.whole_number("parts", self.parts, least=2, most=_MOST)
        arguments.whole_number("finer", self.finer, least=2, most=_MOST)
        arguments.whole_number("levels", self.levels, least=0, most=10)
        arguments.whole_number("turn", self.turn, least=1, most=2**30)
        arguments.number("setback", self.setback, least=0.0, most=1.0)
        arguments.number("path", self.path, least=0.0, most=1.0)
        arguments.whole_number("draws", self.draws, least=1, most=1024)
        arguments.number("uniform", self.uniform, least=0.0, most=1.0)

    @property
    def num_chains(self) -> int:
        """``chains``, or where it is 0 as many as there are cores for this process."""
        return self.chains or len(os.sched_getaffinity(0))
