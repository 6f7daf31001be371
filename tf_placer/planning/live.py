"""Plans on live devices: timed, raced, and searched (simulate, measure the best, refit, search again, race)."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tf_placer.base import interrupt
from tf_placer.calibration.refit import Correction, refit
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, UnplacedFailed
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.fleet import FleetTiming
from tf_placer.planning.forecast import (
    CONSTRUCTIVE_PLANS,
    MEASURE,
    RACE,
    SPLIT_STAGE,
    LiveConfig,
    config_within,
    constructive,
    searchers,
    searchers_in,
    searching,
)
from tf_placer.planning.forecast import START as STARTING
from tf_placer.planning.forms import Form
from tf_placer.planning.log import Log
from tf_placer.planning.outcome import (
    AS_IT_IS,
    CONSTRUCTED,
    DATA_PARALLEL,
    IN_WORDS,
    SINGLE,
    SPLIT,
    Note,
    Outcome,
    Timed,
    single_rows,
    with_race,
)
from tf_placer.planning.search_request import LEAST_S, Request
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.graph_program import GraphProgram
from tf_placer.runtime.timing import TELLING, OtherLoad, clearly_slower
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, PLAIN, Budget
from tf_placer.search.recorder import ConsoleProgress, SearchResult
from tf_placer.search.round import Starts
from tf_placer.search.search import NothingFits, Start, evaluate_given, search
from tf_placer.workers.local_workers import UnreachableServer, WorkerError

START = "start"  # what proposed a plan that was there before the search
_FROM = 2  # plans in parts that a search begins at: neither leads further everywhere

MakeParts = Callable[[], Form | str]
"""Gives the program with its batch in parts, or one clause that says why there is none."""


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
        with log.phase(STARTING):
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


def search_live(
    request: Request,
    timing: Timing,
    log: Log,
    config: LiveConfig | None = None,
    start: Placement | None = None,
    make_parts: MakeParts | None = None,
) -> Outcome:
    """Searches on the calibrated simulator and lets the runtime have the last word.

    A search exploits the errors of its simulator, so: search, measure, refit, search again; the last time from the best
    measured plan of a method that improves plans, before that anew, because a climb stays where it is stuck. After each
    search of a method that is not the default a plain one (``Role.PLAIN``) gets the same budget, and in the end random
    search as many evaluations as the last, in no more time. All race, and so does the program as it is. Measuring is
    not in the budget of searches. Ctrl-C skips what is left and keeps what was measured.

    On a fleet the best plans of constructive methods are measured, too, since several at once take no longer than one.
    This machine races all the same: turns are of one machine.

    Args:
      request: its budget is of all of the method's searches together, its seed of the first; each has the next.
      config: how to spend the time; by default what the budget allows.
      start: a plan of this problem, or of the program in parts, that was found before: it is measured and raced
        beside those that are found, and the last search goes on from it if it is the best so far.
      make_parts: gives the program with its batch in parts, profiled, or why there is none. After the searches of the
        whole the method has as many among its plans, each from the best one that was measured, of which the first are
        data parallelism and the best searched plan of the whole with all copies together. All race.

    Returns:
      What it recommends as ``written``: the fastest in the race, or the best single device where no plan is clearly
      faster than that. Beside it the best single device, the best of the method and of those that searched beside it.

    Raises:
      NothingFits: nothing ran that was measured.
      WorkerError, UnreachableServer: the workers cannot be started or found, and nothing was measured before.
      KeyboardInterrupt: Ctrl-C before anything was measured.
    """
    live = _LiveSearch(request, timing, log, config or config_within(request, timing.whole), start)
    with interrupt.stoppable():
        live.run(make_parts)
    return live.outcome()


def _decisions(trial: Timed) -> Decisions:
    assert trial.placement is not None, "every trial has a plan"
    return trial.placement.decisions


def _standing(trial: Timed) -> tuple[bool, float]:
    """Sorts trials that ran: a time in the race was taken beside the others' and counts more."""
    assert trial.measured_s is not None, "it ran"
    return trial.raced_s is None, trial.raced_s or trial.measured_s


