"""Settings of local search."""

from __future__ import annotations

import dataclasses
import os

from tf_placer.method_spec import Settings, setting

_MOST = 2**20


@dataclasses.dataclass(frozen=True)
class LocalSearchConfig(Settings):
    """How moves are drawn and accepted.

    Attributes:
      chains: searches that run side by side in the simulator, a thread each, of which the best counts; 0 for one on
        each core that the process may use. On an evaluator that is no simulator there is one.
      late: L, a move is accepted if it is no slower than the search was L rounds ago. More end at better plans and
        take longer.
      largest_piece: the most units that one move takes, of all.
      crossing: probability that a piece grows from an end of an edge that crosses, and not from where the work is.
      towards: probability that such a piece goes to the device at the other end, and not to any.
      swaps: probability that a piece of as many units comes back in exchange.
      one_kind: probability that a piece grows over units of its first one's kind only: such as others wait for, or such
        as wait long themselves for the step to end (weight gradients), which may go where the others should not.

    Raises:
      InputError: a value out of its range.
    """

    chains: int = setting(0, least=0, most=_MOST)
    late: int = setting(200, least=1, most=_MOST)
    largest_piece: float = setting(0.25, least=0, most=1)
    crossing: float = setting(0.5, least=0, most=1)
    towards: float = setting(0.8, least=0, most=1)
    swaps: float = setting(0.3, least=0, most=1)
    one_kind: float = setting(0.5, least=0, most=1)

    @property
    def num_chains(self) -> int:
        """``chains``, or where it is 0 as many as there are cores for this process."""
        return self.chains or len(os.sched_getaffinity(0))
