"""Settings of the search over groups, then units."""

from __future__ import annotations

import dataclasses
import os

from tf_placer.method_spec import Settings, setting

_MOST = 2**20

LONGEST_LATE = _MOST
"""Rounds of a chain that are remembered at most."""


@dataclasses.dataclass(frozen=True)
class MemeticConfig(Settings):
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

    chains: int = setting(0, least=0, most=_MOST)
    late: int = setting(20, least=1, most=_MOST)
    parts: int = setting(64, least=2, most=_MOST)
    finer: int = setting(4, least=2, most=_MOST)
    levels: int = setting(3, least=0, most=10)
    turn: int = setting(1000, least=1, most=2**30)
    setback: float = setting(0.01, least=0, most=1)
    path: float = setting(0.4, least=0, most=1)
    draws: int = setting(8, least=1, most=1024)
    uniform: float = setting(0.6, least=0, most=1)

    @property
    def num_chains(self) -> int:
        """``chains``, or where it is 0 as many as there are cores for this process."""
        return self.chains or len(os.sched_getaffinity(0))
