"""Stages of work: one list that is announced, run in order, timed, and given shares of a budget."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import rich.console
import rich.live
import rich.text

from tf_placer.base.durations import Durations

_BEFORE = "starting up"
_OVERDUE = 0.1  # what takes longer than was thought takes this share of what it took so far more
_LEAST_PACE, _MOST_PACE, _ENOUGH_S = 0.5, 3.0, 1.0
_LEAST_SHARE, _LEAST_S = 0.2, 1.0
_MUCH, _MUCH_S = 1.2, 5.0  # more than was thought
_OVER = 0.1  # of a budget, by which an optional stage may exceed it
_UNDER_S, _MINUTES_FROM_S = 0.95, 100.0
_REFRESHES_PER_S = 2
_STAT_START_TIME = 19  # of /proc/PID/stat, counted behind the name of the program
T = TypeVar("T")
_begun_s: contextvars.ContextVar[float | None] = contextvars.ContextVar("begun_s", default=None)


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """A part of some work.

    Attributes:
      name: "building the graph". Stages of one name are parts of the same, and shown as one.
      run: does it. Its argument is the seconds that it has: its share of the budget, or, of an optional stage, what is
        left for it; infinite without either.
      seconds: about how long it takes beside its share; None where nobody knows.
      key: its length is kept under this for the next time, added up over stages of one key; "" where it is decided
        and not found. Of a stage with a share it is what it takes longer than that.
      share: its weight among the stages that share what the others leave of the budget.
      is_optional: it is planned only where those that share have no less time than it.
    """

    name: str
    run: Callable[[float], object]
    seconds: float | None = 0.0
    key: str = ""
    share: float = 0.0
    is_optional: bool = False


class Stages:
    """Runs a list of stages; any of them may put others in the place of those that follow (``then``).

        stages = Stages(console, budget_s=60.0)
        stages.run([Stage("building the graph", build, 8.0, "building x"), Stage("searching", search, share=1.0)])

    A terminal shows the stage that runs and what is left. How long stages took is kept for the next time.
    """

    def __init__(
        self,
        console: rich.console.Console,
        budget_s: float = math.inf,
        durations: Durations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins at ``begun_s()``, which may be before now.

        Args:
          console: where lines go.
          budget_s: seconds of everything together; infinite where no stage has a share of it.
          durations: where lengths are kept; the user's cache without.
          clock: seconds.
        """
        self.console = console
        self.durations = durations or Durations()
        self._budget_s = budget_s
        self._clock = clock
        self._begun_s = begun_s() if clock is time.monotonic else clock()
        self._ahead: list[Stage] = []
        self._running: tuple[Stage, float] | None = None  # since when
        self._done: list[tuple[Stage, float]] = []  # what each took
        self._given_s: dict[str, float] = {}
        self._weight_s: float | None = (
            None  # seconds of a share of 1, fixed when the first stage with a share begins
        )
        self._is_announced = False
        self._left_out: set[str] = set()  # optional stages, fixed then too
        self._resources = contextlib.ExitStack()

    def run(self, stages: Sequence[Stage], is_announced: bool = True, note: str = "") -> None:
        """Runs one stage after the other, until none is left.

        Args:
          stages: in their order.
          is_announced: what will be done is told first (``announce``).
          note: one more sentence for the announcement.
        """
        self._ahead = list(stages)
        if is_announced:
            self.announce(note)
        with self._resources:
            if self.console.is_terminal:
                self._resources.enter_context(
                    rich.live.Live(
                        get_renderable=self._line,
                        console=self.console,
                        transient=True,
                        refresh_per_second=_REFRESHES_PER_S,
                    )
                )
            while self._ahead:
                self._run(self._ahead[0])

    def kept(self, name: str, run: Callable[[float], object], rule_s: float, key: str) -> Stage:
        """A stage whose length is found: what was kept under a key, or else by a rule."""
        return Stage(name, run, self.durations.known(key, rule_s), key)

    def then(self, stages: Sequence[Stage]) -> None:
        """Replaces all stages after the running one; a much longer wait than announced is reported."""
        before_s = self.remaining_s
        self._ahead = list(stages)
        after_s = self.remaining_s
        if self._is_announced and after_s > before_s * _MUCH + _MUCH_S:
            self.tell(f"It is more than was thought: {roughly(after_s)} from here.")

    def until_the_end(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Enters a context that is left when the last stage is over, or one fails."""
        return self._resources.enter_context(context)

    def announce(self, note: str = "") -> None:
        """Says in a line what will be done, and how long that takes with what went by before: imports, say."""
        self._is_announced = True
        seconds: dict[str, float | None] = {}
        if self.elapsed_s >= _ENOUGH_S:
            seconds[_BEFORE] = self.elapsed_s
        for stage in self._planned():
            this_s, before_s = self._expected_s(stage), seconds.get(stage.name, 0.0)
            seconds[stage.name] = None if this_s is None or before_s is None else before_s + this_s
        parts = ", ".join(f"{name} {about(of_it_s)}" for name, of_it_s in seconds.items())
        known = [of_it_s for of_it_s in seconds.values() if of_it_s is not None]
        total = roughly(sum(known), len(known) == len(seconds))
        self.tell(f"This takes {total}: {parts}.{' ' if note else ''}{note}")

    def tell(self, line: str) -> None:
        """Says a line, in which brackets are no markup."""
        self.console.print(rich.text.Text(line), soft_wrap=True)

    def expect(self, seconds: float) -> None:
        """Says better how long the running stage takes."""
        assert self._running is not None  # it says so itself
        stage, since_s = self._running
        self._running = dataclasses.replace(stage, seconds=seconds), since_s

    def took_s(self, name: str) -> float | None:
        """Seconds that the stages of a name took so far; None where none ran."""
        return sum((of_it_s for stage, of_it_s in self._done if stage.name == name), 0.0) or None

    def given_s(self, name: str) -> float:
        """Seconds that the stages of a name had so far, infinite where they had no share."""
        return self._given_s.get(name, 0.0)

    @property
    def elapsed_s(self) -> float:
        """Since it began."""
        return self._clock() - self._begun_s

    @property
    def remaining_s(self) -> float:
        """About how long the stages of known length still take, never negative.

        What is found rather than decided takes longer where it did so far, and what is overdue a little more.
        """
        return sum(self._expected_s(stage) or 0.0 for stage in self._planned()) + self._running_s

    @property
    def _running_s(self) -> float:
        """Time left of the running stage."""
        running = self._running  # read once: a terminal is refreshed by another thread
        if running is None:
            return 0.0
        stage, since_s = running
        spent_s = self._clock() - since_s
        return max((self._expected_s(stage) or 0.0) - spent_s, _OVERDUE * spent_s)

    def _run(self, stage: Stage) -> None:
        given_s = math.inf
        if stage.share:
            self._left_out = {other.name for other in self._ahead} - {other.name for other in self._planned()}
            self._weight_s = self._seconds_of_a_share()
            given_s = stage.share * self._weight_s
        del self._ahead[0]
        if stage.is_optional:
            left_s = sum(self._expected_s(other) or 0.0 for other in self._ahead)
            given_s = self._budget_s * (1 + _OVER) - self.elapsed_s - left_s
        self._given_s[stage.name] = self._given_s.get(stage.name, 0.0) + given_s
        start_s = self._clock()
        self._running = stage, start_s
        try:
            stage.run(given_s)
        finally:
            (stage, _), self._running = self._running, None
            self._done.append((stage, self._clock() - start_s))
        self._keep(stage, given_s)

    def _keep(self, stage: Stage, given_s: float) -> None:
        """Keeps what the stages of a key took, when the last of them is over."""
        took_s = self._done[-1][1]
        if stage.share:
            if took_s > given_s:
                self.durations.keep(stage.key, took_s - given_s)
        elif stage.key and all(stage.key != other.key for other in self._ahead):
            self.durations.keep(
                stage.key, sum(of_it_s for done, of_it_s in self._done if done.key == stage.key)
            )

    def _planned(self) -> list[Stage]:
        """Those ahead but for optional ones that take longer than the others with shares would have beside them."""
        if self._weight_s is not None or not any(stage.share for stage in self._ahead):
            return [stage for stage in self._ahead if stage.name not in self._left_out]
        room_s = self._room_s([stage for stage in self._ahead if not stage.is_optional])
        return [s for s in self._ahead if not s.is_optional or 2 * (s.seconds or 0.0) <= room_s]

    def _seconds_of_a_share(self) -> float:
        if self._weight_s is not None:
            return self._weight_s
        planned = self._planned()
        return self._room_s(planned) / sum(stage.share for stage in planned)

    def _room_s(self, stages: Sequence[Stage]) -> float:
        """Budget in seconds left for the shares besides these stages; at least a fifth of it or a second."""
        others_s = sum(self._expected_s(stage, 0.0) or 0.0 for stage in stages) + self._running_s
        least_s = max(_LEAST_SHARE * self._budget_s, min(_LEAST_S, self._budget_s))
        return max(self._budget_s - self.elapsed_s - others_s, least_s)

    def _expected_s(self, stage: Stage, weight_s: float | None = None) -> float | None:
        """The length of a stage, where a share of 1 has so many seconds."""
        if stage.seconds is None:
            return None
        if stage.share:
            return stage.seconds + stage.share * (
                self._seconds_of_a_share() if weight_s is None else weight_s
            )
        return stage.seconds * (self._pace if stage.key else 1.0)

    @property
    def _pace(self) -> float:
        """Ratio of actual to estimated time of the stages whose length is found."""
        done = [(s.seconds, took_s) for s, took_s in self._done if s.key and s.seconds and not s.share]
        thought_s = sum(thought for thought, _ in done)
        if thought_s < _ENOUGH_S:
            return 1.0
        return min(max(sum(took_s for _, took_s in done) / thought_s, _LEAST_PACE), _MOST_PACE)

    def _line(self) -> rich.text.Text:
        """Progress line for a terminal."""
        now = self._running
        if now is None:
            return rich.text.Text("")
        running = now[0]
        stages = [*(done for done, _ in self._done), running, *self._planned()]
        names = list(dict.fromkeys(stage.name for stage in stages))
        is_known = all(stage.seconds is not None for stage in (running, *self._planned()))
        left = f"{roughly(self.remaining_s, is_known)} left"
        number = names.index(running.name) + 1
        return rich.text.Text(f"{number} of {len(names)}: {running.name}, {left}", no_wrap=True)


def roughly(seconds: float, is_all: bool = True) -> str:
    """``"about 42 s"``, ``"less than a second"``; where it is not all of it, ``"at least 42 s"``."""
    if seconds < _UNDER_S:
        return "less than a second" if is_all else "a time not known"
    return f"{'about' if is_all else 'at least'} {about(seconds)}"


def about(seconds: float | None) -> str:
    """``"under 1 s"``, ``"42 s"``, ``"5 min"``; for None that it is not known."""
    if seconds is None:
        return "for a time not known"
    if seconds < _UNDER_S:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.0f} min"


def begun_s() -> float:
    """Start of the work that is waited for, on the clock of ``time.monotonic``; now if none was set."""
    told = _begun_s.get()
    return time.monotonic() if told is None else told


@contextlib.contextmanager
def begins_at(when_s: float) -> Iterator[None]:
    """Work that began then, on the clock of ``time.monotonic``."""
    token = _begun_s.set(when_s)
    try:
        yield
    finally:
        _begun_s.reset(token)


def process_start_s() -> float:
    """Start of this process, on the clock of ``time.monotonic``: importing takes seconds, which are waited."""
    fields = pathlib.Path("/proc/self/stat").read_text(encoding="utf8").rpartition(")")[2].split()
    since_boot_s = int(fields[_STAT_START_TIME]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s
    return time.monotonic() - max(age_s, 0.0)
