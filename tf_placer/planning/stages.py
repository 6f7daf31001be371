"""Stages of work: one list that is announced, run in order, timed, and given shares of a budget."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import rich.console
import rich.live
import rich.text

from tf_placer.base.files import Durations
from tf_placer.base.quantities import HEARTBEAT

_BEFORE = "starting up"
_LEAST_PACE, _MOST_PACE, _ENOUGH_S = 0.5, 3.0, 1.0
_LEAST_SHARE = 0.2  # of what is left: for searches, however long stages take that can be cut
_LEAST_OF_BUDGET = 0.03  # for all searches together where no time is left: each makes a round in any case
_MUCH, _MUCH_S = 1.2, 5.0  # more than was thought
_UNDER_S, _MINUTES_FROM_S = 0.95, 100.0
_REFRESHES_PER_S = 2
_STAT_START_TIME = 19  # of /proc/PID/stat, counted behind the name of the program
LEFT_OUT = "left out"
"""What a stage returns that did nothing, so that its length says nothing."""
T = TypeVar("T")
_begun_s: contextvars.ContextVar[float | None] = contextvars.ContextVar("begun_s", default=None)


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """A part of some work. Stages of one name are parts of the same, and shown as one.

    Attributes:
      name: "building the graph".
      run: does it, or returns ``LEFT_OUT``. Its argument is the seconds that it may take: its share of the budget, or
        the time after which what must follow has to begin; infinite without a budget.
      seconds: expected length, of a stage with a share what it takes beyond that; None where it is unknown.
      key: its length is kept under this for the next time, added up over stages of one key; "" where it is decided
        and not found.
      share: weight among the stages that share what the others leave of the budget.
      is_cut: it ends by the seconds that it has, so that in need searches get some of its time.
      is_optional: it is planned only where those with shares have no less time than it.
      is_once: it is done once on this machine, and not in the budget.
    """

    name: str
    run: Callable[[float], object]
    seconds: float | None = 0.0
    key: str = ""
    share: float = 0.0
    is_cut: bool = False
    is_optional: bool = False
    is_once: bool = False


class Stages:
    """Runs a list of stages; any of them may put others in the place of those that follow (``then``).

        stages = Stages(console, budget_s=60.0)
        stages.run([Stage("building the graph", build, 8.0, "building x"), Stage("searching", search, share=1.0)])

    A terminal shows the stage that runs and what is left, anything else a line at least every ten seconds. How long
    stages took is kept for the next time.
    """

    def __init__(
        self,
        console: rich.console.Console,
        budget_s: float = math.inf,
        durations: Durations | None = None,
        clock: Callable[[], float] = time.monotonic,
        is_equal: bool = False,
    ) -> None:
        """Begins at ``begun_s()``, which may be before now.

        Args:
          console: where lines go.
          budget_s: seconds of everything together but what is done once; infinite where no stage has a share of it.
          durations: where lengths are kept; the user's cache without.
          clock: seconds.
          is_equal: shares are of what there is when the first of them begins, so that equal ones are.
        """
        self._is_equal = is_equal
        self.console = console
        self.durations = durations or Durations()
        self._budget_s = budget_s
        self._clock = clock
        self._begun_s = begun_s() if clock is time.monotonic else clock()
        self._ahead: list[Stage] = []
        self._running: tuple[Stage, float] | None = None  # since when
        self._done: list[tuple[Stage, float]] = []  # what each took
        self._given_s: dict[str, float] = {}
        # Of all stages with shares, fixed when the first of them begins, and seconds of a share of 1 of the last one.
        self._shares, self._weight_s = 0.0, math.inf
        self._cut: set[str] = set()  # keys of stages that would have taken longer
        self._is_announced = False
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
            self._resources.enter_context(HEARTBEAT.showing(self.console, lambda: self._line().plain))
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
        if self._once_s >= _ENOUGH_S and self._is_announced and math.isfinite(self._budget_s):
            took_s = self.elapsed_s - self._once_s
            self.tell(f"That took {about(took_s)}, and {about(self._once_s)} for what is done once.")

    def kept(self, name: str, run: Callable[[float], object], rule_s: float, key: str, **more: bool) -> Stage:
        """A stage whose length is found: what was kept under a key, or else by a rule."""
        return Stage(name, run, self.durations.known(key, rule_s), key, **more)

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
        in_budget: dict[str, float | None] = {}
        once: dict[str, float | None] = {}
        if self.elapsed_s >= _ENOUGH_S:
            in_budget[_BEFORE] = self.elapsed_s
        for stage in self._planned():
            lengths = once if stage.is_once else in_budget
            this_s, before_s = self._expected_s(stage), lengths.get(stage.name, 0.0)
            lengths[stage.name] = None if this_s is None or before_s is None else before_s + this_s
        lengths_s = [seconds for seconds in in_budget.values() if seconds is not None]
        total = roughly(sum(lengths_s), len(lengths_s) == len(in_budget))
        line = f"This takes {total}: {_list(in_budget)}." if total else "Duration unknown."
        also = f"Once, and not in that: {_list(once)}." if once else ""
        self.tell(" ".join(sentence for sentence in (line, also, note) if sentence))

    def tell(self, line: str) -> None:
        """Says a line, in which brackets are no markup."""
        HEARTBEAT.said()
        self.console.print(rich.text.Text(line), soft_wrap=True)

    def expect(self, seconds: float, is_once: bool) -> None:
        """Corrects the length of the running stage, and whether it is in the budget."""
        assert self._running is not None  # it says so itself
        stage, since_s = self._running
        self._running = dataclasses.replace(stage, seconds=seconds, is_once=is_once), since_s

    def took_s(self, name: str) -> float | None:
        """Seconds that the stages of a name took so far; None where none ran."""
        return sum((of_it_s for stage, of_it_s in self._done if stage.name == name), 0.0) or None

    def given_s(self, name: str) -> float:
        """Seconds that the stages of a name had so far."""
        return self._given_s.get(name, 0.0)

    @property
    def elapsed_s(self) -> float:
        """Since it began."""
        return self._clock() - self._begun_s

    @property
    def remaining_s(self) -> float:
        """About how long the stages of known length still take, never negative.

        What is found rather than decided takes longer where it did so far.
        """
        return sum(self._expected_s(stage) or 0.0 for stage in self._planned()) + self._running_s

    @property
    def left_s(self) -> float:
        """Seconds of the budget before what must follow the running stage has to begin, never negative."""
        return max(self.until_s - sum(self._must_s(stage) for stage in self._ahead), 0.0)

    @property
    def until_s(self) -> float:
        """Seconds until the budget is used up, negative from then on."""
        return self._budget_s + self._once_s - self.elapsed_s

    @property
    def _once_s(self) -> float:
        """Seconds that were not in the budget so far."""
        done_s = sum(took_s for stage, took_s in self._done if stage.is_once)
        running = self._running
        return done_s + (self._clock() - running[1] if running is not None and running[0].is_once else 0.0)

    @property
    def _running_s(self) -> float:
        """Time left of the running stage."""
        running = self._running  # read once: other threads show what is left
        if running is None:
            return 0.0
        stage, since_s = running
        length_s = self._expected_s(stage) if stage.share else self._unlimited_s(stage)
        return max((length_s or 0.0) - (self._clock() - since_s), 0.0)

    def _run(self, stage: Stage) -> None:
        if stage.share:
            self._shares = self._shares or sum(stage_ahead.share for stage_ahead in self._ahead)
            self._weight_s = self._seconds_of_a_share()
            least_s = _LEAST_OF_BUDGET * self._budget_s / self._shares
            given_s = stage.share * max(self._weight_s, least_s)
        del self._ahead[0]
        if not stage.share:
            given_s = self.left_s
        self._given_s[stage.name] = self._given_s.get(stage.name, 0.0) + given_s
        start_s = self._clock()
        self._running = stage, start_s
        try:
            was_done = stage.run(given_s) is not LEFT_OUT
        finally:
            (corrected, _), self._running = self._running, None
            self._done.append((corrected, self._clock() - start_s))
        took_s = self._done[-1][1]
        if stage.is_cut and took_s >= given_s:
            self._cut.add(stage.key)
        if not stage.key or not was_done:
            return
        if stage.share:
            if took_s > given_s or self.durations.of(stage.key):
                self.durations.keep(stage.key, max(took_s - given_s, 0.0))
        elif corrected is not stage:  # what was announced within it is done once; it takes the rest each time
            self.durations.keep(stage.key, max(took_s - (corrected.seconds or 0.0), 0.0))
        elif all(stage.key != stage_ahead.key for stage_ahead in self._ahead):
            of_key_s = sum(of_it_s for done, of_it_s in self._done if done.key == stage.key)
            least_s = self.durations.known(stage.key, 0.0) if stage.key in self._cut else 0.0
            self.durations.keep(stage.key, max(of_key_s, least_s))

    def _planned(self) -> list[Stage]:
        """Those ahead but for optional ones that take longer than the others with shares would have beside them."""
        if not any(stage.share for stage in self._ahead):
            return self._ahead
        room_s = self._room_s([stage for stage in self._ahead if not stage.is_optional])
        return [s for s in self._ahead if not s.is_optional or 2 * (s.seconds or 0.0) <= room_s]

    def _seconds_of_a_share(self) -> float:
        """Of what is left; no more than before where they are equal, though others took less time."""
        shares = sum(stage.share for stage in self._ahead)
        weight_s = self._room_s(self._planned()) / shares
        return min(self._weight_s, weight_s) if self._is_equal else weight_s

    def _room_s(self, stages: Sequence[Stage]) -> float:
        """Seconds for the shares besides these stages; in need, those that can be cut leave them some."""
        left_s, cut_s = self._left_ahead_s, self._cut_s
        cut_s += sum(stage.seconds or 0.0 for stage in stages if stage.is_optional)
        return max(left_s - cut_s, _LEAST_SHARE * left_s)

    @property
    def _left_ahead_s(self) -> float:
        """What is left for stages ahead with a share and such that can be cut."""
        running = self._running
        running_s = 0.0 if running is None or running[0].is_once else self._running_s
        return max(self.left_s - running_s, 0.0)

    @property
    def _cut_s(self) -> float:
        """What stages ahead that can be cut would take."""
        return sum(self._unlimited_s(stage) for stage in self._ahead if stage.is_cut)

    def _must_s(self, stage: Stage) -> float:
        """What a stage takes of the budget in any case."""
        if stage.is_cut or stage.is_optional or stage.is_once:
            return 0.0
        return (stage.seconds or 0.0) * (self._pace if stage.key and not stage.share else 1.0)

    def _expected_s(self, stage: Stage) -> float | None:
        """The length of a stage as the budget stands."""
        if stage.seconds is None:
            return None
        if stage.share:
            is_ahead = any(stage_ahead is stage for stage_ahead in self._ahead)
            return stage.seconds + stage.share * (self._seconds_of_a_share() if is_ahead else self._weight_s)
        expected_s = self._unlimited_s(stage)
        if not stage.is_cut or not self._cut_s:
            return expected_s
        searching = _LEAST_SHARE if any(stage_ahead.share for stage_ahead in self._ahead) else 0.0
        return expected_s * min(1.0, (1 - searching) * self._left_ahead_s / self._cut_s)

    def _unlimited_s(self, stage: Stage) -> float:
        """The length of a stage without a share, were there no budget."""
        return (stage.seconds or 0.0) * (self._pace if stage.key else 1.0)

    @property
    def _pace(self) -> float:
        """Ratio of actual to estimated time of the stages whose length is found and was not cut."""
        pairs = [(s, took_s) for s, took_s in self._done if s.key and not (s.share or s.is_cut or s.is_once)]
        done = [(s.seconds, took_s) for s, took_s in pairs if s.seconds]
        thought_s = sum(thought for thought, _ in done)
        if thought_s < _ENOUGH_S:
            return 1.0
        return min(max(sum(took_s for _, took_s in done) / thought_s, _LEAST_PACE), _MOST_PACE)

    def _line(self) -> rich.text.Text:
        """Progress line."""
        now = self._running
        if now is None:
            return rich.text.Text("")
        running = now[0]
        stages = [*(done for done, _ in self._done), running, *self._planned()]
        names = list(dict.fromkeys(stage.name for stage in stages))
        is_known = all(stage.seconds is not None for stage in (running, *self._planned()))
        wait = roughly(self.remaining_s, is_known)
        text = f"{names.index(running.name) + 1} of {len(names)}: {running.name}{f', {wait} left' if wait else ''}"
        return rich.text.Text(text, no_wrap=True)


def _list(seconds_of_name: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {about(seconds)}" for name, seconds in seconds_of_name.items())


def roughly(seconds: float, is_all: bool = True) -> str:
    """``"about 42 s"``, ``"less than a second"``; where it is not all of it, ``"at least 42 s"``, or nothing."""
    if seconds < _UNDER_S:
        return "less than a second" if is_all else ""
    return f"{'about' if is_all else 'at least'} {about(seconds)}"


def about(seconds: float | None) -> str:
    """``"under 1 s"``, ``"42 s"``, ``"5 min"``; ``"unknown"`` for None."""
    if seconds is None:
        return "unknown"
    if seconds < _UNDER_S:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.0f} min"


def begun_s() -> float:
    """Start of the work that is waited for, on the clock of ``time.monotonic``; now if none was set."""
    start_s = _begun_s.get()
    return time.monotonic() if start_s is None else start_s


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
