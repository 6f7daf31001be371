"""The road from a request to a plan, for commands and ``auto_place`` alike: its state, and its stages."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping

import rich.console

from tf_placer.base import interrupt
from tf_placer.base.files import Cache
from tf_placer.base.method_spec import Kind, Role
from tf_placer.calibration.build_problem import awaited_s
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.fleet.address import FleetAddress
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.fleet import FleetTiming
from tf_placer.graph.item import Item
from tf_placer.ops.build import build_library, is_built
from tf_placer.planners.plain import single_device_placements
from tf_placer.planning.forms import Form, in_parts
from tf_placer.planning.outcome import SINGLE, Timed
from tf_placer.planning.stages import Stage, Stages, roughly
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.methods import NO_ORDER, WHOLE, Budget, Objective
from tf_placer.search.recorder import Progress, SearchResult
from tf_placer.search.search import Start, search
from tf_placer.workers.fork_server import end_unused, has_forked

FASTEST = Objective()
COMPILE = "compiling the simulator"
BUILD, PROFILE, AT_ONCE = "building the graph", "profiling ops and links", "plans that cost little"
START, MEASURE, RACE = "starting workers", "measuring plans", "racing them"
SPLIT_STAGE = "splitting the batch into parts"
LEAST_S = 1e-3  # of a search of whose time nothing is left: it makes a round in any case
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
    """Search request: program, devices, method, and budget."""

    name: str  # of the program, under which durations are kept
    cluster: Cluster
    method: str  # "" where nothing is searched
    budget: Budget  # most seconds and evaluations
    budget_of: str = WHOLE  # its seconds are of everything together, or of each ``"search"``
    seed: int = 0
    objective: Objective = FASTEST
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)  # of methods, by name
    robust: bool = False  # search plans that are good under draws of the costs of described devices
    order: str = NO_ORDER  # of execution, as ``search`` takes it
    fleet: FleetAddress | None = None  # measures plans, too
    folder: pathlib.Path | None = None  # of the fleet's journals
    is_anew: bool = False  # measure what was measured before

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
            lambda _: None if is_built() else build_library(is_announced=True),
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
      form: it on the cluster; None before that is known.
      in_parts: the same with its batch in parts; None where that is not tried, or cannot be.
      as_it_is: the program before its batch was put in parts; None where it is whole.
      evaluator: on the live devices, from ``starting`` until ``stop``.
      fleet: times plans on many machines, likewise; None where this one alone measures.
      profiles: where measured costs are kept.
    """

    def __init__(
        self,
        asked: Asked,
        console: rich.console.Console,
        item: Item | None = None,
        as_it_is: Item | None = None,
        is_equal: bool = False,
    ) -> None:
        """Begins.

        Args:
          asked: what is searched for.
          console: is told.
          item: the program, where it has been read.
          as_it_is: the program before its batch was put in parts; None where it is whole.
          is_equal: all searches get equal times, as in a comparison.
        """
        self.asked = asked
        self.stages = Stages(console, asked.whole_s, is_equal=is_equal)
        self.item = item
        self.as_it_is = as_it_is
        self.form: Form | None = None
        self.in_parts: Form | None = None
        self.evaluator: RuntimeEvaluator | None = None
        self.fleet: FleetTiming | None = None
        self.profiles = Cache(is_anew=asked.is_anew)
        self._workers = contextlib.ExitStack()

    @property
    def program(self) -> Item:
        """The program, from when it is read, of all but profiled graphs."""
        assert self.item is not None  # stages that ask for it come behind the one that reads it
        return self.item

    @property
    def problem(self) -> Problem:
        """The program on the cluster, from when it is built."""
        assert self.form is not None  # stages that ask for it come behind the one that builds it
        return self.form.problem

    @property
    def runtime(self) -> RuntimeEvaluator:
        """The evaluator, while it is started."""
        assert self.evaluator is not None  # stages that ask for it come behind the one that starts it
        return self.evaluator

    @property
    def runs(self) -> bool:
        """The devices can be asked; taken for granted of a program that is not read yet."""
        cluster, item = self.asked.cluster, self.item
        return cluster.is_live and (self.form is None if item is None else item.runs_standalone)

    @property
    def num_ops(self) -> int:
        """0 where it is not known yet."""
        if self.form is not None:
            return self.form.problem.num_ops
        return 0 if self.item is None else self.item.index.num_ops

    @property
    def assumed_ops(self) -> int:
        """A guess where it is not known."""
        return self.num_ops or _OPS

    @property
    def step_s(self) -> float:
        """Step time of the best single device, one op after the other, by the costs; by a rule where none are known."""
        if self.form is None:
            return self.assumed_ops * _OP_S
        return float(self.problem.compute_ns.sum(axis=0).min()) / 1e9

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

    def control_s(self, seconds: float) -> float:
        """Seconds for random search, whose share is of everything, also where others leave more."""
        return min(seconds, CONTROL_SHARE * self.asked.whole_s)

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
            budget,
            seed=self.asked.seed,
            progress=progress,
            start=start,
            config=self.asked.settings.get(method),
            objective=objective.name,
            slow_down=objective.slow_down,
            robust=self.asked.robust,
            order=self.asked.order if decides_order else NO_ORDER,
        )

    def put_in_parts(self, batch_statistics: str, costs: str | None = None) -> Form | str:
        """The program with a part of its batch for each device, or one clause on why that cannot be, or does not run.

        Args:
          batch_statistics, costs: as ``in_parts`` takes them.
        """
        assert self.form is not None  # it is built
        form = in_parts(self.form, batch_statistics, costs, self.profiles, self.expect_profile)
        self.in_parts = None if isinstance(form, str) else form
        return form

    def form_of(self, plan: Placement) -> Form:
        """The form of the program that a plan is of."""
        form = self.in_parts or self.form
        assert form is not None  # it is built
        return form.of(plan)

    def timing(self, plan: Placement) -> RuntimeEvaluator:
        """What times a plan, of the batch whole or in parts."""
        form = self.form_of(plan)
        if form.split is None or form.item is None:
            return self.runtime
        return self.runtime.of_form(form.item, form.problem)

    def beside_singles(self, name: str, plan: Decisions) -> list[Timed]:
        """A plan, and behind it everything on one device, for each of them in turn."""
        rows = single_device_placements(self.problem)
        return [
            Timed(name, Placement.from_decisions(self.problem, plan)),
            *(Timed(SINGLE, Placement(self.problem, row)) for row in rows),
        ]

    def starting(self, meanwhile: str = "", beside_unplaced: bool = False) -> Stage:
        """The start of workers: by far the most of it is that TensorFlow is imported, which is done once.

        Args:
          meanwhile: what is done while it is imported, if that counts.
          beside_unplaced: as ``RuntimeEvaluator.start`` takes it.
        """

        def start(_: float) -> None:
            self.stages.until_the_end(self._workers)
            self._workers.enter_context(interrupt.stoppable())
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
        seconds = awaited_s(item, self.asked.cluster, cache=self.profiles)
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


def beside(method: str) -> tuple[str, ...]:
    """Names of the methods whose few plans stand beside those of another."""
    if Role.REFERENCE in methods.find(method).roles:
        return ()
    return tuple(spec.name for spec in methods.having(Role.BESIDE) if spec.name != method)
