"""Search where the devices are there to ask: simulate, measure the best, refit, search again, race."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tf_placer.calibration.refit import Correction, refit
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.method_spec import Role
from tf_placer.planners.single_device import single_device_placements
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.race import race_spreads_s, race_times_s
from tf_placer.runtime.statistics import clearly_slower
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.ctrl_c import patient
from tf_placer.search.progress import Progress
from tf_placer.search.result import SearchResult
from tf_placer.search.search import NothingFits, evaluate_given, search
from tf_placer.waiting.wait import Wait
from tf_placer.workers.local_workers import WorkerError
from tf_placer.workers.remote_workers import UnreachableServer

MEASURE, RACE = "measuring plans", "racing them"
_START = "start"  # what proposed a plan that was there before the search


def searching(method: str) -> str:
    """What a search is called where it is waited for."""
    return f"searching with {method}"


@dataclasses.dataclass(frozen=True)
class LiveConfig:
    """How a live search spends its time.

    Attributes:
      searches: each has an equal share of the budget and a simulator refitted to all that was measured before.
      finalists: the fastest plans, which race against the best single device and the best plan of each method.
      rounds: turns of each in the race.
      confidence: that a plan is faster, turn by turn, before it is recommended (``clearly_slower``).
      control_s: most seconds of random search.
    """

    searches: int = 3
    finalists: int = 2
    rounds: int = 20
    confidence: float = 0.95
    control_s: float = math.inf


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One placement on the runtime.

    Attributes:
      method: what proposed it.
      decisions: the one plan, with all that it decides.
      measured_s: step time, in the race if it was in it; None when it did not run.
      status, message: how it fared.
      raced: ``measured_s`` is of the race.
      evaluations: placements that its search tried.
      search_s: seconds that its search took.
      found_by: see ``SearchResult``.
      spread_s: lower and upper quartile of its times in the race; None where it was not in it.
    """

    method: str
    decisions: Decisions
    measured_s: float | None = None
    status: Status = Status.OK
    message: str = ""
    raced: bool = False
    evaluations: int = 1
    search_s: float = 0.0
    found_by: str = ""
    spread_s: tuple[float, float] | None = None

    @property
    def device_of_unit(self) -> np.ndarray:
        """[U], the devices of its plan."""
        return np.asarray(self.decisions.device_of_unit)[0]


@dataclasses.dataclass(frozen=True, eq=False)
class LiveResult:
    """What a live search recommends, and what it knows.

    Attributes:
      recommended: the fastest in the race; the best single device where no plan is clearly faster than that.
      single: the best single device, None when none runs.
      trials: all that were measured, in order; those of the race with its times.
      correction: of the simulator, from all of them.
      problem: with that correction.
      why: one sentence about the recommendation.
      interrupted: Ctrl-C ended it early.
      searches: what the method found, and random search, in order.
    """

    recommended: Trial
    single: Trial | None
    trials: tuple[Trial, ...]
    correction: Correction
    problem: Problem
    why: str
    interrupted: bool
    searches: tuple[SearchResult, ...]

    def best_of(self, method: str) -> Trial | None:
        """The fastest trial of a method, None when none ran; what another method had found before is its own too."""
        own = [trial for trial in self.trials if trial.method == method]
        for found in self.searches:
            if found.method == method:
                wanted = found.placement.decisions.digest(0, self.problem)
                own += [
                    dataclasses.replace(
                        trial,
                        method=method,
                        evaluations=found.evaluations,
                        search_s=found.search_s,
                        found_by=found.found_by,
                    )
                    for trial in self.trials
                    if trial.method != method and trial.decisions.digest(0, self.problem) == wanted
                ]
        return min((trial for trial in own if trial.measured_s is not None), key=_standing, default=None)

    def as_search_result(self, trial: Trial) -> SearchResult:
        """A trial as the refitted simulator sees it."""
        return dataclasses.replace(
            evaluate_given(self.problem, trial.decisions, trial.method),
            evaluations=trial.evaluations,
            search_s=trial.search_s,
            found_by=trial.found_by,
            interrupted=self.interrupted,
        )


def _standing(trial: Trial) -> tuple[bool, float]:
    """Sorts trials that ran: a time in the race was taken beside the others' and counts more."""
    assert trial.measured_s is not None, "it ran"
    return not trial.raced, trial.measured_s


