"""Search on live devices: what was measured, the simulators that are fitted to it, and the race."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base import interrupt
from tf_placer.base.method_spec import Role
from tf_placer.base.quantities import known
from tf_placer.calibration.refit import Correction, refit
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator
from tf_placer.fleet.fleet import FleetTiming
from tf_placer.planners.plain import single_device_placements
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import CONSTRUCTED, DATA_PARALLEL, SINGLE, SPLIT, Note, Outcome, Timed
from tf_placer.planning.race import Race, race
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import clearly_slower
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, PLAIN, Budget
from tf_placer.search.recorder import Progress, SearchResult
from tf_placer.search.round import Starts
from tf_placer.search.search import NothingFits, Start, evaluate_given, search
from tf_placer.workers.local_workers import UnreachableServer, WorkerError

CONSTRUCTIVE_PLANS = 4
"""Plans of constructive methods that each machine of a fleet measures."""
_START = "start"  # what proposed a plan that was there before the search
_FROM = 2  # plans in parts that a search begins at: neither leads further everywhere

MakeParts = Callable[[], Form | str]
"""Gives the program with its batch in parts, or one clause that says why there is none."""


@dataclasses.dataclass(frozen=True)
class LiveConfig:
    """Settings of a live search.

    Attributes:
      searches: each has an equal share of the budget and a simulator refitted to all that was measured before.
      finalists: the fastest plans, which race against the best single device and the best plan of each method.
      rounds: turns of each in the race.
      confidence: that a plan is faster, turn by turn, before it is recommended (``clearly_slower``).
    """

    searches: int = 3
    finalists: int = 2
    rounds: int = 20
    confidence: float = 0.95


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
    """A form of the program with what times its plans.

    Attributes:
      form: the program on the devices.
      evaluator: races its plans.
      timing: times one plan, or several at once (a fleet); the evaluator itself where there is no fleet.
      correction: of its simulator, by all of its plans that ran.
    """

    def __init__(self, form: Form, evaluator: RuntimeEvaluator, timing: Evaluator | None = None) -> None:
        self.form, self.problem = form, form.problem
        self.evaluator, self.timing = evaluator, timing or evaluator
        self.correction = Correction()

    def has(self, plan: Timed) -> bool:
        """True if a plan is one of this form."""
        return self.form.has(plan.placement)

    @property
    def corrected(self) -> Problem:
        return self.correction.apply(self.problem)


class LiveSearch:
    """A live search, a part at a time: each is skipped where it has ended before."""

    def __init__(
        self,
        form: Form,
        evaluator: RuntimeEvaluator,
        seed: int,
        config: LiveConfig,
        settings: Mapping[str, object],
        progress: Callable[[str, Budget], Progress] | None = None,
        start: Placement | None = None,
        make_parts: MakeParts | None = None,
        fleet: FleetTiming | None = None,
    ) -> None:
        """Begins.

        Args:
          form: the program, whole.
          evaluator, seed, config: as ``search_live`` takes them.
          settings: method -> its settings, see ``search``.
          progress: makes what shows a search, from its title and budget.
          start: a plan of this problem, or of the program in parts, that was found before: it is measured and raced
            beside those that are found, and the last search goes on from it if it is the best so far.
          make_parts, fleet: as ``search_live`` takes them.
        """
        self._start, self._fleet = start, fleet
        # Plans and their methods, the fastest in the simulator first.
        self._constructed: list[tuple[np.ndarray, str]] = []
        timing = None
        if fleet is not None:
            problem = form.problem
            starts = Starts(problem, SimulatedEvaluator(problem), methods.having(Role.BESIDE))
            self._constructed = list(zip(starts.plans, starts.made_by, strict=True))
            timing = fleet.whole(problem, evaluator, Decisions(starts.plans[:1]))
        self._forms = [_Measured(form, evaluator, timing)]
        self._make_parts = make_parts
        self._why_not_split = ""
        self._seed = seed
        self._progress = progress
        self._config = config
        self._settings = settings
        self._trials: list[Timed] = []
        self._searches: list[tuple[str, SearchResult]] = []  # with the name that its plan has in tables
        # Method -> its last turn, and what it found.
        self._turn_of: dict[str, tuple[int, SearchResult | None]] = {}
        self._proposed: Timed | None = None
        self._samples: dict[int, list[float]] = {}  # trial -> its step times in the race
        self._race: Race | None = None
        self._as_it_is: tuple[Timed, ...] = ()
        self._has_ended, self._is_interrupted, self._why = False, False, ""

    def do(self, part: Callable[[LiveSearch, Budget], None], share: Budget, left_s: float = math.inf) -> None:
        """Does one part, unless the search has ended.

        Args:
          part: of the search.
          share: of the budget, for a part that searches.
          left_s: seconds after which measuring and racing end; one plan is measured in any case.

        Raises:
          WorkerError, UnreachableServer: the workers cannot be started or found, and nothing was measured before.
        """
        if self._has_ended:
            return
        self._whole.evaluator.limit.ends_in(left_s)
        try:
            interrupt.check()
            part(self, share)
        except KeyboardInterrupt:
            self._has_ended, self._is_interrupted, self._why = True, True, "interrupted before the race"
        except RaceFailed as error:
            self._has_ended, self._why = True, f"the race failed ({error})"
        except (WorkerError, UnreachableServer) as error:
            if not self._ran():
                raise
            self._has_ended, self._why = True, f"nothing more could be measured ({error})"

    def measure_what_is_there(self) -> None:
        """Measures every single device, and the plan that was there before."""
        problem = self._whole.problem
        rows = [(SINGLE, SINGLE, row) for row in single_device_placements(problem)]
        if self._fleet is not None:
            best = self._constructed[: CONSTRUCTIVE_PLANS * self._fleet.hosts]
            rows += [(CONSTRUCTED, by, row) for row, by in best if by != SINGLE]
        self._measure(
            *(Timed(name, Placement(problem, row), evaluations=1, found_by=by) for name, by, row in rows)
        )
        self._measure_start(self._whole)

    def _measure_start(self, form: _Measured) -> None:
        """Measures the plan that was there before, if it is one of this form."""
        if self._start is None or self._is_known(self._start):
            return
        start = Timed(_START, self._start, evaluations=1)
        if form.has(start):
            self._measure(start)

    def put_in_parts(self) -> None:
        """Puts the batch in parts, where it can be; not after Ctrl-C in a search."""
        if self._is_interrupted or self._make_parts is None:
            return
        if self._whole.evaluator.limit.is_over:
            return
        form = self._make_parts()
        if isinstance(form, str):
            self._why_not_split = f"The batch is not split: {form}."
            return
        assert form.item is not None  # it was split
        evaluator, timing = self._whole.evaluator.of_form(form.item, form.problem), None
        if self._fleet is not None:
            data_parallel = form.data_parallel.decisions
            timing = self._fleet.of_form(form.item, form.problem, evaluator, data_parallel)
        self._forms.append(_Measured(form, evaluator, timing))

    def measure_parts(self) -> None:
        """Measures data parallelism, and the best plan of the whole with all copies together."""
        if len(self._forms) < 2:
            return
        form = self._forms[-1].form
        self._measure(Timed(DATA_PARALLEL, form.data_parallel, evaluations=1))
        whole = [self._trials[i] for i in self._ran() if self._whole.has(self._trials[i])]
        best = next((trial for trial in whole if not trial.is_single), None)
        if best is not None and best.placement is not None:
            together = form.lift(best.placement)
            if not self._is_known(together):
                self._measure(Timed(SPLIT, together, evaluations=1, found_by=best.found_by))
        self._measure_start(self._forms[-1])

    def propose_parts(self, share: Budget, method: str, turn: int, searches: int) -> None:
        """Searches among plans of the batch in parts, from the best that were measured.

        Args:
          share: of the budget.
          method: that searches.
          turn: which of its searches it is.
          searches: how many there are.
        """
        if self._is_interrupted or len(self._forms) < 2:
            return
        form = self._forms[-1]
        trials = [self._trials[i] for i in self._ran()]
        ran = [trial.placement for trial in trials if trial.placement is not None and form.has(trial)]
        start = ran[:_FROM] if ran and methods.find(method).uses_start else None
        title = f"{method}, the batch in {form.form.parts} parts, search {turn + 1} of {searches}"
        self._search(form, SPLIT, method, share, self._seed + turn, title, start)

    def propose(self, share: Budget, method: str, name: str, turn: int, searches: int) -> None:
        """Searches, anew or in the last turn from the method's best; after Ctrl-C in a search no other begins.

        Args:
          share: of the budget.
          method: that was asked for.
          name: the method that searches: that one or another beside it.
          turn: which of its searches it is.
          searches: how many there are.
        """
        own_turn, own_search = self._turn_of.get(method, (turn, None))
        if self._is_interrupted or (name != method and (own_search is None or own_turn != turn)):
            return
        if own_search is not None and name == CONTROL:
            share = share.capped(own_search.evaluations)
        is_last = turn == searches - 1
        start = self._best_plan_of(name) if is_last and methods.find(name).uses_start else None
        title = f"{name}, search {turn + 1} of {searches}"
        self._turn_of[name] = (
            turn,
            self._search(self._whole, name, name, share, self._seed + turn, title, start),
        )

    def _search(
        self,
        form: _Measured,
        name: str,
        method: str,
        share: Budget,
        seed: int,
        title: str,
        start: Start | None,
    ) -> SearchResult | None:
        """Searches among plans of a form, and proposes what it finds if it is new; None where nothing fits."""
        try:
            result = search(
                form.corrected,
                method,
                share,
                seed=seed,
                progress=self._progress(title, share) if self._progress else None,
                start=start,
                config=self._settings.get(method),
            )
        except NothingFits:
            return None
        self._searches.append((name, result))
        self._is_interrupted = result.interrupted
        plan = Placement.from_decisions(form.problem, result.placement.decisions)
        if not self._is_known(plan):
            self._proposed = Timed(
                name,
                plan,
                evaluations=result.evaluations,
                search_s=result.search_s,
                found_by=result.found_by,
            )
        return result

    def measure_proposed(self) -> None:
        """Measures what the last search found, if it is new."""
        if self._proposed is not None:
            self._measure(self._proposed)
        self._proposed = None

    def _is_known(self, plan: Placement) -> bool:
        """True if a plan was measured already."""
        return any(self._is_same(trial, plan) for trial in self._trials)

    def _is_same(self, trial: Timed, plan: Placement) -> bool:
        """True if a trial is of this plan."""
        problem = self._form_of(trial).problem
        return problem.fingerprint == plan.problem.fingerprint and (
            _decisions(trial).digest(0, problem) == plan.decisions.digest(0, problem)
        )

    @property
    def _whole(self) -> _Measured:
        """The program as it is."""
        return self._forms[0]

    def _form_of(self, trial: Timed) -> _Measured:
        return next(form for form in self._forms if form.has(trial))

    def _measure(self, *trials: Timed) -> None:
        """Measures plans of one form, on a fleet at once."""
        form = self._form_of(trials[0])
        for batch in [trials] if self._fleet is not None else [(trial,) for trial in trials]:
            if form.evaluator.limit.is_over and self._ran():
                return
            plans = Decisions.joined([_decisions(trial) for trial in batch])
            times = form.timing.evaluate(plans.plain)
            self._trials += [trial.measured(times, i) for i, trial in enumerate(batch)]
            self._refit()

    def _refit(self) -> None:
        """Corrects the simulator of each form by all of its plans that ran."""
        for form in self._forms:
            ran = [i for i in self._ran() if form.has(self._trials[i])]
            if ran:
                plans = Decisions.joined([_decisions(self._trials[i]) for i in ran])
                times_s = np.array([self._trials[i].measured_s for i in ran])
                form.correction = refit(form.problem, plans, times_s)

    def _best_plan_of(self, method: str) -> Placement | None:
        """The fastest measured placement of a method so far, or the one that was there before."""
        plans = [self._trials[i] for i in self._ran() if self._trials[i].name in (method, _START)]
        return plans[0].placement if plans else None

    def _ran(self) -> list[int]:
        """Positions of the trials that ran, those of the race before the others, the fastest first."""
        ran = [i for i, trial in enumerate(self._trials) if trial.measured_s is not None]
        return sorted(ran, key=lambda i: _standing(self._trials[i]))

    def race(self) -> None:
        """Races the best single device, the best plans and the program as it is; the race has the last word.

        The simulator is fitted to what plans took by themselves: a turn of the race is a call, whose inputs and outputs
        are sent, and the simulator knows nothing of these.
        """
        ran = self._ran()
        singles = [i for i in ran if self._trials[i].is_single][:1]
        plans = [i for i in ran if not self._trials[i].is_single]
        best_of_each = {self._trials[i].name: i for i in reversed(plans)}
        racers = list(dict.fromkeys([*singles, *plans[: self._config.finalists], *best_of_each.values()]))
        racers.sort(key=lambda i: not self._whole.has(self._trials[i]))  # those in parts come last
        if not racers:
            return
        evaluators = {form.problem.fingerprint: form.evaluator for form in self._forms}
        rows = [self._trials[i] for i in racers]
        self._race = race(rows, lambda plan: evaluators[plan.problem.fingerprint], self._config.rounds)
        count = len(self._trials)
        raced = self._race.added(self._trials, racers)
        self._trials, self._as_it_is = raced[:count], tuple(raced[count:])
        self._samples = dict(zip(racers, self._race.samples, strict=False))

    def result(self, method: str) -> Outcome:
        """Outcome: the recommended plan and the best plan of each method.

        Args:
          method: that was asked for.

        Raises:
          NothingFits: nothing ran, or what is recommended does not fit in memory as the fitted simulator counts it.
          KeyboardInterrupt: Ctrl-C before anything did.
        """
        ran = self._ran()
        if not ran and self._is_interrupted:
            raise KeyboardInterrupt
        if not ran:
            first = self._trials[0]
            problem = self._whole.problem
            raise NothingFits(
                f"no placement of {problem.name!r} ran on cluster {problem.cluster.name!r}; the first: "
                f"{first.status.name}: {first.message}"
            )
        corrected = {form: form.corrected for form in self._forms}
        for form, problem in corrected.items():
            of_form = [i for i, trial in enumerate(self._trials) if form.has(trial)]
            if of_form:
                plans = Decisions.joined([_decisions(self._trials[i]) for i in of_form])
                times_s = SimulatedEvaluator(problem).evaluate(plans).runtime_s
                for i, seconds in zip(of_form, times_s, strict=True):
                    self._trials[i] = dataclasses.replace(self._trials[i], simulated_s=known(float(seconds)))
        single = next((i for i in ran if self._trials[i].is_single), None)
        chosen, verdict = self._choose(single, ran, self._why)
        names = dict.fromkeys(
            (
                SINGLE,
                CONTROL,
                PLAIN,
                method,
                CONSTRUCTED,
                DATA_PARALLEL,
                SPLIT,
            )
        )
        shown = [trial for name in names if (trial := self._best_of(name)) is not None]
        form = self._form_of(self._trials[chosen])
        written = _as_simulated(self._trials[chosen], corrected[form], self._is_interrupted)
        if self._race is None:  # nothing is worth it that has not shown so
            written = dataclasses.replace(written, is_clear=False)
        seen = {}
        for trial in shown:
            if trial != self._trials[chosen]:
                try:
                    problem = corrected[self._form_of(trial)]
                    seen[trial] = _as_simulated(trial, problem, self._is_interrupted)
                except NothingFits:  # it ran all the same: its measured time stands
                    seen[trial] = trial
        if self._race is None:
            why_not = f"not run to its end beside the function as it is ({self._why or 'nothing ran'})"
            notes: dict[Note, Any] = {Note.BESIDE_UNPLACED: why_not}
        else:
            notes = self._race.verdict(written)
        notes |= {Note.WHY: verdict, Note.DECIDED: written.name, Note.WHY_NOT_SPLIT: self._why_not_split}
        if self._fleet is not None:
            notes[Note.MEASURED_ON] = self._fleet.sentence()
        return Outcome(
            dataclasses.replace(form.form, problem=corrected[form]),
            written,
            (*seen.values(), *self._as_it_is),
            asked=method,
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

    def _choose(self, single: int | None, ran: Sequence[int], why: str) -> tuple[int, str]:
        """Index of the trial to recommend, and one sentence that says why."""
        trials, samples = self._trials, self._samples
        fastest = min(samples or ran, key=lambda i: _standing(trials[i]))
        if single is None:
            return fastest, "no single device runs the program; this is the fastest placement that does"
        if all(trials[i].is_single for i in samples):
            has_plan = any(not trial.is_single for trial in trials)
            why = why or ("no other placement ran" if has_plan else "no search found another that was faster")
            return single, f"the best single device: {why}"
        if fastest != single and clearly_slower(samples[single], samples[fastest], self._config.confidence):
            return (
                fastest,
                f"clearly faster than the best single device, turn by turn, in {len(samples[fastest])} turns each",
            )
        return single, "the best single device: no plan's gain is beyond the noise of the race"
