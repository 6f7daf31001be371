"""What `place` and `compare` found: the plan that is written, and the others beside it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from tf_placer.command_line.reporting.candidate import Candidate
from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.planners.whole_layers import WholeLayers
from tf_placer.planning.live import LiveResult
from tf_placer.problem.layers import Layers
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.result import PROVEN, SIMULATED, SearchResult, takes_no_more
from tf_placer.search.room import Room, room_needed
from tf_placer.search.spec import Role


@dataclasses.dataclass(frozen=True)
class Live:
    """What is told beyond the candidates where the runtime had the last word.

    Attributes:
      recommended: what the live search recommends; the plan that is written unless the method's own was asked for.
      found: its live search.
    """

    recommended: Candidate
    found: LiveResult


@dataclasses.dataclass(frozen=True)
class ByLayer:
    """The plan in layers.

    Attributes:
      layers: of the program, with ops that share a device in one of them.
      whole: the fastest plan found of whole layers; None where none fits, or where the plan was given and not searched.
      placement: the plan that is written: that one, or else ``chosen``'s.
    """

    layers: Layers
    whole: WholeLayers | None
    placement: Placement


@dataclasses.dataclass(frozen=True)
class Report:
    """The plan that is written beside the others that were found.

    Attributes:
      item: the program; None of a profiled graph, which has none to write.
      problem: the program on the cluster.
      chosen: the placement to write, whoever found it; it has a result.
      baselines: the others.
      live: of a search on live devices.
      asked: the method that was asked for; None where that is the one of ``chosen``.
      by_layer: where a plan of layers was asked for: it is written, and all else here is of plans of single ops.
      whole_layers: a plan of whole layers beside the one of single ops that is written; None where there is none.
      data_parallel: the batch split instead; None where nobody asked.
      why_not_split: a sentence, where nobody asked because there was no time.
    """

    item: Item | None
    problem: Problem
    chosen: Candidate
    baselines: tuple[Candidate, ...]
    live: Live | None = None
    asked: str | None = None
    by_layer: ByLayer | None = None
    whole_layers: WholeLayers | None = None
    data_parallel: DataParallel | None = None
    why_not_split: str = ""

    def __post_init__(self) -> None:
        if self.chosen.result is None:
            raise InputError(self.chosen.message)

    @property
    def method(self) -> str:
        """The method that was asked for."""
        return self.asked or self.chosen.method

    @property
    def result(self) -> SearchResult:
        """The search behind ``chosen``."""
        assert self.chosen.result is not None  # checked when made
        return self.chosen.result

    @property
    def placement(self) -> Placement:
        """The plan that is written."""
        return self.result.placement if self.by_layer is None else self.by_layer.placement

    @property
    def tightest(self) -> SearchResult:
        """The search that knows most of what no placement can beat: what one method proves holds for all."""
        found = [candidate.result for candidate in self.candidates if candidate.result is not None]
        return max(found, key=lambda result: result.lower_bound_s)

    @property
    def recommended(self) -> Candidate:
        """The fastest candidate by measured time, or by simulated time where nothing was measured.

        A live search knows more of noise and has decided. Where the least memory is sought it is the chosen one.
        """
        if self.live is not None:
            return self.live.recommended
        if self.result.least_memory is not None:
            return self.chosen
        return fastest((self.chosen, *self.baselines)) or self.chosen

    @functools.cached_property
    def room(self) -> Room | None:
        """What the step needs of a single device; None where one holds it."""
        return room_needed(self.problem)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All of them, the chosen one last."""
        return (*self.baselines, self.chosen)

    @property
    def single(self) -> Candidate | None:
        """The best single device, where it was tried."""
        return next((candidate for candidate in self.candidates if is_single(candidate.method)), None)

    @property
    def bounds(self) -> list[tuple[str, float]]:
        """(name, seconds) of every bound, and of what a method has proven beyond them."""
        rows = [(name, bound_ns / 1e9) for name, bound_ns in self.result.bounds.rows]
        return rows + ([(PROVEN, self.tightest.proven_s)] if self.tightest.tightest_bound == PROVEN else [])

    def is_optimal(self, candidate: Candidate) -> bool:
        """Whether it is proven that no placement that fits is faster in the simulator."""
        by_simulator = candidate.result is not None and candidate.result.evaluator == SIMULATED
        bound_s = self.tightest.lower_bound_s
        return by_simulator and takes_no_more(candidate.simulated_s or 0.0, bound_s)


def fastest(candidates: Sequence[Candidate], asked: str | None = None) -> Candidate | None:
    """The candidate with the shortest step, measured where something was; None when none runs.

    On a tie the single device wins: a plan that gains nothing is not worth having. Then the method that was asked for.

    Args:
      candidates: all measured, or none.
      asked: the method that was asked for.
    """
    ran = [c for c in candidates if c.step_s is not None]
    return min(ran, key=lambda c: (c.step_s, not is_single(c.method), c.method != asked), default=None)


def row_name(candidate: Candidate) -> str:
    """What a table calls it: the method, and who found the plan inside it."""
    if is_single(candidate.method):
        return "single device"
    by = candidate.result.found_by if candidate.result else candidate.method
    return candidate.method if by == candidate.method else f"{candidate.method} ({by})"


def is_single(method: str) -> bool:
    """Whether it is the method that all others are held against."""
    return method == methods.the(Role.REFERENCE).name
