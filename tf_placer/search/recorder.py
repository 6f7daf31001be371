"""Result of a search, the recorder that keeps best plan, count and history while it runs, and what shows them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import rich.console
import rich.progress

from tf_placer.base import arguments
from tf_placer.base.heartbeat import HEARTBEAT
from tf_placer.base.quantities import html_table, milliseconds
from tf_placer.problem.bounds import LowerBounds
from tf_placer.problem.decisions import UNDECIDED, Decisions
from tf_placer.problem.placement import Placement
from tf_placer.search.known import NO_ORDER, ORDERS, Budget
from tf_placer.search.round import Round

# Result of a search.

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
    """Cost in time of a search for the least memory, and its gain; all of it simulated.

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
      order: the rule of its order of execution (``tf_placer.planners.order``); ``"none"`` where none is decided.

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
    order: str = NO_ORDER

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
        arguments.one_of("order", self.order, ORDERS)
        object.__setattr__(self, "found_by", self.found_by or self.method)

    def __repr__(self) -> str:
        steps = ", ".join(f"{title} {milliseconds(seconds)}" for title, seconds in self._steps())
        name = self.placement.problem.name
        return f"<SearchResult of {name!r} by {self.method}: {steps}; {self.evaluations} placements tried>"

    def _repr_html_(self) -> str:
        steps = [(title, milliseconds(seconds)) for title, seconds in self._steps()]
        return html_table((f"step ({self.evaluator})", "time"), steps)

    def _steps(self) -> list[tuple[str, float | None]]:
        return [
            ("plan", self.runtime_s),
            ("single device", self.single_device_s),
            ("lower bound", self.lower_bound_s),
        ]

    @property
    def lower_bound_s(self) -> float:
        """The best of ``bounds`` and of what was proven, in seconds."""
        return max(self.bounds.best_s, self.proven_s)

    @property
    def tightest_bound(self) -> str:
        """Name of the bound that ``lower_bound_s`` is: ``"proven"``, or one of ``bounds``."""
        return PROVEN if self.proven_s > self.bounds.best_s else self.bounds.tightest

    @property
    def is_optimal(self) -> bool:
        """True if it is proven that no placement that fits is faster in the simulator."""
        return self.evaluator == SIMULATED and takes_no_more(self.runtime_s, self.lower_bound_s)


def takes_no_more(runtime_s: float, bound_s: float) -> bool:
    """True if a step takes a lower bound and no more; both are of whole nanoseconds."""
    return runtime_s * 1e9 <= bound_s * 1e9 + 1e-3


SearchCurve = tuple[str, Sequence[float], Sequence[float]]
"""Name of a search, the seconds at which it found something better, and those step times."""


def progress_of(name: str, history: Sequence[HistoryEntry]) -> SearchCurve:
    """The moments at which a search found something better, and its end."""
    elapsed_s: list[float] = []
    best_s: list[float] = []
    for i, entry in enumerate(history):
        is_better = not best_s or entry.best_s < best_s[-1]
        if not math.isnan(entry.best_s) and (is_better or i == len(history) - 1):
            elapsed_s.append(entry.elapsed_s)
            best_s.append(entry.best_s)
    return name, elapsed_s, best_s


