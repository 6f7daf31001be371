"""Shows a running search: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Protocol

import rich.console
import rich.progress

from tf_placer.base.quantities import milliseconds
from tf_placer.search.known import Budget
from tf_placer.search.recorder import HistoryEntry

LINE_EVERY_S = 10.0


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
    """A progress bar with the best so far on a terminal, a line every 10 seconds elsewhere."""

    def __init__(self, title: str, budget: Budget, console: rich.console.Console | None = None):
        self._title = title
        self._budget = budget
        self._console = console or rich.console.Console(stderr=True)
        self._last_line_s = float("-inf")
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
        self._bar.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.stop()

    def show(self, entry: HistoryEntry) -> None:
        """Updates the bar, or prints a line when the last one is old enough."""
        best = f"{_found(entry)}, {entry.evaluations} tried"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._done(entry), best=best)
        elif time.monotonic() - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            self._console.print(
                f"{self._title}: {entry.elapsed_s:.0f} s, {best}", highlight=False, soft_wrap=True
            )

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
