"""What a search found, and how it got there."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_placer import arguments
from tf_placer.problem.bounds import LowerBounds
from tf_placer.problem.placement import Placement

PROVEN, SIMULATED = "proven", "simulated"


@dataclasses.dataclass(frozen=True)
class HistoryEntry:
    """The search after one round.

    Attributes:
      evaluations: placements tried so far.
      elapsed_s: seconds since the start.
      best_s: fastest step so far, nan while nothing ran.
      mean_s: mean step of the round's placements that ran, nan if none did.
      failed: placements of the round that did not run.
    """

    evaluations: int
    elapsed_s: float
    best_s: float
    mean_s: float
    failed: int


@dataclasses.dataclass(frozen=True)
class LeastMemory:
    """What a search for the least memory gave up time for; all of it simulated.

    Attributes:
      slow_down: most of the fastest plan's step time that the plan may take longer, as a share of it.
      fastest: the search for that plan.
      share: of its memory that the plan takes of the fullest accelerator at its peak.
      bound_share: no plan within the slow-down takes less.
    """

    slow_down: float
    fastest: SearchResult
    share: float
    bound_share: float


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The best placement of one search.

    Attributes:
      placement: the fastest placement that runs.
      method, seed: what found it.
      evaluator: what timed the placements: "simulated" or "runtime".
      runtime_s: its step time, by that evaluator.
      peak_bytes: device name -> most memory in use, always simulated.
      bounds: with the costs of the problem no placement is faster than these.
      single_device_s: step time of the best single device, by that evaluator; None when none runs.
      evaluations: placements tried.
      search_s: wall-clock seconds, without those between a kill and the next start.
      interrupted: True when stopped by Ctrl-C.
      history: one entry per round.
      settings: of the method, by name; empty where it has none.
      found_by: the method that found it inside the one that was asked for; ``method`` itself where there is none.
      proven_s: no placement that fits takes less in the simulator, by what the method has proven; 0: nothing.
      least_memory: of a search for the least memory, what it gave up time for; None of one for time.

    Raises:
      InputError: a field of the wrong type, or a negative number.
    """

    placement: Placement
    method: str
    seed: int
    evaluator: str
    runtime_s: float
    peak_bytes: dict[str, int]
    bounds: LowerBounds
    single_device_s: float | None
    evaluations: int
    search_s: float
    interrupted: bool
    history: tuple[HistoryEntry, ...]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    found_by: str = ""
    proven_s: float = 0.0
    least_memory: LeastMemory | None = None

    def __post_init__(self) -> None:
        arguments.instance_of("placement", self.placement, Placement, "give the fastest one")
        for name in ("method", "evaluator"):
            arguments.text(name, getattr(self, name), f"give the name of the {name}")
        for name in ("seed", "evaluations"):
            arguments.whole_number(name, getattr(self, name), least=0)
        for name in ("runtime_s", "search_s"):
            arguments.number(name, getattr(self, name), least=0)
        if self.single_device_s is not None:
            arguments.number("single_device_s", self.single_device_s, least=0)
        arguments.instance_of("peak_bytes", self.peak_bytes, dict, "give device name -> bytes")
        arguments.instance_of("bounds", self.bounds, LowerBounds, "give lower_bounds of the problem")
        arguments.truth("interrupted", self.interrupted)
        arguments.items_of("history", self.history, HistoryEntry, "give one entry for each round")
        arguments.instance_of("settings", self.settings, dict, "give setting -> value")
        arguments.instance_of("found_by", self.found_by, str, "give the name of a method")
        arguments.number("proven_s", self.proven_s, least=0)
        if self.least_memory is not None:
            arguments.instance_of("least_memory", self.least_memory, LeastMemory, "give one, or None")
        object.__setattr__(self, "found_by", self.found_by or self.method)

    @property
    def lower_bound_s(self) -> float:
        """The best of ``bounds`` and of what was proven, in seconds."""
        return max(self.bounds.best_s, self.proven_s)

    @property
    def tightest_bound(self) -> str:
        """What ``lower_bound_s`` is: ``"proven"``, or the name of one of ``bounds``."""
        return PROVEN if self.proven_s > self.bounds.best_s else self.bounds.tightest

    @property
    def is_optimal(self) -> bool:
        """Whether it is proven that no placement that fits is faster in the simulator."""
        return self.evaluator == SIMULATED and takes_no_more(self.runtime_s, self.lower_bound_s)


def takes_no_more(runtime_s: float, bound_s: float) -> bool:
    """Whether a step takes a lower bound and no more; both are of whole nanoseconds."""
    return runtime_s * 1e9 <= bound_s * 1e9 + 1e-3