def search_live(
    problem: Problem,
    evaluator: RuntimeEvaluator,
    method: str,
    budget: Budget,
    seed: int = 0,
    progress: Callable[[str, Budget], Progress] | None = None,
    config: LiveConfig = LiveConfig(),
    settings: Mapping[str, object] | None = None,
    wait: Wait | None = None,
    start: Placement | None = None,
) -> LiveResult:
    """Searches on the calibrated simulator and lets the runtime have the last word.

    A search exploits the errors of its simulator, and the measurement of what it found is what corrects them: so
    search, measure, refit, search again; the last time from the method's best measured plan, if it is one that improves
    plans, and before that anew, because a climb that goes on stays where it is stuck. After each of the method's
    searches a plain one (``Role.PLAIN``) gets the same budget, unless the method is the default, and in the end random
    search as many evaluations as the method's last, in no more time, so that it shows what the method is worth; the
    fastest wins, whoever found it. The race's times replace what its placements took by themselves, in the last refit,
    too. Measuring is not in the budget; it takes seconds a placement. Ctrl-C skips what is left and keeps what was
    measured.

    Args:
      problem: profiled (``build_problem``) on the evaluator's devices.
      evaluator: of the same item and problem.
      method: a name of ``tf_placer.methods()``.
      budget: of all of the method's searches together; the plain ones are not in it.
      seed: of the first search; each has the next.
      progress: makes what shows a search, from its title and budget.
      config: how to spend the time.
      settings: method -> its settings, see ``search``.
      wait: is told of each phase that begins; it has those of ``live_phases``.
      start: a plan of this problem that was found before: it is measured and raced beside those that are found, and
        the last search goes on from it if it is the best so far.

    Raises:
      InputError: an unknown method.
      NothingFits: nothing ran that was measured.
      WorkerError, UnreachableServer: the workers cannot be started or found, and nothing was measured before.
      KeyboardInterrupt: Ctrl-C before anything was measured.
    """
    return _LiveSearch(problem, evaluator, seed, progress, config, settings or {}, wait, start).run(
        method, budget
    )


