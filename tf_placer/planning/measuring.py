"""Plans timed on the runtime: each by itself first, which shows which run, and then those that do in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RaceFailed
from tf_placer.planning.road import MEASURE, RACE, Road
from tf_placer.planning.stages import Stage
from tf_placer.problem.decisions import Decisions
from tf_placer.runtime.timing import race_spreads_s, race_times_s
from tf_placer.workers.local_workers import WorkerError

_TIMED_S, _RACED_S = 0.5, 1.5


class Measuring:
    """The stages that time some plans on a road's devices, and what came of them.

    Attributes:
      measured: each by itself; None before, and where there is nothing.
      samples: row -> its step times in turn with the others.
      race_failed: why there are none, though several run; "" else.
      why_not: why nothing was measured, where that is no error; "" where something was.
    """

    def __init__(
        self,
        road: Road,
        plans: Callable[[], Decisions | None],
        rounds: int = 20,
        confidence: float = 0.99,
        may_fail: bool = False,
    ) -> None:
        """Begins.

        Args:
          road: its devices are live.
          plans: gives what to time; None where there is nothing.
          rounds, confidence: as ``RuntimeEvaluator.race`` takes them; no rounds: they do not race.
          may_fail: Ctrl-C and workers that do not start or answer are no error: a search is not thrown away for them.
        """
        self._road, self._plans, self._rounds, self._confidence = road, plans, rounds, confidence
        self._may_fail = may_fail
        self.measured: Measurement | None = None
        self.samples: dict[int, list[float]] = {}
        self.race_failed, self.why_not = "", ""

    def stages(
        self, count: int, then: Callable[[Measuring], object] = lambda _: None, meanwhile: str = ""
    ) -> list[Stage]:
        """Stages from the start of the workers to their end.

        Args:
          count: plans that will be timed.
          then: the last part, while the workers are still there.
          meanwhile: as ``Road.starting`` takes it.
        """

        def end(_: float) -> None:
            then(self)
            self._road.stop()

        starting = self._road.starting(meanwhile)
        racing = [Stage(RACE, self._guarded(self._race), count * _RACED_S)] if self._rounds else []
        return [
            Stage(starting.name, self._guarded(starting.run), starting.seconds, starting.key),
            Stage(MEASURE, self._guarded(self._measure), count * _TIMED_S),
            *racing,
            Stage(racing[0].name if racing else MEASURE, self._guarded(end)),
        ]

    def of(self, row: int) -> dict[str, Any]:
        """Those fields of a ``Timed`` that say how a plan ran; in turn with others where it ran so."""
        assert self.measured is not None  # asked for behind that stage
        status = Status(int(self.measured.status[row]))
        found: dict[str, Any] = {"status": status, "message": self.measured.messages[row]}
        if row in self.samples:
            samples, position = list(self.samples.values()), list(self.samples).index(row)
            times = {
                "measured_s": race_times_s(samples)[position],
                "spread_s": race_spreads_s(samples)[position],
                "is_raced": True,
            }
            return {**found, **times}
        if status == Status.OK and self.race_failed:
            found["message"] = f"timed by itself, because the race failed ({self.race_failed})"
        return {**found, "measured_s": float(self.measured.runtime_s[row]) if status == Status.OK else None}

    def _measure(self, _: float) -> None:
        plans = self._plans()
        self.measured = None if plans is None else self._road.runtime.evaluate(plans.plain)

    def _race(self, _: float) -> None:
        plans = self._plans()
        ran = [] if self.measured is None else np.flatnonzero(self.measured.status == Status.OK).tolist()
        if plans is None or len(ran) < 2:
            return
        racing = Decisions.joined([plans.row(row) for row in ran]).plain
        try:
            samples = self._road.runtime.race(racing, self._rounds, self._confidence)
        except RaceFailed as error:
            self.race_failed = str(error)
        else:
            self.samples = dict(zip(ran, samples, strict=True))

    def _guarded(self, run: Callable[[float], object]) -> Callable[[float], None]:
        def guarded(seconds: float) -> None:
            if self.why_not:
                return
            try:
                run(seconds)
            except (KeyboardInterrupt, WorkerError, InputError) as error:
                if not self._may_fail:
                    raise
                self.why_not = f"not measured: {str(error) or 'interrupted'}"
                self.measured, self.samples = None, {}
                self._road.stop()

        return guarded
