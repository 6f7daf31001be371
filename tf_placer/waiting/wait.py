"""Work that somebody waits for: what it will do is said at its start, and then what is left."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType

import rich.console
import rich.live
import rich.text

from tf_placer.waiting.begun import begun_s
from tf_placer.waiting.durations import Durations
from tf_placer.waiting.work import Phase, Work, roughly

_BEFORE = "starting up"
_OVERDUE = 0.1  # what takes longer than was thought takes this share of what it took so far more
_LEAST_PACE, _MOST_PACE, _ENOUGH_S = 0.5, 3.0, 1.0
_LEAST_SHARE, _LEAST_S = 0.2, 1.0
_MUCH, _MUCH_S = 1.2, 5.0  # more than was thought
_REFRESHES_PER_S = 2


class Wait:
    """The phases of some work as they go by.

        with Wait(work, console) as wait:
            wait.announce()
            with wait.phase("building the graph"):
                ...

    A terminal shows the phase and what is left. How long phases took is kept for the next time, where all went well.
    """

    def __init__(
        self,
        work: Work,
        console: rich.console.Console,
        durations: Durations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins, or goes on with what ``begun_s`` says has begun.

        Args:
          work: what will be done.
          console: is told.
          durations: where lengths are kept; the user's cache without.
          clock: seconds.
        """
        self._work = work
        self._console = console
        self._durations = durations or Durations()
        self._clock = clock
        self._begun_s = begun_s() if clock is time.monotonic else clock()
        self._spent_s: dict[str, float] = {}
        self._running: tuple[str, float] | None = None  # phase, since when
        self._finished: set[str] = set()
        self._live = rich.live.Live(
            get_renderable=self._line,
            console=console,
            transient=True,
            refresh_per_second=_REFRESHES_PER_S,
            auto_refresh=console.is_terminal,
        )

    def __enter__(self) -> Wait:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if kind is not None:
            return
        for phase in self._work.phases:
            if phase.key and phase.name in self._spent_s:
                self._durations.keep(phase.key, self._spent_s[phase.name])

    @property
    def work(self) -> Work:
        """As it is thought of now."""
        return self._work

    @property
    def elapsed_s(self) -> float:
        """Since it began."""
        return self._clock() - self._begun_s

    def phase_of(self, name: str) -> Phase | None:
        """The phase of that name; with the time that it took, where it is finished. None where there is none."""
        for phase in self._work.phases:
            if phase.name == name:
                took_s = self._spent_s.get(name) if name in self._finished else None
                return phase if took_s is None else dataclasses.replace(phase, seconds=took_s)
        return None

    @property
    def remaining_s(self) -> float:
        """About how long the phases of known length still take, never negative.

        What is found rather than decided takes longer where it did so far, and what is overdue a little more.
        """
        return sum(self._left_s(phase) for phase in self._work.phases)

    def announce(self) -> None:
        """Says in a line what will be done, and how long that takes with what went by before: imports, say."""
        gone_s, work = self.elapsed_s, self._work
        if gone_s >= _ENOUGH_S:
            work = dataclasses.replace(work, phases=(Phase(_BEFORE, gone_s), *work.phases))
        self.tell(work.sentence())

    def tell(self, line: str) -> None:
        """Says a line, in which brackets are no markup."""
        self._console.print(rich.text.Text(line), soft_wrap=True)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Says better how long phases take, by name."""
        self._work = self._work.expecting(seconds)

    def replan(self, work: Work) -> None:
        """Other phases come than was thought; what is finished stays as it was, and a much longer wait is told."""
        before_s = self.remaining_s
        done = {phase.name: phase for phase in self._work.phases if phase.name in self._finished}
        self._work = dataclasses.replace(
            work, phases=tuple(done.get(phase.name, phase) for phase in work.phases)
        )
        after_s = self.remaining_s
        if after_s > before_s * _MUCH + _MUCH_S:
            self.tell(f"It is more than was thought: {roughly(after_s)} from here.")

    def for_searching(self, budget_s: float, searches: Collection[str]) -> float:
        """Seconds that searches have together, so that all is done ``budget_s`` after it began.

        However long the other phases take, it is a fifth of the budget or a second (of all there is, where that is
        less), so that something is found.

        Args:
          budget_s: of the whole.
          searches: names of their phases, which have not begun.
        """
        others_s = sum(self._left_s(phase) for phase in self._work.phases if phase.name not in searches)
        least_s = max(_LEAST_SHARE * budget_s, min(_LEAST_S, budget_s))
        return max(budget_s - self.elapsed_s - others_s, least_s)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Something of a phase is done; all before it are finished but those that take turns with it.

        Args:
          name: of the work.
        """
        names = [phase.name for phase in self._work.phases]
        position = names.index(name)
        begun = self._work.phases[position]
        for phase in self._work.phases[:position]:
            if not (phase.in_turn and begun.in_turn):
                self._finished.add(phase.name)
        start_s = self._clock()
        self._running = (name, start_s)
        try:
            yield
        finally:
            self._spent_s[name] = self._spent_s.get(name, 0.0) + self._clock() - start_s
            self._running = None
            if not begun.in_turn:
                self._finished.add(name)

    def _left_s(self, phase: Phase) -> float:
        if phase.name in self._finished or phase.seconds is None:
            return 0.0
        spent_s = self._so_far_s(phase.name)
        expected_s = phase.seconds * (self._pace if phase.key else 1.0)
        return max(expected_s - spent_s, _OVERDUE * spent_s)

    def _so_far_s(self, name: str) -> float:
        running = self._running
        now_s = self._clock() - running[1] if running is not None and running[0] == name else 0.0
        return self._spent_s.get(name, 0.0) + now_s

    @property
    def _pace(self) -> float:
        """How much longer finished phases took than was thought, of those whose length is found."""
        done = [
            (phase.seconds, self._spent_s[phase.name])
            for phase in self._work.phases
            if phase.key and phase.seconds and phase.name in self._finished and phase.name in self._spent_s
        ]
        thought_s = sum(thought for thought, _ in done)
        if thought_s < _ENOUGH_S:
            return 1.0
        return min(max(sum(took for _, took in done) / thought_s, _LEAST_PACE), _MOST_PACE)

    def _line(self) -> rich.text.Text:
        """Of a terminal."""
        running = self._running
        if running is None:
            return rich.text.Text("")
        names = [phase.name for phase in self._work.phases]
        known = all(phase.seconds is not None or phase.name in self._finished for phase in self._work.phases)
        left = f"{roughly(self.remaining_s, known)} left"
        return rich.text.Text(
            f"{names.index(running[0]) + 1} of {len(names)}: {running[0]}, {left}", no_wrap=True
        )
