"""Log of a run: it announces phases with their lengths, times them, and gives each its share of a budget."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

import rich.console
import rich.live
import rich.text

from tf_placer.base.files import Durations
from tf_placer.base.quantities import HEARTBEAT

_BEFORE = "starting up"
_LEAST_PACE, _MOST_PACE, _ENOUGH_S = 0.5, 3.0, 1.0
_LEAST_SHARE = 0.2  # of what is left: for searches, however long phases take that can be cut
_LEAST_OF_BUDGET = 0.03  # for all searches together where no time is left: each makes a round in any case
_MUCH, _MUCH_S = 1.2, 5.0  # more than was thought
_UNDER_S, _MINUTES_FROM_S = 0.95, 100.0
_REFRESHES = 2  # of a terminal, a second
_STAT_START_TIME = 19  # of /proc/PID/stat, counted behind the name of the program
_begun_s: contextvars.ContextVar[float | None] = contextvars.ContextVar("begun_s", default=None)


@dataclasses.dataclass(frozen=True, eq=False)
class Phase:
    """A part of some work. Phases of one name are parts of the same, and shown as one."""

    name: str  # "building the graph"
    # Expected length, of a phase with a share what it takes beyond that; None where it is unknown.
    seconds: float | None = 0.0
    # Its length is kept under this for the next time, added up over phases of one key; "" where it is decided and not
    # found.
    key: str = ""
    share: float = 0.0  # weight among the phases that share what the others leave of the budget
    is_cut: bool = False  # it ends by the seconds that it has, so that in need searches get some of its time
    is_optional: bool = False  # it is planned only where those with shares have no less time than it
    is_once: bool = False  # it is done once on this machine, and not in the budget


@dataclasses.dataclass(eq=False)
class Log:
    """Announces, shows and times the phases of some work, and shares a budget among them.

        with Log(console, budget_s=60.0) as log:
            log.announce([log.expected("reading", 8.0, "reading x"), Phase("searching", share=1.0)])
            with log.phase("reading"):
                item = read()
            with log.phase("searching") as seconds:
                search(item, seconds)

    A terminal shows the phase that runs and what is left, anything else a line at least every ten seconds. How long
    phases took is kept for the next time.
    """

    console: rich.console.Console
    budget_s: float = math.inf  # of all but what is done once; infinite where no phase has a share
    durations: Durations = dataclasses.field(default_factory=Durations)  # where lengths are kept
    clock: Callable[[], float] = time.monotonic
    is_equal: bool = False  # shares are of what is left when the first of them begins

    def __post_init__(self) -> None:
        # It begins at ``begun_s()``, which may be before now.
        self._begun_s = begun_s() if self.clock is time.monotonic else self.clock()
        self._ahead: list[Phase] = []
        self._running: tuple[Phase, float] | None = None  # since when
        self._done: list[tuple[Phase, float, float]] = []  # what each had, and took
        # Of all phases with shares, fixed when the first of them begins, and seconds of a share of 1 of the last one.
        self._shares, self._weight_s = 0.0, math.inf
        self._cut: set[str] = set()  # keys of phases that would have taken longer
        self._is_announced = self._is_empty = False
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> Log:
        self._resources.enter_context(HEARTBEAT.showing(self.console, lambda: self._line().plain))
        if self.console.is_terminal:
            live = rich.live.Live(
                console=self.console, get_renderable=self._line, transient=True, refresh_per_second=_REFRESHES
            )
            self._resources.enter_context(live)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._resources.close()
        is_told = kind is None and self._is_announced and math.isfinite(self.budget_s)
        if is_told and self._once_s >= _ENOUGH_S:
            took_s = self.elapsed_s - self._once_s
            self.tell(f"That took {about(took_s)}, and {about(self._once_s)} for what is done once.")

    def expected(self, name: str, rule_s: float, key: str, **flags: bool) -> Phase:
        """A phase whose length is found: what was kept under a key, or else by a rule."""
        return Phase(name, self.durations.of(key, rule_s), key, **flags)

    def is_ahead(self, name: str) -> bool:
        """True if a phase of a name is still to come."""
        return any(phase.name == name for phase in self._ahead)

    def expect(self, phases: Sequence[Phase]) -> None:
        """Replaces all phases ahead; a much longer wait than announced is reported."""
        before_s = self.remaining_s
        self._ahead = list(phases)
        after_s = self.remaining_s
        if self._is_announced and after_s > before_s * _MUCH + _MUCH_S:
            self.tell(f"Slower than expected: {roughly(after_s)} left.")

    def announce(self, phases: Sequence[Phase], note: str = "") -> None:
        """Says in a line all that will be done, and how long that takes with what went by before: imports, say."""
        self._ahead, self._is_announced = list(phases), True
        in_budget: dict[str, float | None] = {}
        once: dict[str, float | None] = {}
        if self.elapsed_s >= _ENOUGH_S:
            in_budget[_BEFORE] = self.elapsed_s
        for phase, this_s in self._planned()[0]:
            lengths = once if phase.is_once else in_budget
            before_s = lengths.get(phase.name, 0.0)
            lengths[phase.name] = None if this_s is None or before_s is None else before_s + this_s
        lengths_s = [seconds for seconds in in_budget.values() if seconds is not None]
        total = roughly(sum(lengths_s), len(lengths_s) == len(in_budget))
        listed, listed_once = (
            ", ".join(f"{name} {about(seconds)}" for name, seconds in lengths.items())
            for lengths in (in_budget, once)
        )
        line = f"This takes {total}: {listed}." if total else "Duration unknown."
        also = f"Once, and not in that: {listed_once}." if once else ""
        self.tell(" ".join(sentence for sentence in (line, also, note) if sentence))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[float]:
        """Runs the next phase of a name; phases ahead are left out.

        Yields the seconds that it may take: its share of the budget, or the time after which what must follow has to
        begin; infinite without a budget.
        """
        position = next((i for i, phase in enumerate(self._ahead) if phase.name == name), -1)
        phase = Phase(name) if position < 0 else self._ahead[position]
        rest = self._ahead[position + 1 :]
        if phase.share:
            self._ahead = [phase, *rest]
            self._shares = self._shares or sum(phase_ahead.share for phase_ahead in self._ahead)
            self._weight_s = self._planned()[1]
            least_s = _LEAST_OF_BUDGET * self.budget_s / self._shares
            given_s = phase.share * max(self._weight_s, least_s)
        self._ahead = rest
        if not phase.share:
            given_s = self.left_s
        start_s, self._is_empty = self.clock(), False
        self._running = phase, start_s
        is_over = False
        try:
            yield given_s
            is_over = True
        finally:
            (corrected, _), self._running = self._running, None
            self._done.append((corrected, given_s, self.clock() - start_s))
            if is_over and not self._is_empty:
                self._keep(phase, *self._done[-1])

    def _keep(self, phase: Phase, corrected: Phase, given_s: float, took_s: float) -> None:
        if phase.is_cut and took_s >= given_s:
            self._cut.add(phase.key)
        if not phase.key:
            return
        if phase.share:
            if took_s > given_s or self.durations.of(phase.key):
                self.durations.keep(phase.key, max(took_s - given_s, 0.0))
        elif corrected is not phase:  # what was announced within it is done once; it takes the rest each time
            self.durations.keep(phase.key, max(took_s - (corrected.seconds or 0.0), 0.0))
        elif all(phase.key != phase_ahead.key for phase_ahead in self._ahead):
            of_key_s = sum(took for done, _, took in self._done if done.key == phase.key)
            least_s = self.durations.of(phase.key, 0.0) if phase.key in self._cut else 0.0
            self.durations.keep(phase.key, max(of_key_s, least_s))

    def tell(self, line: str) -> None:
        """Says a line, in which brackets are no markup."""
        HEARTBEAT.said()
        self.console.print(rich.text.Text(line), soft_wrap=True)

    def correct(self, seconds: float, is_once: bool) -> None:
        """Corrects the length of the running phase, and whether it is in the budget."""
        assert self._running is not None  # it says so itself
        phase, since_s = self._running
        self._running = dataclasses.replace(phase, seconds=seconds, is_once=is_once), since_s

    def leave_out(self) -> None:
        """Notes that the running phase does nothing, so that its length says nothing."""
        self._is_empty = True

    def had_s(self, name: str) -> tuple[float, float]:
        """Seconds that the phases of a name had, and took, so far."""
        done = [(given_s, took_s) for phase, given_s, took_s in self._done if phase.name == name]
        return sum(given_s for given_s, _ in done), sum(took_s for _, took_s in done)

    @property
    def elapsed_s(self) -> float:
        """Since the phase began."""
        return self.clock() - self._begun_s

    @property
    def remaining_s(self) -> float:
        """Seconds that phases of known length still take, about, longer if they were so far; never negative."""
        return sum(length_s or 0.0 for _, length_s in self._planned()[0]) + self._running_s

    @property
    def left_s(self) -> float:
        """Seconds of the budget before what must follow the running phase has to begin, never negative."""
        must = [phase for phase in self._ahead if not (phase.is_cut or phase.is_optional or phase.is_once)]
        return max(self.until_s - sum(map(self._unlimited_s, must)), 0.0)

    @property
    def until_s(self) -> float:
        """Seconds until the budget is used up, negative from then on."""
        return self.budget_s + self._once_s - self.elapsed_s

    @property
    def _once_s(self) -> float:
        """Seconds that were not in the budget so far."""
        done_s = sum(took_s for phase, _, took_s in self._done if phase.is_once)
        running = self._running
        return done_s + (self.clock() - running[1] if running is not None and running[0].is_once else 0.0)

    @property
    def _running_s(self) -> float:
        running = self._running  # read once: other threads show what is left
        if running is None:
            return 0.0
        phase, since_s = running
        length_s = self._unlimited_s(phase) + (phase.share * self._weight_s if phase.share else 0.0)
        return max(length_s - (self.clock() - since_s), 0.0)

    def _planned(self) -> tuple[list[tuple[Phase, float | None]], float]:
        """Phases ahead with their lengths as the budget stands, None where unknown; and seconds of a share of 1.

        Left out are optional ones that take longer than those with shares would have beside them. In need, what can be
        cut leaves the shares some time. Where shares are equal they grow no more, though others took less time.
        """
        running = self._running
        running_s = 0.0 if running is None or running[0].is_once else self._running_s
        left_s, shares = max(self.left_s - running_s, 0.0), sum(phase.share for phase in self._ahead)
        cut_s = sum(self._unlimited_s(phase) for phase in self._ahead if phase.is_cut)
        least_s, for_cut = _LEAST_SHARE * left_s, 1 - _LEAST_SHARE if shares else 1.0
        most_s = max(left_s - cut_s, least_s) / 2 if shares else math.inf
        planned = [p for p in self._ahead if not p.is_optional or (p.seconds or 0.0) <= most_s]
        optional_s = sum(phase.seconds or 0.0 for phase in planned if phase.is_optional)
        weight_s = max(left_s - cut_s - optional_s, least_s) / shares if shares else math.inf
        weight_s = min(self._weight_s, weight_s) if self.is_equal else weight_s
        lengths: list[tuple[Phase, float | None]] = []
        for phase in planned:
            length_s = self._unlimited_s(phase)
            if phase.share:
                length_s += phase.share * weight_s
            elif phase.is_cut and cut_s:
                length_s *= min(1.0, for_cut * left_s / cut_s)
            lengths.append((phase, None if phase.seconds is None else length_s))
        return lengths, weight_s

    def _unlimited_s(self, phase: Phase) -> float:
        """The length of a phase but for its share, were there no budget.

        Where it is found, that is in the ratio of actual to estimated time of those that are done and were not cut.
        """
        expected_s = done_s = 0.0
        for done, _, took_s in self._done if phase.key and not phase.share else ():
            if done.key and done.seconds and not (done.share or done.is_cut or done.is_once):
                expected_s, done_s = expected_s + done.seconds, done_s + took_s
        pace = min(max(done_s / expected_s, _LEAST_PACE), _MOST_PACE) if expected_s >= _ENOUGH_S else 1.0
        return (phase.seconds or 0.0) * pace

    def _line(self) -> rich.text.Text:
        now = self._running
        if now is None:
            return rich.text.Text("")
        running = now[0]
        phases = [running, *(phase for phase, _ in self._planned()[0])]
        names = list(dict.fromkeys(phase.name for phase in (*(done for done, *_ in self._done), *phases)))
        is_known = all(phase.seconds is not None for phase in phases)
        wait = roughly(self.remaining_s, is_known)
        text = f"{names.index(running.name) + 1} of {len(names)}: {running.name}{f', {wait} left' if wait else ''}"
        return rich.text.Text(text, no_wrap=True)


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
