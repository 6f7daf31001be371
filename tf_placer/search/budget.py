"""How long a search may go on."""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
from typing import Any

from tf_placer.errors import InputError


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
        object.__setattr__(self, "seconds", _seconds(self.seconds))
        object.__setattr__(self, "evaluations", _evaluations(self.evaluations))
        if not self.seconds > 0:
            raise InputError(
                f"budget_s is {self.seconds}; give a search some time, for example --budget_s=60"
            )
        if self.evaluations is not None and self.evaluations < 1:
            raise InputError(f"budget_evaluations is {self.evaluations}; a search needs at least 1")
        if math.isinf(self.seconds) and self.evaluations is None:
            raise InputError("the search has no budget; give budget_s or budget_evaluations")

    def left(self, evaluations: int) -> float:
        """Evaluations left after ``evaluations``."""
        return math.inf if self.evaluations is None else self.evaluations - evaluations

    def share(self, count: int) -> Budget:
        """The budget of each of ``count`` searches that share this one; at least one evaluation each."""
        evaluations = None if self.evaluations is None else max(1, self.evaluations // count)
        return Budget(self.seconds / count, evaluations)


def _seconds(value: object) -> float:
    """A plain float, also from NumPy's numbers."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"budget_s is {value!r}; give a number of seconds, such as 60")
    return float(value)


def _evaluations(value: Any) -> int | None:
    """A plain integer, also from NumPy's; None stays."""
    if value is None:
        return None
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"budget_evaluations is {value!r}; give a whole number") from None
