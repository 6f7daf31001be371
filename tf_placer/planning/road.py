"""The road from a request to a plan, for commands and ``auto_place`` alike: its state, and its stages."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import rich.console

from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, Role
from tf_placer.calibration.build_problem import awaited_s
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, UnplacedFailed
from tf_placer.fleet.address import FleetAddress
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.timing import FleetTiming
from tf_placer.graph.item import Item
from tf_placer.ops.build import build_library, is_built
from tf_placer.planners.plain import single_device_placements
from tf_placer.planning.outcome import in_words
from tf_placer.planning.stages import Stage, Stages, roughly
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import clearly_slower, race_spreads_s, race_times_s
from tf_placer.search import methods
from tf_placer.search.ctrl_c import heard, patient
from tf_placer.search.known import NO_ORDER, WHOLE, Budget, Objective
from tf_placer.search.recorder import Progress, SearchResult
from tf_placer.search.search import search
from tf_placer.search.shortest import Start
from tf_placer.workers.fork_server import end_unused, has_forked
from tf_placer.workers.local_workers import WorkerError

FASTEST = Objective()
COMPILE = "compiling the simulator"
BUILD, PROFILE, AT_ONCE = "building the graph", "profiling ops and links", "plans that cost little"
START, MEASURE, RACE = "starting workers", "measuring plans", "racing them"
SPLIT_STAGE = "splitting the batch into parts"
LEAST_S = 0.05  # of a search of whose time nothing is left: it makes a round in any case
CONTROL_SHARE = 0.1  # of the time of all searches, for random search
WHILE_BUILDING = " while the graph is built"

# Rules for what was never done on this machine, from an idle one with two cores.
_COMPILE_S, _START_S, _START_AGAIN_S, _OP_S = 40.0, 5.0, 1.0, 5e-5
_FLEET_S = 15.0
_SPLIT_S, _SPLIT_S_PER_OP = 1.0, 1e-3
_COMPILING = "compiling the ops"
_OPS = 2000  # of a program that was not read yet
# A search ends with the bounds of the program, which are not in its budget; the next of the same program has them.
_END_S, _END_S_PER_OP = 0.15, 6e-5
_LEARNED_S = 5.0  # a policy is traced in its first round


def searching(method: str) -> str:
    """The name of the stage of a search."""
    return f"searching with {method}"


@dataclasses.dataclass(frozen=True)
class Asked:
    """Search request: program, devices, method, and budget.

    Attributes:
      name: of the program, under which durations are kept.
      cluster: the devices.
      method: that was asked for; "" where nothing is searched.
      budget: most seconds and evaluations.
      budget_of: ``"whole"``: its seconds are of everything together; ``"search"``: of each search.
      seed: of the search.
      objective: what is sought.
      settings: method -> its settings, of those that have other ones than their defaults.
      robust: plans are searched that are good under draws of what is not known of described devices.
      order: of execution, as ``search`` takes it, of plans by methods that go on.
      fleet: where plans are measured besides this machine; None for this one alone.
      folder: of the fleet's journals; None where there is no fleet.
    """

    name: str
    cluster: Cluster
    method: str
    budget: Budget
    budget_of: str = WHOLE
    seed: int = 0
    objective: Objective = FASTEST
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    robust: bool = False
    order: str = NO_ORDER
    fleet: FleetAddress | None = None
    folder: pathlib.Path | None = None

    @property
    def whole_s(self) -> float:
        """Seconds of everything together."""
        return self.budget.seconds if self.budget_of == WHOLE else math.inf

    @property
    def where(self) -> str:
        """Key of durations that depend on the cluster."""
        return f"{self.name} on {self.cluster.name}"


def compiling(stages: Stages) -> list[Stage]:
    """The C++ ops compiled: an installed package has none until its first use. Nothing where they are there."""
    if is_built():
        return []
    return [
        stages.kept(
            COMPILE,
            lambda _: None if is_built() else build_library(),
            _COMPILE_S,
            _COMPILING,
            is_once=True,
        )
    ]


class Road:
    """A program on its way to a plan.

    Attributes:
      asked: what a plan is searched for.
      stages: run it.
      item: the program; None before it is read, and of a profiled graph, which has none.
      built: its problem; None before it is built.
      as_it_is: the program before its batch was put in parts; None where it is whole.
      evaluator: on the live devices, from ``starting`` until ``stop``.
      fleet: times plans on many machines, likewise; None where this one alone measures.
    """

    def __init__(
        self,
        asked: Asked,
        console: rich.console.Console,
        item: Item | None = None,
        as_it_is: Item | None = None,
    ) -> None:
        """Begins.

        Args:
          asked: what is searched for.
          console: is told.
          item: the program, where it has been read.
          as_it_is: the program before its batch was put in parts; None where it is whole.
        """
        self.asked = asked
        self.stages = Stages(console, asked.whole_s)
        self.item = item
        self.as_it_is = as_it_is
        self.built: Problem | None = None
        self.evaluator: RuntimeEvaluator | None = None
        self.fleet: FleetTiming | None = None
        self._workers = contextlib.ExitStack()

    @property
    def program(self) -> Item:
        """The program, from when it is read, of all but profiled graphs."""
        assert self.item is not None  # stages that ask for it come behind the one that reads it
        return self.item

    @property
    def problem(self) -> Problem:
        """The program on the cluster, from when it is built."""
        assert self.built is not None  # stages that ask for it come behind the one that builds it
        return self.built

    @property
    def runtime(self) -> RuntimeEvaluator:
        """The evaluator, while it is started."""
        assert self.evaluator is not None  # stages that ask for it come behind the one that starts it
        return self.evaluator

    @property
    def runs(self) -> bool:
        """The devices can be asked; taken for granted of a program that is not read yet."""
        cluster, item = self.asked.cluster, self.item
        return cluster.is_live and (self.built is None if item is None else item.runs_standalone)

    @property
    def num_ops(self) -> int:
        """0 where it is not known yet."""
        if self.built is not None:
            return self.built.num_ops
        return 0 if self.item is None else self.item.index.num_ops

    @property
    def assumed_ops(self) -> int:
        """A guess where it is not known."""
        return self.num_ops or _OPS

    @property
    def step_s(self) -> float:
        """Step time of the best single device, one op after the other, by the costs; by a rule where none are known."""
        if self.built is None:
            return self.assumed_ops * _OP_S
        return float(self.built.compute_ns.sum(axis=0).min()) / 1e9

    def searching(
        self, run: Callable[[float], object], method: str, share: float = 1.0, parts: int = 1
    ) -> Stage:
        """A search in the simulator, or one of several parts of it.

        Args:
          run: searches.
          method: its name.
          share: of what is left of a whole budget; 0 where it ends by itself.
          parts: how many there are.
        """
        name, seconds = searching(method), self.asked.budget.seconds
        if math.isinf(seconds):
            key = f"{self.asked.budget.evaluations} evaluations of {method}, {self.asked.where}"
            known_s = self.stages.durations.of(key)
            return Stage(name, run, None if known_s is None else known_s / parts, key)
        if math.isinf(self.asked.whole_s):
            return Stage(name, run, seconds / parts)
        ending = f"ending a search of {self.asked.name} with {method}"
        rule_s = _END_S + _END_S_PER_OP * self.num_ops
        if methods.find(method).kind == Kind.LEARNED:
            rule_s += _LEARNED_S
        end_s = self.stages.durations.known(ending, rule_s)
        return Stage(name, run, end_s, ending if share else "", share=share / parts)

    def budget_in(self, seconds: float) -> Budget:
        """Requested budget, cut to so many seconds, if there are any."""
        return Budget(min(max(seconds, LEAST_S), self.asked.budget.seconds), self.asked.budget.evaluations)

    def search(
        self,
        method: str,
        budget: Budget,
        progress: Progress | None = None,
        start: Start | None = None,
        objective: Objective = FASTEST,
        problem: Problem | None = None,
    ) -> SearchResult:
        """Searches in the simulator with the seed and the settings that were asked for.

        Args:
          method: its name.
          budget: of this search.
          progress: shows it.
          start: where it begins.
          objective: what is sought.
          problem: of another form of the program; its own if it is left out.

        Raises:
          InputError, NothingFits: as ``search``.
        """
        spec = methods.find(method)
        decides_order = spec.goes_on and Role.CONTROL not in spec.roles
        return search(
            self.problem if problem is None else problem,
            method,
            budget.seconds,
            budget.evaluations,
            self.asked.seed,
            progress,
            start=start,
            config=self.asked.settings.get(method),
            objective=objective.name,
            slow_down=objective.slow_down,
            robust=self.asked.robust,
            order=self.asked.order if decides_order else NO_ORDER,
        )

    def beside_singles(self, plan: Decisions) -> Decisions:
        """Row 0 is a plan, [1, U], and behind it everything is on one device, for each of them in turn."""
        return Decisions.joined([plan, Decisions(single_device_placements(self.problem))])

    def starting(self, meanwhile: str = "", beside_unplaced: bool = False) -> Stage:
        """The start of workers: by far the most of it is that TensorFlow is imported, which is done once.

        Args:
          meanwhile: what is done while it is imported, if that counts.
          beside_unplaced: as ``RuntimeEvaluator.start`` takes it.
        """

        def start(_: float) -> None:
            self.stages.until_the_end(self._workers)
            self._workers.enter_context(patient())
            self.evaluator = self._workers.enter_context(
                RuntimeEvaluator(self.program, self.problem, as_it_is=self.as_it_is)
            )
            self.evaluator.start(beside_unplaced)
            if asked.fleet is not None and asked.folder is not None:
                fleet = self._workers.enter_context(open_fleet(asked.fleet, asked.cluster))
                self.fleet = self._workers.enter_context(FleetTiming(fleet, self.program, asked.folder))

        asked, again = self.asked, has_forked()
        key = f"starting workers {len(self.asked.cluster.devices)}{' again' if again else meanwhile}"
        rule_s = _START_AGAIN_S if again else _START_S
        if asked.fleet is not None:
            return self.stages.kept(START, start, rule_s + _FLEET_S, f"{key} and the fleet {asked.fleet}")
        return self.stages.kept(START, start, rule_s, key)

    @property
    def split_s(self) -> float:
        """Expected time of splitting the batch into parts, with the problem that comes of it."""
        return self.stages.durations.known(self.split_key, _SPLIT_S + _SPLIT_S_PER_OP * self.assumed_ops)

    @property
    def split_key(self) -> str:
        """The key that it is kept under."""
        return f"splitting the batch of {self.asked.where} in parts"

    @property
    def has_time_to_split(self) -> bool:
        """False where splitting the batch would take half of what is left, or more."""
        return 2 * self.split_s <= self.stages.until_s

    def expect_profile(self, item: Item) -> None:
        """Announces, within a stage, how long measuring what is not kept of a program takes; it is done once."""
        if not self.asked.cluster.is_live or not item.runs_standalone:
            return
        seconds = awaited_s(item, self.asked.cluster)
        self.stages.expect(seconds, is_once=bool(seconds))
        if seconds:
            self.stages.tell(
                f"Profiling takes {roughly(seconds)}, once; it is kept, and later runs need none of it."
            )

    def without_workers(self) -> None:
        """Ends what began to import TensorFlow for workers: it turned out that none is needed."""
        end_unused()

    def stop(self) -> None:
        """Ends the workers, and leaves the fleet."""
        self.evaluator = self.fleet = None
        self._workers.close()


def beside_unplaced(evaluator: RuntimeEvaluator, plan: Decisions, rounds: int) -> dict[str, Any]:
    """Comparison of the plan with the function as it is: verdict, reason and times, as they are kept."""
    try:
        samples = evaluator.race_unplaced(plan, rounds)
    except UnplacedFailed as error:
        return {"beside_unplaced": f"used because the function does not run as it is ({error})"}
    except RaceFailed as error:
        why = f"not run to its end beside the function as it is ({error})"
        return {"is_worth_it": False, "beside_unplaced": why}
    is_worth_it = clearly_slower(samples[1], samples[0])
    times_s, spreads_s = race_times_s(samples), race_spreads_s(samples)
    return {
        "is_worth_it": is_worth_it,
        "beside_unplaced": f"{in_words(is_worth_it)} than the function as it is, on the whole machine",
        "raced_s": times_s[0],
        "unplaced_s": times_s[1],
        "raced_spread_s": spreads_s[0],
        "unplaced_spread_s": spreads_s[1],
    }


def beside(method: str) -> tuple[str, ...]:
    """Names of the methods whose few plans stand beside those of another."""
    if Role.REFERENCE in methods.find(method).roles:
        return ()
    return tuple(spec.name for spec in methods.having(Role.BESIDE) if spec.name != method)


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
        race = Stage(RACE, self._guarded(self._race), count * _RACED_S, is_cut=True)
        racing = [race] if self._rounds else []
        return [
            Stage(starting.name, self._guarded(starting.run), starting.seconds, starting.key),
            Stage(MEASURE, self._guarded(self._measure), count * _TIMED_S, is_cut=True),
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

    def _measure(self, seconds: float) -> None:
        self._road.runtime.limit.ends_in(seconds)
        plans = self._plans()
        self.measured = None if plans is None else self._road.runtime.evaluate(plans.plain)

    def _race(self, seconds: float) -> None:
        self._road.runtime.limit.ends_in(seconds)
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
                with heard():
                    run(seconds)
            except (KeyboardInterrupt, WorkerError, InputError) as error:
                if not self._may_fail:
                    raise
                self.why_not = f"not measured: {str(error) or 'interrupted'}"
                self.measured, self.samples = None, {}
                self._road.stop()

        return guarded
