"""How a program is timed: warm-up, timed steps, what is reported."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from tf_placer import arguments
from tf_placer.runtime.statistics import hopeless


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
    """How a placement is timed.

    Attributes:
      warmup_steps: untimed steps first; they allocate memory and make the kernels.
      steps: timed steps.
      keep: the reported time is the median of this many last timed steps.
      deadline_s: most seconds for one placement, loading included.
      inter_op_threads: threads that run ops in each worker, see ``WorkerSpec``.
      early_stop: stop timing a placement that is ``hopeless`` against the best one timed so far.
      false_stop_rate: most probability of stopping one that is as fast as the best.
      stop_margin: how much slower than the best's slowest step every step must be, as a share of it.

    Raises:
      InputError: one of the values is not possible.
    """

    warmup_steps: int = 2
    steps: int = 10
    keep: int = 5
    deadline_s: float = 300.0
    inter_op_threads: int = 2
    early_stop: bool = False
    false_stop_rate: float = 0.005
    stop_margin: float = 0.1

    def __post_init__(self) -> None:
        steps = arguments.whole_number("steps", self.steps, least=1)
        taken = {
            "warmup_steps": arguments.whole_number("warmup_steps", self.warmup_steps, least=0),
            "steps": steps,
            "keep": arguments.whole_number("keep", self.keep, 1, steps),
            "deadline_s": arguments.number("deadline_s", self.deadline_s, above=0, finite=True),
            "inter_op_threads": arguments.whole_number("inter_op_threads", self.inter_op_threads, least=1),
            "early_stop": arguments.truth("early_stop", self.early_stop),
            "false_stop_rate": arguments.number("false_stop_rate", self.false_stop_rate, above=0, below=1),
            "stop_margin": arguments.number("stop_margin", self.stop_margin, least=0),
        }
        for name, value in taken.items():
            object.__setattr__(self, name, value)


def time_steps(
    step: Callable[[], None],
    config: RuntimeConfig,
    incumbent_s: Sequence[float] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Times the steps of a program after its warm-up.

    Args:
      step: runs one step.
      config: how many.
      incumbent_s: step times of the best program so far; with ``config.early_stop``, one that is hopeless
        against it is timed no further.
      clock: seconds.

    Returns:
      Seconds of each of ``config.steps`` steps; of fewer where it stopped early.
    """
    for _ in range(config.warmup_steps):
        step()
    times_s: list[float] = []
    for _ in range(config.steps):
        start = clock()
        step()
        times_s.append(clock() - start)
        if config.early_stop and hopeless(times_s, incumbent_s, config.false_stop_rate, config.stop_margin):
            break
    return times_s


def stopped_early(step_s: Sequence[float], config: RuntimeConfig) -> bool:
    """Whether timing ended before the last step."""
    return len(step_s) < config.steps


def reported_s(step_s: Sequence[float], config: RuntimeConfig) -> float:
    """The median of the last ``config.keep`` timed steps (Mirhoseini et al. 2018, section 4).

    Of all timed steps where timing stopped early.
    """
    return float(np.median(_kept(step_s, config)))


def spread_s(step_s: Sequence[float], config: RuntimeConfig) -> float:
    """Interquartile range of the steps that ``reported_s`` is the median of."""
    low, high = np.percentile(_kept(step_s, config), [25, 75])
    return float(high - low)


def _kept(step_s: Sequence[float], config: RuntimeConfig) -> Sequence[float]:
    return step_s if stopped_early(step_s, config) else step_s[-config.keep :]