class Recorder:
    """Keeps account of rounds; rounds past the budget count only as far as it reaches.

    A round that says how many placements were tried to find it (``Round.evaluations``) counts whole: they were tried.

    recorder = Recorder(budget)
    for round in rounds:
        recorder.add(round)
        if recorder.exhausted: break
    """

    def __init__(self, budget: Budget, begun_s: float | None = None):
        """Begins now, or at ``begun_s`` on the clock of ``time.monotonic``."""
        self._budget = budget
        self._start = time.monotonic() if begun_s is None else begun_s
        self.best_s = float("nan")
        self.best: Decisions | None = None  # one plan
        self.found_by = ""  # of the best
        self.order = NO_ORDER  # of the best
        self.proven_s = 0.0  # no placement takes less
        self.evaluations = 0
        self.history: list[HistoryEntry] = []

    def state(self) -> dict[str, Any]:
        """JSON data for ``restore``."""
        best = self.best
        more = {} if best is None else {name: getattr(best, name) for name in UNDECIDED}
        return {
            "elapsed_s": self.elapsed_s,
            "best_s": self.best_s,
            "best_placement": None if best is None else best.device_of_unit[0].tolist(),
            # Only where there is one: other searches are kept as they were before there were such.
            **({"found_by": self.found_by} if self.found_by else {}),
            **({"proven_s": self.proven_s} if self.proven_s else {}),
            **{f"best_{name}": value[0].tolist() for name, value in more.items() if value is not None},
            "evaluations": self.evaluations,
            "history": [list(dataclasses.astuple(entry)) for entry in self.history],
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continues from what ``state`` gave, also in another process; None changes nothing."""
        if state is None:
            return
        rows = {name: state.get(f"best_{name}") for name in UNDECIDED}
        rows["device_of_unit"] = state["best_placement"]
        self._start = time.monotonic() - state["elapsed_s"]
        self.best_s = state["best_s"]
        self.best = None
        self.found_by = state.get("found_by", "")
        self.proven_s = state.get("proven_s", 0.0)
        if rows["device_of_unit"] is not None:
            self.best = Decisions(**{name: None if row is None else [row] for name, row in rows.items()})
        self.evaluations = state["evaluations"]
        self.history = [HistoryEntry(*entry) for entry in state["history"]]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def used(self) -> float:
        """Share of the budget that is used up."""
        return self._budget.used(self.evaluations, self.elapsed_s)

    @property
    def exhausted(self) -> bool:
        """The budget is used up."""
        return self.elapsed_s >= self._budget.seconds or self._budget.left(self.evaluations) <= 0

    def add(self, batch: Round) -> None:
        """Counts a round and keeps its best placement if it is the fastest so far."""
        count, rows = batch.evaluations, len(batch.runtime_s)
        if count is None:
            count = rows = int(min(rows, self._budget.left(self.evaluations)))
        runtime_s = np.where(batch.valid, batch.runtime_s, np.nan)[:rows].astype(np.float64)
        ran = runtime_s[~np.isnan(runtime_s)]
        if len(ran) and not ran.min() >= self.best_s:
            row = int(np.nanargmin(runtime_s))
            self.best_s = float(runtime_s[row])
            self.best = batch.decisions.row(row)
            self.found_by = batch.found_by
            self.order = batch.order
        self.proven_s = max(self.proven_s, batch.proven_s)
        self.evaluations += count
        self.history.append(
            HistoryEntry(
                evaluations=self.evaluations,
                elapsed_s=self.elapsed_s,
                best_s=self.best_s,
                mean_s=float(ran.mean()) if len(ran) else float("nan"),
                failed=rows - len(ran),
            )
        )


class Progress(Protocol):
    """Observer that is given every round: ``with progress: progress.show(entry)``."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, entry: HistoryEntry) -> None: ...


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def show(self, entry: HistoryEntry) -> None:
        return None


class ConsoleProgress:
    """A progress bar with the best so far on a terminal, a line at least every 10 seconds elsewhere."""

    def __init__(self, title: str, budget: Budget, console: rich.console.Console | None = None):
        self._title = title
        self._budget = budget
        self._console = console or rich.console.Console(stderr=True)
        self._begun_s, self._best = time.monotonic(), ""
        self._resources = contextlib.ExitStack()
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}", markup=False),  # brackets of a name are no markup
            rich.progress.BarColumn(),
            rich.progress.TaskProgressColumn(),
            rich.progress.TimeElapsedColumn(),
            "{task.fields[best]}",
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=1.0, best="")

    def __enter__(self) -> ConsoleProgress:
        self._resources.enter_context(self._bar)
        self._resources.enter_context(HEARTBEAT.showing(self._console, self._line))
        self._begun_s = time.monotonic()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._resources.close()

    def show(self, entry: HistoryEntry) -> None:
        """Updates the bar; elsewhere prints the first round, and leaves the others to the heartbeat."""
        is_first, self._best = not self._best, f"{_found(entry)}, {entry.evaluations} tried"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._done(entry), best=self._best)
        elif is_first:
            HEARTBEAT.said()
            self._console.print(self._line(entry.elapsed_s), highlight=False, markup=False, soft_wrap=True)
        HEARTBEAT.noted(entry.best_s)

    def _line(self, elapsed_s: float | None = None) -> str:
        elapsed_s = time.monotonic() - self._begun_s if elapsed_s is None else elapsed_s
        return f"{self._title}: {elapsed_s:.0f} s, {self._best or 'nothing yet'}"

    def _done(self, entry: HistoryEntry) -> float:
        """Fraction of the budget that is used, by whichever limit is nearer."""
        by_count = entry.evaluations / self._budget.evaluations if self._budget.evaluations else 0.0
        return min(1.0, max(entry.elapsed_s / self._budget.seconds, by_count))


def _found(entry: HistoryEntry) -> str:
    """The best so far and the mean of the round, as far as anything ran."""
    if math.isnan(entry.best_s):
        return "nothing fits yet"
    best = f"best {milliseconds(entry.best_s)}"
    if math.isnan(entry.mean_s):
        return f"{best}, nothing of the last round ran"
    return f"{best}, mean {milliseconds(entry.mean_s)}"


class EnteredAlready:
    """A progress that somebody else enters and leaves: this search is a part of that one's."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __enter__(self) -> EnteredAlready:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, entry: HistoryEntry) -> None:
        self._progress.show(entry)
