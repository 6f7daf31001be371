"""One method's best placement, simulated and, where there are devices to ask, measured."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_placer.evaluation.measurement import Status
from tf_placer.search.result import SearchResult

NOT_RUN = "NOT_RUN"
GIVEN = "plan"
"""Called so in place of a method: a plan that was given, and not searched."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What a method came up with.

    Attributes:
      method: its name.
      result: its search, None when nothing it tried fits in memory.
      measured_s: step time on the runtime, None when not measured or when it failed there.
      status: how it fared last: in the simulator, or on the runtime once measured; ILLEGAL without result where the
        method cannot place this problem.
      message: one line about a failure, "" where there is nothing to say.
      traced: a step on the runtime, of the one whose plan is written.
      spread_s: lower and upper quartile of its times in a race; None where there was none.
    """

    method: str
    result: SearchResult | None
    measured_s: float | None = None
    status: Status = Status.OK
    message: str = ""
    traced: tf.compat.v1.RunMetadata | None = None
    spread_s: tuple[float, float] | None = None

    @property
    def simulated_s(self) -> float | None:
        """Step time in the simulator, None when nothing fits."""
        return self.result.runtime_s if self.result else None

    @property
    def peak_bytes(self) -> int | None:
        """Most memory in use on any one device in the simulator, None when nothing fits."""
        return max(self.result.peak_bytes.values(), default=0) if self.result else None

    @property
    def status_name(self) -> str:
        """The status, or ``NOT_RUN`` of a method that could not even begin; ``message`` says why."""
        is_told = self.result is not None or self.status == Status.OUT_OF_MEMORY
        return self.status.name if is_told else NOT_RUN

    @property
    def step_s(self) -> float | None:
        """The word that counts: measured where something was, else simulated."""
        if self.status != Status.OK:
            return None
        return self.simulated_s if self.measured_s is None else self.measured_s
