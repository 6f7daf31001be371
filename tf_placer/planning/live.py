"""Plans on live devices: timed, raced, and searched (simulate, measure the best, refit, search again, race)."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base import interrupt
from tf_placer.calibration.refit import Correction, refit
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, UnplacedFailed
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.fleet import FleetTiming
from tf_placer.planning import forecast
from tf_placer.planning.forecast import Forecast, LiveConfig, Request
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
    is_same_plan,
    single_rows,
    with_race,
)
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
_OF_SEARCH = ("found_by", "evaluations", "search_s")
_FROM = 2  # plans in parts that a search begins at: neither leads further everywhere

MakeParts = Callable[[], Form | str]
"""Gives the program with its batch in parts, or one clause that says why there is none."""


@dataclasses.dataclass(frozen=True)
class Race:
    """A race of plans and of the program as it is."""

    raced: Mapping[Timed, Timed]  # row -> the same with its new times
    as_it_is: tuple[Timed, ...]  # the program as it is, where it runs
    turns_of: Mapping[Timed, list[float]]  # row with its new times -> these, turn by turn
    why_not_unplaced: str  # why the program does not run as it is; "" where it does
    load: float | None  # share of the CPUs that other processes took meanwhile; None where nobody knows
    timed_at_s: float  # when, in seconds since 1970

    def of(self, rows: Sequence[Timed]) -> list[Timed]:
        """The rows, those that raced with their new times."""
        return [self.raced.get(row, row) for row in rows]

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
    rounds: int = 20,
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
    form = _plan(rows[0]).problem.fingerprint
    rows = sorted(rows, key=lambda row: _plan(row).problem.fingerprint != form)
    placements = [_plan(row) for row in rows]
    of_form = [plan.decisions for plan in placements if plan.problem.fingerprint == form]
    evaluator, plans = timing(placements[0]), Decisions.joined(of_form).plain

    def of_others(is_call: bool) -> list[GraphProgram]:
        return [timing(plan).program(plan.decisions, is_call) for plan in placements[len(of_form) :]]

    load, why_not = OtherLoad(), ""
    try:
        samples = evaluator.race_unplaced(plans, rounds, confidence, of_others(is_call=True))
    except UnplacedFailed as error:
        why_not = str(error)
        samples = evaluator.race(plans, rounds, confidence, of_others(is_call=False))
    raced = with_race(rows if why_not else [*rows, Timed(AS_IT_IS)], samples)
    row_raced, turns_of = dict(zip(rows, raced, strict=False)), dict(zip(raced, samples, strict=True))
    return Race(row_raced, tuple(raced[len(rows) :]), turns_of, why_not, load.share, time.time())


def raced_anew(outcome: Outcome, timing: Callable[[Placement], RuntimeEvaluator]) -> Outcome:
    """The outcome with a new race of its plan, of those that had raced, and of the program as it is.

    Turns of another race are no times beside these: a row that does not take part has none any more.
    """
    untimed: dict[str, Any] = dict.fromkeys(("raced_s", "called_s", "spread_s", "is_clear"))
    anew = {row: dataclasses.replace(row, **untimed) for row in outcome.candidates if not row.is_as_it_is}
    *rivals, written = anew.values()
    had_raced = [row for row in anew if row is outcome.written or row.is_single or row.raced_s is not None]
    racing = [anew[row] for row in had_raced if row.placement is not None]
    try:
        raced = race(racing, timing)
    except RaceFailed as error:
        written = dataclasses.replace(written, message=f"the race failed ({error})", is_clear=False)
        notes: dict[Note, Any] = {Note.BESIDE_UNPLACED: f"not raced beside the unplaced function ({error})"}
    else:
        *rivals, written = raced.of([*rivals, written])
        rivals += raced.as_it_is
        notes = raced.verdict(written)
    return dataclasses.replace(outcome, written=written, beside=tuple(rivals)).noted(notes)


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
        with log.phase(forecast.START):
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
    with log.phase(forecast.MEASURE) as seconds:
        runtime.limit.ends_in(seconds)
        planned = [row for row in rows if row.placement is not None]
        if planned:
            times = runtime.evaluate(Decisions.joined([_plan(row).decisions for row in planned]).plain)
            measured = {row: row.measured(times, i) for i, row in enumerate(planned)}
            rows = [measured.get(row, row) for row in rows]
    ran = [row for row in rows if row.measured_s is not None]
    if not ran or not rounds:
        return list(rows), None
    with log.phase(forecast.RACE) as seconds:
        runtime.limit.ends_in(seconds)
        try:
            raced = race(ran, lambda _: runtime, rounds, confidence)
        except RaceFailed as error:
            why = f"timed by itself, because the race failed ({error})"
            return [dataclasses.replace(row, message=why) if row in ran else row for row in rows], None
        return [*raced.of(rows), *raced.as_it_is], raced


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
    search as many evaluations as the last, in no more time. Measuring is not in the budget of searches. On a fleet the
    best plans of constructive methods are measured, too, since several at once take no longer than one. All race, and
    so does the program as it is, on this machine. Ctrl-C skips what is left and keeps what was measured.

    Args:
      request: its budget is of all of the method's searches together, its seed of the first; each has the next.
      config: how to spend the time; by default what the budget allows.
      start: a plan that was found before, whole or in parts: it is measured and raced, and the last search goes on
        from it if it is the best so far.
      make_parts: gives the program with its batch in parts, profiled, or why there is none. After the searches of the
        whole the method has as many among its plans, each from the best one that was measured, of which the first are
        data parallelism and the best searched plan of the whole with all copies together.

    Returns:
      What it recommends as ``written``: the fastest in the race, or the best single device where no plan is clearly
      faster than that. Beside it the best single device, the best of the method and of those that searched beside it.

    Raises:
      NothingFits: nothing ran, or what is recommended does not fit in memory as the fitted simulator counts it.
      WorkerError, UnreachableServer: the workers cannot be started or found, and nothing was measured before.
      KeyboardInterrupt: Ctrl-C before anything was measured.
    """
    live = _LiveSearch(request, timing, log, config or Forecast(request, log, timing.whole).config, start)
    live.run(make_parts)
    return live.outcome()