class _LiveSearch:
    def __init__(
        self,
        problem: Problem,
        evaluator: RuntimeEvaluator,
        seed: int,
        progress: Callable[[str, Budget], Progress] | None,
        config: LiveConfig,
        settings: Mapping[str, object],
        wait: Wait | None,
        start: Placement | None,
    ) -> None:
        self._start = start
        self._problem = problem
        self._evaluator = evaluator
        self._seed = seed
        self._progress = progress
        self._config = config
        self._settings = settings
        self._wait = wait
        self._single = methods.the(Role.REFERENCE).name
        self._plain = methods.the(Role.PLAIN).name
        self._control = methods.the(Role.CONTROL).name
        self._trials: list[Trial] = []
        self._searches: list[SearchResult] = []
        self._correction = Correction()
        self._samples: dict[int, list[float]] = {}  # trial -> its step times in the race

    def run(self, method: str, budget: Budget) -> LiveResult:
        with patient():
            return self._run(method, budget)

    def _run(self, method: str, budget: Budget) -> LiveResult:
        interrupted, why = False, ""
        try:
            for row in single_device_placements(self._problem):
                self._measure(Trial(self._single, Decisions(row[np.newaxis])))
            if self._start is not None and not self._is_known(self._start.decisions):
                self._measure(Trial(_START, self._start.decisions))
            if method != self._single:
                interrupted = self._search(method, budget)
            with patient():  # a search that was ended is no reason why the race cannot be
                self._race()
        except KeyboardInterrupt:
            interrupted, why = True, "interrupted before the race"
        except RaceFailed as error:
            why = f"the race failed ({error})"
        except (WorkerError, UnreachableServer) as error:
            if not self._ran():
                raise
            why = f"nothing more could be measured ({error})"
        if interrupted and not self._ran():
            raise KeyboardInterrupt
        return self._result(why, interrupted)

    def _search(self, method: str, whole: Budget) -> bool:
        """Searches and measures in turn; whether Ctrl-C ended that."""
        count = self._config.searches
        share = whole.share(count)
        for i in range(count):
            which, seed = f"search {i + 1} of {count}", self._seed + i
            last = i == count - 1
            found = self._propose(method, share, which, seed, go_on=last)
            if found is None:
                continue
            # The default is made of such: no other stands beside it.
            rivals = {} if Role.DEFAULT in methods.find(method).roles else {self._plain: share}
            if last:
                seconds = min(share.seconds, self._config.control_s)
                rivals[self._control] = Budget(seconds, found.evaluations)
            for rival, budget in rivals.items():
                if rival != method and not self._searches[-1].interrupted:
                    self._propose(rival, budget, which, seed, go_on=last)
            if self._searches[-1].interrupted:
                return True
        return False

    def _propose(
        self, method: str, budget: Budget, which: str, seed: int, go_on: bool
    ) -> SearchResult | None:
        """Searches, anew or from the method's best, and measures what came of it, if it is new."""
        start = self._best_plan_of(method) if go_on and methods.find(method).uses_start else None
        shown = self._progress(f"{method}, {which}", budget) if self._progress else None
        problem = self._correction.apply(self._problem)
        try:
            with self._phase(searching(method)):
                found = search(
                    problem,
                    method,
                    budget.seconds,
                    budget.evaluations,
                    seed,
                    shown,
                    start=start,
                    config=self._settings.get(method),
                )
        except NothingFits:
            return None
        self._searches.append(found)
        plan = found.placement.decisions
        if not self._is_known(plan):
            more = {name: getattr(found, name) for name in ("evaluations", "search_s", "found_by")}
            self._measure(Trial(method, plan, **more))
        return found

    def _is_known(self, plan: Decisions) -> bool:
        """Whether a plan was measured already."""
        return plan.digest(0, self._problem) in {
            trial.decisions.digest(0, self._problem) for trial in self._trials
        }

    def _measure(self, trial: Trial) -> None:
        with self._phase(MEASURE):
            measured = self._evaluator.evaluate(trial.decisions.plain)
        status = Status(int(measured.status[0]))
        measured_s = float(measured.runtime_s[0]) if status == Status.OK else None
        self._trials.append(
            dataclasses.replace(trial, measured_s=measured_s, status=status, message=measured.messages[0])
        )
        self._refit()

    def _refit(self) -> None:
        """Corrects the simulator by all that ran."""
        ran = self._ran()
        if ran:
            plans = Decisions.joined([self._trials[i].decisions for i in ran])
            times_s = np.array([self._trials[i].measured_s for i in ran])
            self._correction = refit(self._problem, plans, times_s)

    def _best_plan_of(self, method: str) -> Placement | None:
        """The fastest measured placement of a method so far, or the one that was there before."""
        found = [self._trials[i] for i in self._ran() if self._trials[i].method in (method, _START)]
        return Placement.from_decisions(self._problem, found[0].decisions) if found else None

    def _ran(self) -> list[int]:
        """Positions of the trials that ran, those of the race before the others, the fastest first."""
        ran = [i for i, trial in enumerate(self._trials) if trial.measured_s is not None]
        return sorted(ran, key=lambda i: _standing(self._trials[i]))

    def _race(self) -> None:
        """Races the best single device and the best plans; the race has the last word on their times."""
        ran = self._ran()
        singles = [i for i in ran if self._trials[i].method == self._single][:1]
        plans = [i for i in ran if self._trials[i].method != self._single]
        if not plans:
            return
        best_of_each = {self._trials[i].method: i for i in reversed(plans)}
        racers = list(dict.fromkeys([*singles, *plans[: self._config.finalists], *best_of_each.values()]))
        plans_of_race = Decisions.joined([self._trials[i].decisions for i in racers])
        with self._phase(RACE):
            samples = self._evaluator.race(plans_of_race.plain, self._config.rounds)
        for i, raced_s, spread_s in zip(racers, race_times_s(samples), race_spreads_s(samples), strict=True):
            trial = self._trials[i]
            self._trials[i] = dataclasses.replace(trial, measured_s=raced_s, raced=True, spread_s=spread_s)
        # Before the refit: Ctrl-C there loses no race.
        self._samples = dict(zip(racers, samples, strict=True))
        self._refit()

    def _phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._wait is None else self._wait.phase(name)

    def _result(self, why: str, interrupted: bool) -> LiveResult:
        trials, ran = self._trials, self._ran()
        if not ran:
            raise NothingFits(
                f"no placement of {self._problem.name!r} ran on cluster {self._problem.cluster.name!r}; the first: "
                f"{trials[0].status.name}: {trials[0].message}"
            )
        single = next((i for i in ran if trials[i].method == self._single), None)
        chosen, verdict = self._choose(single, ran, why)
        return LiveResult(
            recommended=trials[chosen],
            single=None if single is None else trials[single],
            trials=tuple(trials),
            correction=self._correction,
            problem=self._correction.apply(self._problem),
            why=verdict,
            interrupted=interrupted,
            searches=tuple(self._searches),
        )

    def _choose(self, single: int | None, ran: Sequence[int], why: str) -> tuple[int, str]:
        """Which trial to recommend, and one sentence that says why."""
        trials, samples = self._trials, self._samples
        fastest = min(samples or ran, key=lambda i: trials[i].measured_s or 0.0)
        if single is None:
            return fastest, "no single device runs the program; this is the fastest placement that does"
        if not samples:
            others = any(trial.method != self._single for trial in trials)
            why = why or ("no other placement ran" if others else "no search found another that was faster")
            return single, f"the best single device: {why}"
        if fastest != single and clearly_slower(samples[single], samples[fastest], self._config.confidence):
            return (
                fastest,
                f"clearly faster than the best single device, turn by turn, in {len(samples[fastest])} turns each",
            )
        return single, "the best single device: no plan's gain is beyond the noise of the race"
