"""How long a search may go on."""

from __future__ import annotations

import dataclasses
import math

from tf_placer import arguments
from tf_placer.errors import InputError

# What a budget's seconds are of: all that somebody waits for, or each search alone.
WHOLE, SEARCH = "whole", "search"
BUDGETS = (WHOLE, SEARCH)


@dataclasses.dataclass(frozen=True)
class Budget:
    """A search ends when either limit is reached.

    Attributes:
      seconds: wall-clock limit, infinite when only evaluations count.
      evaluations: most placements evaluated, None for no limit.

    Raises:
      InputError: no limit at all, or one that is not a positive number.
    """

    seconds: float = math.inf
    evaluations: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", arguments.number("budget_s", self.seconds, above=0))
        if self.evaluations is not None:
            count = arguments.whole_number("budget_evaluations", self.evaluations, least=1)
            object.__setattr__(self, "evaluations", count)
        if math.isinf(self.seconds) and self.evaluations is None:
            raise InputError("the search has no budget; give budget_s or budget_evaluations")

    def left(self, evaluations: int) -> float:
        """Evaluations left after ``evaluations``."""
        return math.inf if self.evaluations is None else self.evaluations - evaluations

    def used(self, evaluations: int, seconds: float) -> float:
        """The share that is used up after so many evaluations and seconds.

        Where evaluations are limited they alone count, so that what a search does with its shares is not a matter of
        the clock; the seconds then only end it.
        """
        return seconds / self.seconds if self.evaluations is None else evaluations / self.evaluations

    def capped(self, evaluations: int) -> Budget:
        """So many evaluations, in no more time: one that counts evaluations alone has no other limit."""
        return Budget(self.seconds, evaluations)

    def share(self, count: int) -> Budget:
        """The budget of each of ``count`` searches that share this one; at least one evaluation each."""
        evaluations = None if self.evaluations is None else max(1, self.evaluations // count)
        return Budget(self.seconds / count, evaluations)
