"""Result of a search, the recorder of its best plan, count and history, and their display."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import rich.console
import rich.progress

from tf_placer.base.quantities import HEARTBEAT, html_table, milliseconds
from tf_placer.problem.bounds import PROVEN, LowerBounds
from tf_placer.problem.placement import UNDECIDED, Decisions, Placement
from tf_placer.search.methods import NO_ORDER, Budget
from tf_placer.search.round import Best, Round

SIMULATED = "simulated"


@dataclasses.dataclass(frozen=True)
class HistoryEntry:
    """The search after one round."""

    evaluations: int  # placements tried so far
    elapsed_s: float  # since the start
    best_s: float  # fastest step so far, nan while nothing ran
    mean_s: float  # mean step of the round's placements that ran, nan if none did
    failed: int  # placements of the round that did not run


@dataclasses.dataclass(frozen=True)
class LeastMemory:
    """Cost in time and gain of a search for the least memory, all simulated."""

    slow_down: float  # share of the fastest plan's step time that the plan may take longer
    fastest: SearchResult  # the search for that plan
    share: float  # of the fullest accelerator's memory, at its peak
    bound_share: float  # no plan within the slow-down takes less


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The best placement of one search."""

    placement: Placement  # the fastest that runs
    method: str
    seed: int
    evaluator: str  # that timed the placements: "simulated" or "runtime"
    runtime_s: float  # step time of the placement, by that evaluator
    peak_bytes: dict[str, int]  # device name -> most memory in use, always simulated
    bounds: LowerBounds  # with the costs of the problem no placement is faster
    single_device_s: float | None  # step of the best single device, by the evaluator; None: none runs
    evaluations: int  # placements tried
    search_s: float  # wall-clock seconds, without those between a kill and the next start
    interrupted: bool  # by Ctrl-C
    history: tuple[HistoryEntry, ...]  # one entry per round
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the method, by name
    found_by: str = ""  # the method inside ``method`` that found the plan; ``method`` where there is none
    proven_s: float = 0.0  # proven: no placement that fits takes less in the simulator; 0: nothing is
    least_memory: LeastMemory | None = None  # of a search for the least memory
    order: str = NO_ORDER  # a rule of ``planners.order``, or ``searched``

    def __post_init__(self) -> None:
        object.__setattr__(self, "found_by", self.found_by or self.method)

    def __repr__(self) -> str:
        steps = ", ".join(f"{title} {time}" for title, time in self._steps)
        name = self.placement.problem.name
        return f"<SearchResult of {name!r} by {self.method}: {steps}; {self.evaluations} placements tried>"

    def _repr_html_(self) -> str:
        return html_table((f"step ({self.evaluator})", "time"), self._steps)

    @property
    def _steps(self) -> list[tuple[str, str]]:
        times = map(milliseconds, (self.runtime_s, self.single_device_s, self.lower_bound_s))
        return list(zip(("plan", "single device", "lower bound"), times, strict=True))

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
        """True if no placement that fits is faster in the simulator, by proof."""
        return self.evaluator == SIMULATED and takes_no_more(self.runtime_s, self.lower_bound_s)

    @property
    def progress(self) -> tuple[list[float], list[float]]:
        """Seconds of improvements, and the end; step times then."""
        elapsed_s, best_s = list[float](), list[float]()
        for entry in self.history:
            is_better = not best_s or entry.best_s < best_s[-1]
            if not math.isnan(entry.best_s) and (is_better or entry is self.history[-1]):
                elapsed_s.append(entry.elapsed_s)
                best_s.append(entry.best_s)
        return elapsed_s, best_s


SearchCurve = tuple[str, Sequence[float], Sequence[float]]
"""Name of a search, the seconds at which it found something better, and those step times."""


def takes_no_more(runtime_s: float, bound_s: float) -> bool:
    """True if a step takes a lower bound and no more; both are of whole nanoseconds."""
    return runtime_s * 1e9 <= bound_s * 1e9 + 1e-3


