"""How a program is timed: warm-up, timed steps, what is reported."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from tf_placer.errors import InputError


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
    """How a placement is timed.

    Attributes:
      warmup_steps: untimed steps first; they allocate memory and make the kernels.
      steps: timed steps.
      keep: the reported time is the median of this many last timed steps.
      deadline_s: most seconds for one placement, loading included.
      inter_op_threads: threads that run ops in each worker, see ``WorkerSpec``.
    """

    warmup_steps: int = 2
    steps: int = 10
    keep: int = 5
    deadline_s: float = 300.0
    inter_op_threads: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.keep <= self.steps or self.warmup_steps < 0 or self.deadline_s <= 0:
            raise InputError(f"{self}: need 1 <= keep <= steps, warmup_steps >= 0 and deadline_s > 0")


def time_steps(step: Callable[[], None], config: RuntimeConfig) -> list[float]:
    """Seconds of each of ``config.steps`` steps after the warm-up."""
    for _ in range(config.warmup_steps):
        step()
    times_s = []
    for _ in range(config.steps):
        start = time.perf_counter()
        step()
        times_s.append(time.perf_counter() - start)
    return times_s


def reported_s(step_s: Sequence[float], config: RuntimeConfig) -> float:
    """The median of the last ``config.keep`` timed steps (Mirhoseini et al. 2018, section 4)."""
    return float(np.median(step_s[-config.keep :]))


def spread_s(step_s: Sequence[float], config: RuntimeConfig) -> float:
    """Interquartile range of the steps that ``reported_s`` is the median of."""
    low, high = np.percentile(step_s[-config.keep :], [25, 75])
    return float(high - low)
