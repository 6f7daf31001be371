"""Search where the devices are there to ask: simulate, measure the best, refit, search again, race."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tf_placer.calibration.refit import Correction, refit
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.method_spec import Role
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planning.outcome import Outcome, Timed, with_race
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.quantities import known
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


def _decisions(trial: Timed) -> Decisions:
    assert trial.placement is not None, "every trial has a plan"
    return trial.placement.decisions


def _standing(trial: Timed) -> tuple[bool, float]:
    """Sorts trials that ran: a time in the race was taken beside the others' and counts more."""
    assert trial.measured_s is not None, "it ran"
    return not trial.is_raced, trial.measured_s


def _as_simulated(trial: Timed, problem: Problem, interrupted: bool) -> Timed:
    """A trial with the search that the fitted simulator makes of it; as it is where it does not fit in memory there."""
    try:
        found = evaluate_given(problem, _decisions(trial), trial.name)
    except NothingFits:
        return trial
    search = dataclasses.replace(
        found,
        evaluations=trial.evaluations or 1,
        search_s=trial.search_s,
        found_by=trial.found_by,
        interrupted=interrupted,
    )
    more = {
        name: getattr(trial, name) for name in ("measured_s", "spread_s", "status", "message", "is_raced")
    }
    return Timed.of_search(trial.name, search, **more)


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
) -> Outcome:
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

    Returns:
      What it recommends as ``written``: the fastest in the race, or the best single device where no plan is clearly
      faster than that. Beside it the best single device, the best of the method and of those that searched beside it;
      what another method had found before is a method's own, too.

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
        self._trials: list[Timed] = []
        self._searches: list[SearchResult] = []
        self._correction = Correction()
        self._samples: dict[int, list[float]] = {}  # trial -> its step times in the race

    def run(self, method: str, budget: Budget) -> Outcome:
        with patient():
            return self._run(method, budget)

    def _run(self, method: str, budget: Budget) -> Outcome:
        interrupted, why = False, ""
        try:
            for row in single_device_placements(self._problem):
                self._measure(Timed(self._single, Placement(self._problem, row), evaluations=1))
            if self._start is not None and not self._is_known(self._start):
                self._measure(Timed(_START, self._start, evaluations=1))
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
        return self._outcome(method, why, interrupted)

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
        plan = Placement.from_decisions(self._problem, found.placement.decisions)
        if not self._is_known(plan):
            self._measure(
                Timed(
                    method,
                    plan,
                    found_by=found.found_by,
                    evaluations=found.evaluations,
                    search_s=found.search_s,
                )
            )
        return found

    def _is_known(self, plan: Placement) -> bool:
        """Whether a plan was measured already."""
        digest = plan.decisions.digest(0, self._problem)
        return any(_decisions(trial).digest(0, self._problem) == digest for trial in self._trials)

    def _measure(self, trial: Timed) -> None:
        with self._phase(MEASURE):
            measured = self._evaluator.evaluate(_decisions(trial).plain)
        self._trials.append(trial.measured(measured))
        self._refit()

    def _refit(self) -> None:
        """Corrects the simulator by all that ran."""
        ran = self._ran()
        if ran:
            plans = Decisions.joined([_decisions(self._trials[i]) for i in ran])
            times_s = np.array([self._trials[i].measured_s for i in ran])
            self._correction = refit(self._problem, plans, times_s)

    def _best_plan_of(self, method: str) -> Placement | None:
        """The fastest measured placement of a method so far, or the one that was there before."""
        found = [self._trials[i] for i in self._ran() if self._trials[i].name in (method, _START)]
        return found[0].placement if found else None

    def _ran(self) -> list[int]:
        """Positions of the trials that ran, those of the race before the others, the fastest first."""
        ran = [i for i, trial in enumerate(self._trials) if trial.measured_s is not None]
        return sorted(ran, key=lambda i: _standing(self._trials[i]))

    def _race(self) -> None:
        """Races the best single device and the best plans; the race has the last word on their times."""
        ran = self._ran()
        singles = [i for i in ran if self._trials[i].name == self._single][:1]
        plans = [i for i in ran if self._trials[i].name != self._single]
        if not plans:
            return
        best_of_each = {self._trials[i].name: i for i in reversed(plans)}
        racers = list(dict.fromkeys([*singles, *plans[: self._config.finalists], *best_of_each.values()]))
        plans_of_race = Decisions.joined([_decisions(self._trials[i]) for i in racers])
        with self._phase(RACE):
            samples = self._evaluator.race(plans_of_race.plain, self._config.rounds)
        self._trials = with_race(self._trials, racers, samples)
        # Before the refit: Ctrl-C there loses no race.
        self._samples = dict(zip(racers, samples, strict=True))
        self._refit()

    def _phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._wait is None else self._wait.phase(name)

    def _outcome(self, method: str, why: str, interrupted: bool) -> Outcome:
        ran = self._ran()
        if not ran:
            first = self._trials[0]
            raise NothingFits(
                f"no placement of {self._problem.name!r} ran on cluster {self._problem.cluster.name!r}; the first: "
                f"{first.status.name}: {first.message}"
            )
        problem = self._correction.apply(self._problem)
        simulated_s = (
            SimulatedEvaluator(problem)
            .evaluate(Decisions.joined([_decisions(trial) for trial in self._trials]))
            .runtime_s
        )
        self._trials = [
            dataclasses.replace(trial, simulated_s=known(float(seconds)))
            for trial, seconds in zip(self._trials, simulated_s, strict=True)
        ]
        single = next((i for i in ran if self._trials[i].name == self._single), None)
        chosen, verdict = self._choose(single, ran, why)
        names = dict.fromkeys((self._single, self._control, self._plain, method))
        shown = [trial for name in names if (trial := self._best_of(name)) is not None]
        seen = {trial: _as_simulated(trial, problem, interrupted) for trial in (*shown, self._trials[chosen])}
        written = seen.pop(self._trials[chosen])
        return Outcome(
            None,
            problem,
            written,
            tuple(seen.values()),
            asked=method,
            why=verdict,
            decided=written,
            trials=tuple(self._trials),
            searches=tuple(self._searches),
            correction=self._correction,
        )

    def _best_of(self, method: str) -> Timed | None:
        """The fastest trial of a method, None when none ran; what another method had found before is its own too."""
        own = [trial for trial in self._trials if trial.name == method]
        for found in self._searches:
            if found.method == method:
                wanted = found.placement.decisions.digest(0, self._problem)
                more = {name: getattr(found, name) for name in ("found_by", "evaluations", "search_s")}
                own += [
                    dataclasses.replace(trial, name=method, **more)
                    for trial in self._trials
                    if trial.name != method and _decisions(trial).digest(0, self._problem) == wanted
                ]
        return min((trial for trial in own if trial.measured_s is not None), key=_standing, default=None)

    def _choose(self, single: int | None, ran: Sequence[int], why: str) -> tuple[int, str]:
        """Which trial to recommend, and one sentence that says why."""
        trials, samples = self._trials, self._samples
        fastest = min(samples or ran, key=lambda i: trials[i].measured_s or 0.0)
        if single is None:
            return fastest, "no single device runs the program; this is the fastest placement that does"
        if not samples:
            others = any(trial.name != self._single for trial in trials)
            why = why or ("no other placement ran" if others else "no search found another that was faster")
            return single, f"the best single device: {why}"
        if fastest != single and clearly_slower(samples[single], samples[fastest], self._config.confidence):
            return (
                fastest,
                f"clearly faster than the best single device, turn by turn, in {len(samples[fastest])} turns each",
            )
        return single, "the best single device: no plan's gain is beyond the noise of the race"
