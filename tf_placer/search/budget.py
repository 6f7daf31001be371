"""How long a search may go on."""

from __future__ import annotations

import dataclasses
import math

from tf_placer.errors import InputError


@dataclasses.dataclass(frozen=True)
class Budget:
    """A search ends when either limit is reached.

    Attributes:
      seconds: wall-clock limit, infinite when only evaluations count.
      evaluations: most placements evaluated, None for no limit.

    Raises:
      InputError: no limit at all, or one that is not positive.
    """

    seconds: float = math.inf
    evaluations: int | None = None

    def __post_init__(self) -> None:
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