def _plan(row: Timed) -> Placement:
    assert row.placement is not None, "what is timed has a plan"
    return row.placement


def _standing(trial: Timed) -> tuple[bool, float]:
    """Sorts trials that ran: a time in the race was taken beside the others' and counts more."""
    assert trial.measured_s is not None, "it ran"
    return trial.raced_s is None, trial.raced_s or trial.measured_s


def _as_simulated(trial: Timed, problem: Problem, interrupted: bool) -> Timed:
    """A trial with the search that the fitted simulator makes of it; raises NothingFits where it does not fit there."""
    result = evaluate_given(problem, _plan(trial).decisions, trial.name)
    fields: dict[str, Any] = {"search_s": trial.search_s, "found_by": trial.found_by}
    fields |= {"evaluations": trial.evaluations or 1, "interrupted": interrupted}
    search = dataclasses.replace(result, **fields)
    names = ("measured_s", "raced_s", "spread_s", "status", "message", "is_clear")
    measured = {name: getattr(trial, name) for name in names}
    return Timed.of_search(trial.name, search, **measured)


@dataclasses.dataclass(eq=False)
class _Measured:
    """A form of the program with what races its plans and what times one or several at once."""

    form: Form
    evaluator: RuntimeEvaluator
    timing: Evaluator
    correction: Correction = dataclasses.field(default_factory=Correction)  # by all of its plans that ran


