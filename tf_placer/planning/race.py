"""Plans raced on the runtime with each other and with the program as it is; stages that time them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from tf_placer.base.arguments import InputError
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, UnplacedFailed
from tf_placer.planning.outcome import AS_IT_IS, Note, Outcome, Timed, in_words, with_race
from tf_placer.planning.road import MEASURE, RACE, Road
from tf_placer.planning.stages import Stage
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.runtime.graph_program import GraphProgram
from tf_placer.runtime.timing import OtherLoad
from tf_placer.workers.local_workers import WorkerError


@dataclasses.dataclass(frozen=True)
class Race:
    """A race of plans and of the program as it is.

    Attributes:
      samples: turns of each plan, and last of the program as it is where it runs.
      why_not_unplaced: why it does not run; "" where it does.
      load: share of the CPUs that other processes took meanwhile; None where nobody knows.
      timed_at_s: when, in seconds since 1970.
    """

    samples: list[list[float]]
    why_not_unplaced: str
    load: float | None
    timed_at_s: float

    def added(self, rows: Sequence[Timed], racing: Sequence[int]) -> list[Timed]:
        """The rows with the times of the race, and behind them that of the program as it is, where it runs.

        Args:
          rows: those that raced and others.
          racing: positions of those that raced.
        """
        if self.why_not_unplaced:
            return with_race(rows, racing, self.samples)
        return with_race([*rows, Timed(AS_IT_IS)], [*racing, len(rows)], self.samples)

    def verdict(self, plan: Timed) -> dict[Note, Any]:
        """Notes on a plan that raced beside the program as it is."""
        if self.why_not_unplaced:
            comparison = f"used because the function does not run as it is ({self.why_not_unplaced})"
        else:
            comparison = f"{in_words(plan.is_clear is True)} than the function as it is, on the whole machine"
        return {Note.BESIDE_UNPLACED: comparison, Note.LOAD: self.load, Note.TIMED_AT_S: self.timed_at_s}


def race(
    rows: Sequence[Timed],
    timing: Callable[[Placement], RuntimeEvaluator],
    rounds: int,
    confidence: float = 0.99,
) -> Race:
    """Races plans with each other and with the program as it is; without that where it does not run.

    Args:
      rows: at least one, all with plans: of the program with its batch whole, or in parts.
      timing: what times a plan of such a form.
      rounds, confidence: as ``RuntimeEvaluator.race_unplaced`` takes them.

    Raises:
      RaceFailed: one of the plans did not run to its end.
    """
    placements = [row.placement for row in rows if row.placement is not None]
    form = placements[0].problem.fingerprint
    mine = [i for i, placement in enumerate(placements) if placement.problem.fingerprint == form]
    of_other_forms = [i for i in range(len(placements)) if i not in mine]
    evaluator = timing(placements[0])
    plans = Decisions.joined([placements[i].decisions for i in mine]).plain

    def of_others(is_call: bool) -> list[GraphProgram]:
        return [timing(placements[i]).program(placements[i].decisions, is_call) for i in of_other_forms]

    load, why_not = OtherLoad(), ""
    try:
        samples = evaluator.race_unplaced(plans, rounds, confidence, of_others(is_call=True))
    except UnplacedFailed as error:
        why_not = str(error)
        samples = evaluator.race(plans, rounds, confidence, of_others(is_call=False))
    turns = dict(zip([*mine, *of_other_forms], samples, strict=False))
    behind = samples[len(placements) :]
    return Race([*(turns[i] for i in range(len(placements))), *behind], why_not, load.share, time.time())


def raced_anew(
    outcome: Outcome, timing: Callable[[Placement], RuntimeEvaluator], rounds: int = 20
) -> Outcome:
    """The outcome with a new race of its plan, of those that had raced, and of the program as it is.

    Turns of another race are no times beside these: a row that does not take part has none any more.

    Args:
      outcome: with a plan that has not raced with the others.
      timing: as ``race`` takes it.
      rounds: turns of each.
    """
    before = [row for row in outcome.candidates if not row.is_as_it_is]
    racing = [
        i
        for i, row in enumerate(before)
        if row.placement is not None and (row is outcome.written or row.is_single or row.raced_s is not None)
    ]
    untimed: dict[str, Any] = dict.fromkeys(("raced_s", "called_s", "spread_s", "is_clear"))
    rows = [dataclasses.replace(row, **untimed) for row in before]
    position = before.index(outcome.written)
    try:
        raced = race([rows[i] for i in racing], timing, rounds)
    except RaceFailed as error:
        failed = f"the race failed ({error})"
        rows[position] = dataclasses.replace(rows[position], message=failed, is_clear=False)
        notes: dict[Note, Any] = {Note.BESIDE_UNPLACED: f"not raced beside the function as it is ({error})"}
    else:
        rows = raced.added(rows, racing)
        notes = raced.verdict(rows[position])
    written = rows.pop(position)
    return dataclasses.replace(outcome, written=written, beside=tuple(rows)).noted(notes)


_TIMED_S, _RACED_S = 0.5, 1.5


class Measuring:
    """The stages that time some plans on a road's devices, and what came of them.

    Attributes:
      rows: those that were to be timed, with their times; behind them the program as it is, where they raced with it.
        Empty before, and where nothing was timed.
      race: of those that ran; None where there was none.
      race_failed: why there is none, though several run; "" else.
      why_not: why nothing was measured, where that is no error; "" where something was.
    """

    def __init__(
        self,
        road: Road,
        plans: Callable[[], Sequence[Timed]],
        rounds: int = 20,
        confidence: float = 0.99,
        may_fail: bool = False,
    ) -> None:
        """Begins.

        Args:
          road: its devices are live.
          plans: gives the rows to time; those without a plan stay as they are.
          rounds, confidence: as ``RuntimeEvaluator.race`` takes them; no rounds: they do not race.
          may_fail: Ctrl-C and workers that do not start or answer are no error: a search is not thrown away for them.
        """
        self._road, self._plans, self._rounds, self._confidence = road, plans, rounds, confidence
        self._may_fail = may_fail
        self.rows: list[Timed] = []
        self.race: Race | None = None
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

        starting = self._road.starting(meanwhile, beside_unplaced=bool(self._rounds))
        race = Stage(RACE, self._guarded(self._race), (count + 1) * _RACED_S, is_cut=True)
        racing = [race] if self._rounds else []
        return [
            Stage(starting.name, self._guarded(starting.run), starting.seconds, starting.key),
            Stage(MEASURE, self._guarded(self._measure), count * _TIMED_S, is_cut=True),
            *racing,
            Stage(racing[0].name if racing else MEASURE, self._guarded(end)),
        ]

    def _measure(self, seconds: float) -> None:
        self._road.runtime.limit.ends_in(seconds)
        rows = list(self._plans())
        plans = [row.placement.decisions for row in rows if row.placement is not None]
        if plans:
            times = self._road.runtime.evaluate(Decisions.joined(plans).plain)
            position = iter(range(len(plans)))
            self.rows = [
                row if row.placement is None else row.measured(times, next(position)) for row in rows
            ]

    def _race(self, seconds: float) -> None:
        self._road.runtime.limit.ends_in(seconds)
        ran = [i for i, row in enumerate(self.rows) if row.measured_s is not None]
        if not ran:
            return
        rows = [self.rows[i] for i in ran]
        try:
            self.race = race(rows, lambda _: self._road.runtime, self._rounds, self._confidence)
        except RaceFailed as error:
            self.race_failed = str(error)
            why = f"timed by itself, because the race failed ({error})"
            for i in ran:
                self.rows[i] = dataclasses.replace(self.rows[i], message=why)
        else:
            self.rows = self.race.added(self.rows, ran)

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
                self.rows, self.race = [], None
                self._road.stop()

        return guarded