@dataclasses.dataclass
class Recorder:
    """Account of rounds from now on; the last one counts only as far as the budget reaches.

    A round that says how many placements were tried to find it (``Round.evaluations``) counts whole: they were tried.
    """

    budget: Budget
    best: Best = dataclasses.field(default_factory=Best)
    proven_s: float = 0.0  # no placement takes less
    evaluations: int = 0
    history: list[HistoryEntry] = dataclasses.field(default_factory=list)
    _start: float = dataclasses.field(default_factory=lambda: time.monotonic())  # the clock of the moment

    def state(self) -> dict[str, Any]:
        """JSON data for ``restore``."""
        best, plan = self.best, self.best.plan
        decided = {} if plan is None else {name: getattr(plan, name) for name in UNDECIDED}
        return {
            "elapsed_s": self.elapsed_s,
            "best_s": math.nan if plan is None else best.runtime_s,
            "best_placement": None if plan is None else plan.device_of_unit[0].tolist(),
            # Only where there is one: other searches are kept as they were before there were such.
            **({"found_by": best.found_by} if best.found_by else {}),
            **({"proven_s": self.proven_s} if self.proven_s else {}),
            **{f"best_{name}": value[0].tolist() for name, value in decided.items() if value is not None},
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
        self.best = Best()
        self.proven_s = state.get("proven_s", 0.0)
        if rows["device_of_unit"] is not None:
            plan = Decisions(**{name: None if row is None else [row] for name, row in rows.items()})
            self.best = Best(plan, state["best_s"], state.get("found_by", ""))
        self.evaluations = state["evaluations"]
        self.history = [HistoryEntry(*entry) for entry in state["history"]]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def exhausted(self) -> bool:
        """The budget is used up."""
        return self.elapsed_s >= self.budget.seconds or self.budget.left(self.evaluations) <= 0

    def add(self, batch: Round) -> None:
        """Counts a round and keeps its best placement if that is the fastest so far."""
        count, rows = batch.evaluations, len(batch.runtime_s)
        if count is None:
            count = rows = int(min(rows, self.budget.left(self.evaluations)))
        runtime_s = batch.times_s[:rows].astype(np.float64)
        ran = runtime_s[np.isfinite(runtime_s)]
        self.best.take(batch, rows)
        self.proven_s = max(self.proven_s, batch.proven_s)
        self.evaluations += count
        best_s = math.nan if self.best.plan is None else self.best.runtime_s
        mean_s = float(ran.mean()) if len(ran) else math.nan
        entry = HistoryEntry(self.evaluations, self.elapsed_s, best_s, mean_s, failed=rows - len(ran))
        self.history.append(entry)


class Progress(contextlib.AbstractContextManager[object]):
    """Observer that is given every round: ``with progress: progress.show(entry)``; this one shows nothing."""

    def __exit__(self, *exc_info: object) -> None:
        return None

    def show(self, entry: HistoryEntry) -> None:
        return None


class ConsoleProgress(Progress):
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
        is_first, best = not self._best, "nothing fits yet"
        if not math.isnan(entry.best_s):
            mean = f"mean {milliseconds(entry.mean_s)}"
            mean = "nothing of the last round ran" if math.isnan(entry.mean_s) else mean
            best = f"best {milliseconds(entry.best_s)}, {mean}"
        self._best = f"{best}, {entry.evaluations} tried"
        if self._console.is_terminal:
            budget = self._budget
            by_count = entry.evaluations / budget.evaluations if budget.evaluations else 0.0
            completed = min(1.0, max(entry.elapsed_s / budget.seconds, by_count))
            self._bar.update(self._task, completed=completed, best=self._best)
        elif is_first:
            HEARTBEAT.said()
            self._console.print(self._line(entry.elapsed_s), highlight=False, markup=False, soft_wrap=True)
        HEARTBEAT.noted(entry.best_s)

    def _line(self, elapsed_s: float | None = None) -> str:
        elapsed_s = time.monotonic() - self._begun_s if elapsed_s is None else elapsed_s
        return f"{self._title}: {elapsed_s:.0f} s, {self._best or 'nothing yet'}"
