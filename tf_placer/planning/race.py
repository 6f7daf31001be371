"""Plans timed on the runtime, and raced with each other and with the program as it is."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tf_placer.base import interrupt
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, UnplacedFailed
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.fleet import FleetTiming
from tf_placer.planning.forecast import MEASURE, RACE, START
from tf_placer.planning.forms import Form
from tf_placer.planning.log import Log
from tf_placer.planning.outcome import AS_IT_IS, IN_WORDS, Note, Outcome, Timed, with_race
from tf_placer.planning.search_request import Request
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.runtime.graph_program import GraphProgram
from tf_placer.runtime.timing import OtherLoad


@dataclasses.dataclass(frozen=True)
class Race:
    """A race of plans and of the program as it is."""

    samples: list[list[float]]  # turns of each plan, and last of the program as it is where it runs
    why_not_unplaced: str  # why it does not run; "" where it does
    load: float | None  # share of the CPUs that other processes took meanwhile; None where nobody knows
    timed_at_s: float  # when, in seconds since 1970

    def added(self, rows: Sequence[Timed], racing: Sequence[int]) -> list[Timed]:
        """The rows, the racing ones with their new times, and behind them the program as it is, where that runs."""
        if self.why_not_unplaced:
            return with_race(rows, racing, self.samples)
        return with_race([*rows, Timed(AS_IT_IS)], [*racing, len(rows)], self.samples)

    def verdict(self, plan: Timed) -> dict[Note, Any]:
        """Notes on a plan that raced beside the program as it is."""
        if self.why_not_unplaced:
            comparison = f"used because the function does not run unplaced ({self.why_not_unplaced})"
        else:
            comparison = f"{IN_WORDS[plan.is_clear is True]} than the unplaced function, on the whole machine"
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


def raced_anew(outcome: Outcome, timing: Callable[[Placement], RuntimeEvaluator]) -> Outcome:
    """The outcome with a new race of its plan, of those that had raced, and of the program as it is.

    Turns of another race are no times beside these: a row that does not take part has none any more.
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
        raced = race([rows[i] for i in racing], timing, 20)
    except RaceFailed as error:
        failed = f"the race failed ({error})"
        rows[position] = dataclasses.replace(rows[position], message=failed, is_clear=False)
        notes: dict[Note, Any] = {Note.BESIDE_UNPLACED: f"not raced beside the unplaced function ({error})"}
    else:
        rows = raced.added(rows, racing)
        notes = raced.verdict(rows[position])
    written = rows.pop(position)
    return dataclasses.replace(outcome, written=written, beside=tuple(rows)).noted(notes)


@dataclasses.dataclass
class Timing:
    """Live devices that time plans of a program, its batch whole or in parts."""

    whole: Form
    runtime: RuntimeEvaluator  # of the whole
    fleet: FleetTiming | None = None  # times plans on many machines, too
    in_parts: Form | None = None  # the same program with its batch in parts, once it has been put in parts

    def of(self, plan: Placement) -> RuntimeEvaluator:
        """What times a plan."""
        form = (self.in_parts or self.whole).of(plan)
        if form.split is None or form.item is None:
            return self.runtime
        return self.runtime.of_form(form.item, form.problem)


@contextlib.contextmanager
def workers(request: Request, whole: Form, log: Log, beside_unplaced: bool = True) -> Iterator[Timing]:
    """Workers on the devices, and the fleet, for as long as plans are timed.

    Raises InputError where the program cannot be timed, WorkerError where the workers do not start.
    """
    assert whole.item is not None  # it is timed
    with interrupt.stoppable(), contextlib.ExitStack() as stack:
        with log.phase(START):
            evaluator = RuntimeEvaluator(whole.item, whole.problem, as_it_is=request.source.as_it_is)
            timing = Timing(whole, stack.enter_context(evaluator))
            timing.runtime.start(beside_unplaced)
            if request.fleet is not None and request.folder is not None:
                fleet = stack.enter_context(open_fleet(request.fleet, request.cluster))
                timing.fleet = stack.enter_context(FleetTiming(fleet, whole.item, request.folder))
        yield timing


def timed(
    rows: Sequence[Timed], runtime: RuntimeEvaluator, log: Log, rounds: int = 20, confidence: float = 0.99
) -> tuple[list[Timed], Race | None]:
    """Rows with their times on live devices, the program as it is, and the race of those that ran.

    Rows without a plan stay as they are, and without rounds none race.
    """
    with log.phase(MEASURE) as seconds:
        runtime.limit.ends_in(seconds)
        planned = [i for i, row in enumerate(rows) if row.placement is not None]
        rows = list(rows)
        if planned:
            plans = [row.placement.decisions for row in rows if row.placement is not None]
            times = runtime.evaluate(Decisions.joined(plans).plain)
            for position, i in enumerate(planned):
                rows[i] = rows[i].measured(times, position)
    ran = [i for i in planned if rows[i].measured_s is not None]
    if not ran or not rounds:
        return rows, None
    with log.phase(RACE) as seconds:
        runtime.limit.ends_in(seconds)
        try:
            raced = race([rows[i] for i in ran], lambda _: runtime, rounds, confidence)
        except RaceFailed as error:
            why = f"timed by itself, because the race failed ({error})"
            for i in ran:
                rows[i] = dataclasses.replace(rows[i], message=why)
            return rows, None
        return raced.added(rows, ran), raced