@dataclasses.dataclass(eq=False)
class _LiveSearch:
    """What a live search has measured, and the simulators fitted to that."""

    request: Request
    timing: Timing
    log: Log
    config: LiveConfig
    start: Placement | None

    def __post_init__(self) -> None:
        self._method = self.request.method
        self._forms = [_Measured(self.timing.whole, self.timing.runtime, self.timing.runtime)]
        self._why_not_split = ""
        self._trials: list[Timed] = []
        self._searches: list[tuple[str, SearchResult]] = []  # with the name that its plan has in tables
        self._own_search: SearchResult | None = None  # the last one of the method that was asked for
        self._race: Race | None = None
        self._is_interrupted, self._why = False, ""

    def run(self, make_parts: MakeParts | None) -> None:
        """Measures, searches and races, until Ctrl-C or a failure of the runtime ends it; raises as ``search_live``."""
        try:
            with self._phase(forecast.MEASURE):
                self._measure_what_is_there()
            for turn in range(self.config.searches):
                for name in forecast.searchers_in(self.request, self.config, turn):
                    self._search_whole(name, turn)
            if make_parts is not None and forecast.searchers(self._method) and not self._is_interrupted:
                self._search_parts(make_parts)
            with self._phase(forecast.RACE):
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
        with self.log.phase(name) as seconds:
            self.timing.runtime.limit.ends_in(seconds)
            interrupt.check()
            yield seconds

    def _measure_what_is_there(self) -> None:
        (whole,), fleet, problem = self._forms, self.timing.fleet, self.timing.whole.problem
        rows = single_rows(problem, evaluations=1)
        if fleet is not None:
            planners = [methods.find(name) for name in forecast.constructive(CONTROL)]
            starts = Starts(problem, SimulatedEvaluator(problem), planners)
            whole.timing = fleet.whole(problem, whole.evaluator, Decisions(starts.plans[:1]))
            count = forecast.CONSTRUCTIVE_PLANS * fleet.hosts
            for row, method in zip(starts.plans[:count], starts.made_by[:count], strict=True):
                if method != SINGLE:
                    plan = Placement(problem, row)
                    rows.append(Timed(CONSTRUCTED, plan, evaluations=1, found_by=method))
        self._measure(*rows)
        if whole.form.has(self.start):
            self._measure_new(Timed(START, self.start, evaluations=1))

    def _search_whole(self, name: str, turn: int) -> None:
        """Searches, anew or in the last turn from the method's best; after Ctrl-C in a search no other begins."""
        is_own = name == self._method
        if self._is_interrupted or not (is_own or self._own_search):
            return
        start = None
        if turn == self.config.searches - 1 and methods.find(name).uses_start:
            start = next((trial.placement for trial in self._ran() if trial.name in (name, START)), None)
        result = self._search(self._forms[0], name, turn, start)
        if is_own:
            self._own_search = result

    def _search_parts(self, make_parts: MakeParts) -> None:
        """Puts the batch in parts, where it can be, and searches among its plans."""
        with self._phase(forecast.SPLIT_STAGE) as seconds:
            form = make_parts() if seconds else ""
            if not form:
                self.log.leave_out()
        if isinstance(form, str):
            self._why_not_split = f"The batch is not split: {form}." if form else ""
            return
        assert form.item is not None  # it was split
        self.timing.in_parts = form
        evaluator, fleet = self.timing.runtime.of_form(form.item, form.problem), self.timing.fleet
        parts = _Measured(form, evaluator, evaluator)
        if fleet is not None:
            data_parallel = form.data_parallel.decisions
            parts.timing = fleet.of_form(form.item, form.problem, evaluator, data_parallel)
        self._forms.append(parts)
        with self._phase(forecast.MEASURE):
            # Data parallelism, and the best plan of the whole with all copies together.
            self._measure(Timed(DATA_PARALLEL, form.data_parallel, evaluations=1))
            whole = self._ran(self.timing.whole)
            best = next((trial for trial in whole if not trial.is_single), None)
            if best is not None:
                together = form.lift(_plan(best))
                self._measure_new(Timed(SPLIT, together, evaluations=1, found_by=best.found_by))
            if form.has(self.start):
                self._measure_new(Timed(START, self.start, evaluations=1))
        for turn in range(self.config.searches):
            if self._is_interrupted:
                return
            of_form = [_plan(trial) for trial in self._ran(form)]
            start = of_form[:_FROM] if of_form and methods.find(self._method).uses_start else None
            self._search(parts, SPLIT, turn, start)

    def _search(self, form: _Measured, name: str, turn: int, start: Start | None) -> SearchResult | None:
        """Searches among plans of a form, and measures the best if new; None where nothing fits.

        ``name`` is that of its plan in tables: the method's, or ``SPLIT``.
        """
        request, method, title = self.request, name, name
        if name == SPLIT:
            method, title = self._method, f"{self._method}, the batch in {form.form.parts} parts"
        with self._phase(forecast.searching(method)) as seconds:
            if method == CONTROL != self._method:
                seconds = min(seconds, forecast.CONTROL_SHARE * request.whole_s)
            share = request.budget.share(self.config.searches)
            budget = Budget(min(share.seconds, max(seconds, forecast.LEAST_S)), share.evaluations)
            if name == CONTROL and self._own_search is not None:
                budget = budget.capped(self._own_search.evaluations)
            title = f"{title}, search {turn + 1} of {self.config.searches} on {request.cluster.name}"
            progress = ConsoleProgress(title, budget, self.log.console)
            of_method: dict[str, Any] = {"start": start, "config": request.settings.get(method)}
            problem, seed = form.correction.apply(form.form.problem), request.seed + turn
            try:
                result = search(problem, method, budget, seed=seed, progress=progress, **of_method)
            except NothingFits:
                return None
            self._searches.append((name, result))
            self._is_interrupted = result.interrupted
        with self._phase(forecast.MEASURE):
            plan = Placement.from_decisions(form.form.problem, result.placement.decisions)
            self._measure_new(Timed(name, plan, **{field: getattr(result, field) for field in _OF_SEARCH}))
        return result

    def _measure_new(self, trial: Timed) -> None:
        """Measures a plan unless that was done."""
        if not any(is_same_plan(_plan(trial), _plan(before)) for before in self._trials):
            self._measure(trial)

    def _form_of(self, trial: Timed) -> _Measured:
        return next(form for form in self._forms if form.form.has(trial.placement))

    def _measure(self, *trials: Timed) -> None:
        """Measures plans of one form, on a fleet at once; corrects the simulator of each form by its plans that ran."""
        form = self._form_of(trials[0])
        for batch in [trials] if self.timing.fleet is not None else [(trial,) for trial in trials]:
            if form.evaluator.limit.is_over and self._ran():
                return
            times = form.timing.evaluate(Decisions.joined([_plan(trial).decisions for trial in batch]).plain)
            self._trials += [trial.measured(times, i) for i, trial in enumerate(batch)]
            for fitted in self._forms:
                if ran := self._ran(fitted.form):
                    plans = Decisions.joined([_plan(trial).decisions for trial in ran])
                    times_s = np.array([trial.measured_s for trial in ran])
                    fitted.correction = refit(fitted.form.problem, plans, times_s)

    def _ran(self, form: Form | None = None) -> list[Timed]:
        """The trials that ran, of one form or all, those of the race before the others, the fastest first."""
        ran = [trial for trial in self._trials if trial.measured_s is not None]
        return sorted((t for t in ran if form is None or form.has(t.placement)), key=_standing)

    def _race_best(self) -> None:
        """Races the best single device, the best plans and the program as it is; the race has the last word.

        The simulator is fitted to what plans took by themselves: a turn of the race is a call, whose inputs and outputs
        are sent, and the simulator knows nothing of these.
        """
        ran = self._ran()
        singles = [trial for trial in ran if trial.is_single][:1]
        plans = [trial for trial in ran if not trial.is_single]
        best_of_each = {trial.name: trial for trial in reversed(plans)}
        racers = list(dict.fromkeys([*singles, *plans[: forecast.FINALISTS], *best_of_each.values()]))
        # Those in parts come last.
        racers.sort(key=lambda trial: not self.timing.whole.has(trial.placement))
        if racers:
            evaluators = {form.form.problem.fingerprint: form.evaluator for form in self._forms}
            rounds = self.config.rounds
            self._race = race(racers, lambda plan: evaluators[plan.problem.fingerprint], rounds)
            self._trials = self._race.of(self._trials)

    def outcome(self) -> Outcome:
        """Outcome: the recommended plan and the best plan of each method; raises as ``search_live``."""
        ran = self._ran()
        if not ran and self._is_interrupted:
            raise KeyboardInterrupt
        if not ran:
            problem, refused = self.timing.whole.problem, self._trials[0]
            raise NothingFits(
                f"no placement of {problem.name!r} ran on cluster {problem.cluster.name!r}; the first: "
                f"{refused.status.name}: {refused.message}"
            )
        recommended, verdict = self._choose(ran)
        corrected = {form: form.correction.apply(form.form.problem) for form in self._forms}
        simulators = {form: SimulatedEvaluator(problem) for form, problem in corrected.items()}
        position = self._trials.index(recommended)
        for i, trial in enumerate(self._trials):
            seconds = float(simulators[self._form_of(trial)].evaluate(_plan(trial).decisions).runtime_s[0])
            self._trials[i] = dataclasses.replace(
                trial, simulated_s=seconds if np.isfinite(seconds) else None
            )
        chosen = self._trials[position]
        names = dict.fromkeys((SINGLE, CONTROL, PLAIN, self._method, CONSTRUCTED, DATA_PARALLEL, SPLIT))
        form = self._form_of(chosen)
        written = _as_simulated(chosen, corrected[form], self._is_interrupted)
        rivals = []
        for best in map(self._best_of, names):
            if best is not None and best is not chosen:
                try:
                    problem = corrected[self._form_of(best)]
                    rivals.append(_as_simulated(best, problem, self._is_interrupted))
                except NothingFits:  # it ran all the same: its measured time stands
                    rivals.append(best)
        if self._race is None:  # nothing is worth it that has not shown so
            written = dataclasses.replace(written, is_clear=False)
            why_not = f"not run to its end beside the unplaced function ({self._why or 'nothing ran'})"
            notes: dict[Note, Any] = {Note.BESIDE_UNPLACED: why_not}
        else:
            notes = self._race.verdict(written)
            rivals += self._race.as_it_is
        notes |= {Note.WHY: verdict, Note.DECIDED: written.name, Note.WHY_NOT_SPLIT: self._why_not_split}
        if self.timing.fleet is not None:
            notes[Note.MEASURED_ON] = self.timing.fleet.sentence()
        return Outcome(
            dataclasses.replace(form.form, problem=corrected[form]),
            written,
            tuple(rivals),
            asked=self._method,
            notes=notes,
            correction=form.correction,
            trials=tuple(self._trials),
            searches=tuple(search for _, search in self._searches),
        )

    def _best_of(self, method: str) -> Timed | None:
        """The fastest trial of a method, None when none ran; what another method had found before is its own too."""
        ran = self._ran()
        candidates = [trial for trial in ran if trial.name == method]
        for name, result in self._searches:
            if name == method:
                of_search = {field: getattr(result, field) for field in _OF_SEARCH}
                candidates += [
                    dataclasses.replace(trial, name=method, **of_search)
                    for trial in ran
                    if trial.name != method and is_same_plan(_plan(trial), result.placement)
                ]
        return min(candidates, key=_standing, default=None)

    def _choose(self, ran: Sequence[Timed]) -> tuple[Timed, str]:
        """The trial to recommend, and one sentence that says why."""
        samples = {} if self._race is None else self._race.turns_of
        raced = [trial for trial in ran if trial in samples]
        single = next((trial for trial in ran if trial.is_single), None)
        fastest = min(raced or ran, key=_standing)
        if single is None:
            return fastest, "no single device runs the program; this is the fastest placement that does"
        if all(trial.is_single for trial in raced):
            has_plan = any(not trial.is_single for trial in self._trials)
            why = self._why or (
                "no other placement ran" if has_plan else "no search found another that was faster"
            )
            return single, f"the best single device: {why}"
        turns = len(samples[fastest])
        if fastest is not single and clearly_slower(samples[single], samples[fastest]):
            return fastest, f"clearly faster than the best single device in {turns} turns each"
        if fastest is not single and turns < TELLING:
            return single, f"the best single device: {turns} turns each are too few to tell which is faster"
        return single, "the best single device: no plan's gain is beyond the noise of the race"
