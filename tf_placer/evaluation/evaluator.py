"""What times placements, whether it simulates or runs them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tf_placer.evaluation.measurement import Measurement
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem


class Evaluator(Protocol):
    """Answers for batches of placements of one problem: ``measurement = evaluator.evaluate(device_of_unit)``."""

    @property
    def problem(self) -> Problem: ...

    @property
    def identity(self) -> dict[str, Any]:
        """JSON data that tells evaluators apart whose answers must not be mixed; ``"evaluator"`` is its kind."""

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Times one step of each placement; what does not run is a status.

        Args:
          device_of_unit: [B, U], or all that B plans decide. Who asks gives the array where nothing else is decided
            (``Decisions.plain``), so that an evaluator of devices alone need not know of more.

        Raises:
          InputError: it decides what this evaluator cannot heed: a schedule is never left out in silence.
        """