def _as_simulated(trial: Timed, problem: Problem, interrupted: bool) -> Timed:
    """A trial with the search that the fitted simulator makes of it; raises NothingFits where it does not fit there."""
    result = evaluate_given(problem, _decisions(trial), trial.name)
    search = dataclasses.replace(
        result,
        evaluations=trial.evaluations or 1,
        search_s=trial.search_s,
        found_by=trial.found_by,
        interrupted=interrupted,
    )
    names = ("measured_s", "raced_s", "spread_s", "status", "message", "is_clear")
    measured = {name: getattr(trial, name) for name in names}
    return Timed.of_search(trial.name, search, **measured)


class _Measured:
    """A form of the program with what races its plans, what times one or several at once, and its correction."""

    def __init__(self, form: Form, evaluator: RuntimeEvaluator, timing: Evaluator | None = None) -> None:
        self.form, self.problem = form, form.problem
        self.evaluator, self.timing = evaluator, timing or evaluator
        self.correction = Correction()  # of the simulator, by all of the form's plans that ran


class _LiveSearch:
    """What a live search has measured, and the simulators fitted to that."""

    def __init__(
        self, request: Request, timing: Timing, log: Log, config: LiveConfig, start: Placement | None
    ) -> None:
        self._request, self._method, self._timing, self._log = request, request.method, timing, log
        self._config, self._start = config, start
        self._forms = [_Measured(timing.whole, timing.runtime)]
        self._why_not_split = ""
        self._trials: list[Timed] = []
        self._searches: list[tuple[str, SearchResult]] = []  # with the name that its plan has in tables
        # Method -> its last turn, and what it found.
        self._turn_of: dict[str, tuple[int, SearchResult | None]] = {}
        self._samples: dict[int, list[float]] = {}  # trial -> its step times in the race
        self._race: Race | None = None
        self._as_it_is: tuple[Timed, ...] = ()
        self._is_interrupted, self._why = False, ""

    def run(self, make_parts: MakeParts | None) -> None:
        """Measures, searches and races, until Ctrl-C or a failure of the runtime ends it.

        Raises WorkerError or UnreachableServer where nothing was measured before.
        """
        try:
            with self._phase(MEASURE):
                self._measure_what_is_there()
            for turn in range(self._config.searches):
                for name in searchers_in(self._request, self._config, turn):
                    self._search_whole(name, turn)
            if make_parts is not None and searchers(self._method) and not self._is_interrupted:
                self._search_parts(make_parts)
            with self._phase(RACE):
                self._race_best()
        except KeyboardInterrupt:
            self._is_interrupted, self._why = True, "interrupted before the race"
        except RaceFailed as error:
            self._why = f"the race failed ({error})"
        except (WorkerError, UnreachableServer) as error:
            if not self._ran():
                raise
            self._why = f"nothing more could be measured ({error})"

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[float]:
        """A part of the search; measuring and racing end with its seconds, but one plan is measured in any case."""
        with self._log.phase(name) as seconds:
            self._timing.runtime.limit.ends_in(seconds)
            interrupt.check()
            yield seconds

    def _measure_what_is_there(self) -> None:
        (whole,), fleet, problem = self._forms, self._timing.fleet, self._timing.whole.problem
        rows = single_rows(problem, evaluations=1)
        if fleet is not None:
            planners = [methods.find(name) for name in constructive(CONTROL)]
            starts = Starts(problem, SimulatedEvaluator(problem), planners)
            whole.timing = fleet.whole(problem, whole.evaluator, Decisions(starts.plans[:1]))
            best = list(zip(starts.plans, starts.made_by, strict=True))[: CONSTRUCTIVE_PLANS * fleet.hosts]
            rows += [
                Timed(CONSTRUCTED, Placement(problem, row), evaluations=1, found_by=method)
                for row, method in best
                if method != SINGLE
            ]
        self._measure(*rows)
        self._measure_start(whole)

    def _measure_start(self, form: _Measured) -> None:
        """Measures the plan that was there before, if it is one of this form."""
        if self._start is not None and form.form.has(self._start) and not self._is_known(self._start):
            self._measure(Timed(START, self._start, evaluations=1))

    def _search_whole(self, name: str, turn: int) -> None:
        """Searches, anew or in the last turn from the method's best; after Ctrl-C in a search no other begins."""
        own_turn, own_search = self._turn_of.get(self._method, (turn, None))
        if self._is_interrupted or (name != self._method and (own_search is None or own_turn != turn)):
            return
        start = None
        if turn == self._config.searches - 1 and methods.find(name).uses_start:
            fastest = (self._trials[i] for i in self._ran() if self._trials[i].name in (name, START))
            start = next((trial.placement for trial in fastest), None)
        result = self._search(self._forms[0], name, name, turn, name, start, own_search)
        self._turn_of[name] = turn, result

    def _search_parts(self, make_parts: MakeParts) -> None:
        """Puts the batch in parts, where it can be, and searches among its plans."""
        with self._phase(SPLIT_STAGE) as seconds:
            form = make_parts() if seconds else ""
            if not form:
                self._log.leave_out()
        if isinstance(form, str):
            self._why_not_split = f"The batch is not split: {form}." if form else ""
            return
        assert form.item is not None  # it was split
        evaluator, timing = self._timing.runtime.of_form(form.item, form.problem), None
        if self._timing.fleet is not None:
            data_parallel = form.data_parallel.decisions
            timing = self._timing.fleet.of_form(form.item, form.problem, evaluator, data_parallel)
        parts = _Measured(form, evaluator, timing)
        self._forms.append(parts)
        with self._phase(MEASURE):
            # Data parallelism, and the best plan of the whole with all copies together.
            self._measure(Timed(DATA_PARALLEL, form.data_parallel, evaluations=1))
            ran = [self._trials[i] for i in self._ran()]
            whole = [
                trial for trial in ran if self._timing.whole.has(trial.placement) and not trial.is_single
            ]
            if whole and whole[0].placement is not None:
                together = form.lift(whole[0].placement)
                if not self._is_known(together):
                    self._measure(Timed(SPLIT, together, evaluations=1, found_by=whole[0].found_by))
            self._measure_start(parts)
        for turn in range(self._config.searches):
            if self._is_interrupted:
                return
            trials = [self._trials[i].placement for i in self._ran()]
            of_form = [plan for plan in trials if plan is not None and form.has(plan)]
            start = of_form[:_FROM] if of_form and methods.find(self._method).uses_start else None
            title = f"{self._method}, the batch in {form.parts} parts"
            self._search(parts, SPLIT, self._method, turn, title, start)

    def _search(
        self,
        form: _Measured,
        name: str,
        method: str,
        turn: int,
        title: str,
        start: Start | None,
        own_search: SearchResult | None = None,
    ) -> SearchResult | None:
        """Searches among plans of a form, and measures the best if new; None where nothing fits.

        ``name`` is that of its plan in tables, ``title`` is shown meanwhile; ``own_search`` is the last one of the
        method that was asked for, which random search does not exceed.
        """
        request, proposed = self._request, None
        with self._phase(searching(method)) as seconds:
            seconds = request.control_s(seconds) if method == CONTROL != self._method else seconds
            share = request.budget.share(self._config.searches)
            budget = Budget(min(share.seconds, max(seconds, LEAST_S)), share.evaluations)
            if own_search is not None and method == CONTROL:
                budget = budget.capped(own_search.evaluations)
            title = f"{title}, search {turn + 1} of {self._config.searches} on {request.cluster.name}"
            try:
                result = search(
                    form.correction.apply(form.problem),
                    method,
                    budget,
                    seed=request.seed + turn,
                    progress=ConsoleProgress(title, budget, self._log.console),
                    start=start,
                    config=request.settings.get(method),
                )
            except NothingFits:
                return None
            self._searches.append((name, result))
            self._is_interrupted = result.interrupted
            plan = Placement.from_decisions(form.problem, result.placement.decisions)
            if not self._is_known(plan):
                fields = {field: getattr(result, field) for field in ("found_by", "evaluations", "search_s")}
                proposed = Timed(name, plan, **fields)
        with self._phase(MEASURE):
            if proposed is not None:
                self._measure(proposed)
        return result

    def _is_known(self, plan: Placement) -> bool:
        return any(self._is_same(trial, plan) for trial in self._trials)

    def _is_same(self, trial: Timed, plan: Placement) -> bool:
        form = self._form_of(trial)
        if not form.form.has(plan):
            return False
        return _decisions(trial).digest(0, form.problem) == plan.decisions.digest(0, form.problem)

    def _form_of(self, trial: Timed) -> _Measured:
        return next(form for form in self._forms if form.form.has(trial.placement))

    def _measure(self, *trials: Timed) -> None:
        """Measures plans of one form, on a fleet at once; corrects the simulator of each form by its plans that ran."""
        form = self._form_of(trials[0])
        for batch in [trials] if self._timing.fleet is not None else [(trial,) for trial in trials]:
            if form.evaluator.limit.is_over and self._ran():
                return
            plans = Decisions.joined([_decisions(trial) for trial in batch])
            times = form.timing.evaluate(plans.plain)
            self._trials += [trial.measured(times, i) for i, trial in enumerate(batch)]
            for fitted in self._forms:
                ran = [i for i in self._ran() if fitted.form.has(self._trials[i].placement)]
                if ran:
                    plans = Decisions.joined([_decisions(self._trials[i]) for i in ran])
                    times_s = np.array([self._trials[i].measured_s for i in ran])
                    fitted.correction = refit(fitted.problem, plans, times_s)

    def _ran(self) -> list[int]:
        """Positions of the trials that ran, those of the race before the others, the fastest first."""
        ran = [i for i, trial in enumerate(self._trials) if trial.measured_s is not None]
        return sorted(ran, key=lambda i: _standing(self._trials[i]))

    def _race_best(self) -> None:
        """Races the best single device, the best plans and the program as it is; the race has the last word.

        The simulator is fitted to what plans took by themselves: a turn of the race is a call, whose inputs and outputs
        are sent, and the simulator knows nothing of these.
        """
        ran = self._ran()
        singles = [i for i in ran if self._trials[i].is_single][:1]
        plans = [i for i in ran if not self._trials[i].is_single]
        best_of_each = {self._trials[i].name: i for i in reversed(plans)}
        racers = list(dict.fromkeys([*singles, *plans[: self._config.finalists], *best_of_each.values()]))
        # Those in parts come last.
        racers.sort(key=lambda i: not self._timing.whole.has(self._trials[i].placement))
        if not racers:
            return
        evaluators = {form.problem.fingerprint: form.evaluator for form in self._forms}
        rows = [self._trials[i] for i in racers]
        self._race = race(rows, lambda plan: evaluators[plan.problem.fingerprint], self._config.rounds)
        count = len(self._trials)
        raced = self._race.added(self._trials, racers)
        self._trials, self._as_it_is = raced[:count], tuple(raced[count:])
        self._samples = dict(zip(racers, self._race.samples, strict=False))

    def outcome(self) -> Outcome:
        """Outcome: the recommended plan and the best plan of each method.

        Raises:
          NothingFits: nothing ran, or what is recommended does not fit in memory as the fitted simulator counts it.
          KeyboardInterrupt: Ctrl-C before anything did.
        """
        ran = self._ran()
        if not ran and self._is_interrupted:
            raise KeyboardInterrupt
        if not ran:
            problem, refused = self._timing.whole.problem, self._trials[0]
            raise NothingFits(
                f"no placement of {problem.name!r} ran on cluster {problem.cluster.name!r}; the first: "
                f"{refused.status.name}: {refused.message}"
            )
        corrected = {form: form.correction.apply(form.problem) for form in self._forms}
        for form, problem in corrected.items():
            of_form = [i for i, trial in enumerate(self._trials) if form.form.has(trial.placement)]
            if of_form:
                plans = Decisions.joined([_decisions(self._trials[i]) for i in of_form])
                runtime_s = SimulatedEvaluator(problem).evaluate(plans).runtime_s
                times_s = (float(seconds) if np.isfinite(seconds) else None for seconds in runtime_s)
                for i, seconds in zip(of_form, times_s, strict=True):
                    self._trials[i] = dataclasses.replace(self._trials[i], simulated_s=seconds)
        chosen, verdict = self._choose(ran)
        names = dict.fromkeys((SINGLE, CONTROL, PLAIN, self._method, CONSTRUCTED, DATA_PARALLEL, SPLIT))
        form = self._form_of(self._trials[chosen])
        written = _as_simulated(self._trials[chosen], corrected[form], self._is_interrupted)
        rivals = {}
        for trial in map(self._best_of, names):
            if trial is not None and trial != self._trials[chosen]:
                try:
                    problem = corrected[self._form_of(trial)]
                    rivals[trial] = _as_simulated(trial, problem, self._is_interrupted)
                except NothingFits:  # it ran all the same: its measured time stands
                    rivals[trial] = trial
        if self._race is None:  # nothing is worth it that has not shown so
            written = dataclasses.replace(written, is_clear=False)
            why_not = f"not run to its end beside the unplaced function ({self._why or 'nothing ran'})"
            notes: dict[Note, Any] = {Note.BESIDE_UNPLACED: why_not}
        else:
            notes = self._race.verdict(written)
        notes |= {Note.WHY: verdict, Note.DECIDED: written.name, Note.WHY_NOT_SPLIT: self._why_not_split}
        if self._timing.fleet is not None:
            notes[Note.MEASURED_ON] = self._timing.fleet.sentence()
        return Outcome(
            dataclasses.replace(form.form, problem=corrected[form]),
            written,
            (*rivals.values(), *self._as_it_is),
            asked=self._method,
            notes=notes,
            correction=form.correction,
            trials=tuple(self._trials),
            searches=tuple(search for _, search in self._searches),
        )

    def _best_of(self, method: str) -> Timed | None:
        """The fastest trial of a method, None when none ran; what another method had found before is its own too."""
        candidates = [trial for trial in self._trials if trial.name == method]
        for name, result in self._searches:
            if name == method:
                fields = {field: getattr(result, field) for field in ("found_by", "evaluations", "search_s")}
                candidates += [
                    dataclasses.replace(trial, name=method, **fields)
                    for trial in self._trials
                    if trial.name != method and self._is_same(trial, result.placement)
                ]
        return min(
            (trial for trial in candidates if trial.measured_s is not None), key=_standing, default=None
        )

    def _choose(self, ran: Sequence[int]) -> tuple[int, str]:
        """Index of the trial to recommend, and one sentence that says why."""
        trials, samples = self._trials, self._samples
        single = next((i for i in ran if trials[i].is_single), None)
        fastest = min(samples or ran, key=lambda i: _standing(trials[i]))
        if single is None:
            return fastest, "no single device runs the program; this is the fastest placement that does"
        if all(trials[i].is_single for i in samples):
            has_plan = any(not trial.is_single for trial in trials)
            why = self._why or (
                "no other placement ran" if has_plan else "no search found another that was faster"
            )
            return single, f"the best single device: {why}"
        turns, confidence = len(samples[fastest]), self._config.confidence
        if fastest != single and clearly_slower(samples[single], samples[fastest], confidence):
            return fastest, f"clearly faster than the best single device in {turns} turns each"
        if fastest != single and turns < TELLING:
            return single, f"the best single device: {turns} turns each are too few to tell which is faster"
        return single, "the best single device: no plan's gain is beyond the noise of the race"
