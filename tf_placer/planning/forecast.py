"""Request of a run, and its forecast: the phases of reading a program and finding a plan, with their times here."""

from __future__ import annotations

import abc
import dataclasses
import math
import pathlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tf_placer.base.files import Cache
from tf_placer.base.method_spec import Kind, Role
from tf_placer.calibration.build_problem import awaited_s
from tf_placer.cluster.cluster import Cluster
from tf_placer.fleet.address import FleetAddress
from tf_placer.graph.item import Item
from tf_placer.ops.build import build_library, is_built
from tf_placer.planning.forms import Form
from tf_placer.planning.log import Log, Phase, roughly
from tf_placer.problem.analytic_problem import Pin
from tf_placer.problem.placement import PlanFile
from tf_placer.runtime.timing import TURN_S, RuntimeConfig
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, DEFAULT, PLAIN, REFERENCE, WHOLE, Budget, Objective
from tf_placer.workers.fork_server import has_forked

# Method -> setting -> value.
MethodSettings = Mapping[str, Mapping[str, Any]]
LEAST_S = 1e-3  # of a search of whose time nothing is left: it makes a round in any case
CONTROL_SHARE = 0.1  # of the whole time, for random search, also where others leave more
COMPILE = "compiling the simulator"
BUILD, PROFILE, AT_ONCE = "building the graph", "profiling ops and links", "plans that cost little"
RECOMPUTE = "making it fit"
START, MEASURE, RACE = "starting workers", "measuring plans", "racing them"
SPLIT_STAGE, SPLIT = "splitting the batch into parts", "splitting the batch"
FUSE, WRITE = "fusing", "writing"
CONSTRUCTIVE_PLANS = 4
"""Plans of constructive methods that each machine of a fleet measures."""
FUSE_MOST_S = 240.0
"""Of the search for clusters, also where the budget has no seconds."""
# Rules for what was never done on this machine, from an idle one with two cores.
_COMPILE_S, _START_S, _START_AGAIN_S, _OP_S = 40.0, 5.0, 1.0, 5e-5
_TRACE_S, _READ_S, _PROFILE_S, _RECOMPUTE_S = 20.0, 3.0, 55.0, 30.0
_FLEET_S = 15.0
_SPLIT_S, _SPLIT_S_PER_OP = 0.4, 2.5e-4
_AT_ONCE_S, _WRITE_S, _S_PER_OP = 0.5, 0.5, 2e-4
_TIMED_S, _RACED_S = 0.5, 1.5
_LOAD_S, _LOAD_S_PER_OP = 0.05, 5e-5
_WHOLE_SHARE = 0.3  # of two searches, of the one before the batch is in parts
_OPS = 2000  # of a program that was not read yet
# A search ends with the bounds of the program, which are not in its budget; the next of the same program has them.
_END_S, _END_S_PER_OP = 0.15, 6e-5
_LEARNED_S = 5.0  # a policy is traced in its first round
_FUSE_ALONE = 50.0  # share where one device leaves nothing else to search
_REFERENCES = 4  # measurements of a fleet's reference plan, here and there
FINALISTS = 2  # the fastest plans, which race against the best single device and the best plan of each method
_MOST_SHARE = 0.4  # of the whole budget, for measuring and racing
# Searches and turns of a race that can still tell, where there is little time.
_FEWER = ((2, 15), (1, 10))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program(abc.ABC):
    """Source of a program."""

    parts: int = 1  # of the batch (``tf_placer.split``), before any search; 1 for the whole
    batch_statistics: str = "whole"  # of the ``"whole"`` batch, or of each ``"part"``
    graph: str | None = None  # file of a graph that was profiled elsewhere; there is no program behind it
    as_it_is: Item | None = None  # the program before its batch was put in parts; None races with itself

    @property
    def is_anew(self) -> bool:
        """True if its graph is traced anew, which takes long."""
        return False

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name in reports, under which durations are kept."""

    @abc.abstractmethod
    def item(self) -> Item:
        """Reads or builds the program, and splits its batch."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Program to place, devices, and all settings of the run."""

    source: Program
    cluster: Cluster  # a live one is also measured on
    budget: Budget  # most seconds and evaluations
    seed: int = 0  # of the search
    costs: str | None = None  # a word of ``build_problem``
    pins: tuple[Pin, ...] = ()  # ops that must be on some device
    plan: PlanFile | None = None  # a plan to apply instead of searching one
    # What the plan does not say is searched, and what it says of ops that are not there ignored; else it is refused.
    complete_plan: bool = False
    # Ops stay on the devices that the program asks for; False places them anew, None says nothing of them.
    respect_devices: bool | None = None
    # Op name -> device, of ops that have their place already; the program need not have them all.
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: MethodSettings = dataclasses.field(default_factory=dict)  # others have their defaults
    # Whose plan is written: the ``"fastest"``, whoever found it, or that of the ``"method"``.
    write: str = methods.FASTEST
    # What it is made of: each ``"op"`` where it is best, or every ``"layer"`` whole.
    by: str = methods.OP
    objective: Objective = dataclasses.field(default_factory=Objective)
    # Seconds of the budget are of the ``"whole"`` command, or of each ``"search"``; evaluations are of each.
    budget_of: str = WHOLE
    recomputes: bool = False  # where nothing fits, ops are done again in the backward pass
    parks: bool = False  # or what the backward pass reads waits on the host
    tries_parts: bool = False  # the batch is also split over the devices, and the faster form is written
    robust: bool = False  # the plan that is best in the mean over draws of what is not known
    order: str = methods.NO_ORDER  # of execution, as ``search`` takes it
    fuse: bool = False  # clusters of the plan's ops are searched, too
    fleet: FleetAddress | None = None  # where plans are measured besides this machine
    folder: pathlib.Path | None = None  # of the results, and of the fleet's journals
    profiles: Cache = dataclasses.field(default_factory=Cache)  # where measured costs are kept
    method: str = ""  # that searches; "" where methods are compared, or nothing is searched
    compared: tuple[str, ...] = ()  # methods that get the same budget each
    is_call: bool = False  # of a function: no step is traced, and plans of least memory do not race

    @property
    def is_profiled(self) -> bool:
        """True if costs are measured, as far as is known before the program is read."""
        return self.cluster.is_live and self.costs in (None, "profiled")

    @property
    def whole_s(self) -> float:
        """Seconds of everything together."""
        return self.budget.seconds if self.budget_of == WHOLE else math.inf

    @property
    def where(self) -> str:
        """Key of durations that depend on the cluster."""
        return f"{self.source.name} on {self.cluster.name}"

    def budget_in(self, seconds: float) -> Budget:
        """Requested budget, cut to so many seconds, if there are any."""
        return Budget(min(max(seconds, LEAST_S), self.budget.seconds), self.budget.evaluations)


@dataclasses.dataclass(frozen=True)
class LiveConfig:
    """Settings of a live search."""

    # Each has an equal share of the budget and a simulator refitted to all that was measured before.
    searches: int = 3
    rounds: int = 20  # turns of each in the race


def searching(method: str) -> str:
    """Name of the phase of a search."""
    return f"searching with {method}"


def constructive(method: str) -> list[str]:
    """Names of the methods whose few plans stand beside those of another; the single device needs none."""
    if Role.REFERENCE in methods.find(method).roles:
        return []
    return [spec.name for spec in methods.having(Role.BESIDE) if spec.name != method]


def searchers(method: str) -> tuple[str, ...]:
    """Methods of a live search: the one asked for, the plain search if it is its companion, and random search."""
    if methods.find(method).name == REFERENCE:
        return ()
    # The default is made of such: no other stands beside it.
    companions = () if method == DEFAULT else (PLAIN,)
    return tuple(dict.fromkeys((method, *companions, CONTROL)))


def searchers_in(request: Request, config: LiveConfig, turn: int) -> list[str]:
    """Methods that search in a turn: random search only in the last one, unless it is asked for."""
    is_last = turn == config.searches - 1
    return [n for n in searchers(request.method) if n != CONTROL or request.method == CONTROL or is_last]


def runs_live(request: Request, whole: Form | None) -> bool:
    """True if the devices can be asked; taken for granted of a program that is not read yet."""
    is_standalone = whole is None or (whole.item is not None and whole.item.runs_standalone)
    return request.cluster.is_live and is_standalone


def is_given(request: Request, whole: Form | None) -> bool:
    """True if every op has its place, by a plan or by pins; of pins that is known with the problem."""
    if whole is None:
        return request.plan is not None and not request.complete_plan
    is_narrowed = request.plan is not None or bool(request.pins) or bool(request.respect_devices)
    if request.is_call or whole.item is None or not is_narrowed:
        return False
    return bool((whole.problem.allowed.sum(axis=1) == 1).all())


def fuses_here(request: Request) -> bool:
    """True for a function that stays in this process, on its one device: clusters alone are searched."""
    cluster = request.cluster
    return request.is_call and request.fuse and cluster.kind == "logical" and len(cluster.devices) == 1


def compiling(log: Log) -> list[Phase]:
    """The C++ ops compiled: an installed package has none until its first use. Nothing where they are there."""
    return [] if is_built() else [log.expected(COMPILE, _COMPILE_S, "compiling the ops", is_once=True)]


def compile_simulator(log: Log) -> None:
    """Compiles the C++ ops where they are not there."""
    if not is_built():
        with log.phase(COMPILE):
            build_library(is_announced=True)


def expect_profile(request: Request, item: Item, log: Log) -> None:
    """Announces, within a phase, how long measuring what is not kept of a program takes; it is done once."""
    if not request.cluster.is_live or not item.runs_standalone:
        return
    seconds = awaited_s(item, request.cluster, cache=request.profiles)
    log.correct(seconds, is_once=bool(seconds))
    if seconds:
        log.tell(f"Profiling takes {roughly(seconds)}, once; it is kept, and later runs need none of it.")


class Forecast:
    """Phases of a run, each as long as it took here the last time, or else by a rule.

    forecast = Forecast(request, log, whole)  # or without the program, before it is read
    log.expect([*forecast.finding(), *forecast.closing()])
    """

    def __init__(self, request: Request, log: Log, whole: Form | None = None) -> None:
        self._request, self._log, self._whole = request, log, whole
        self._replicas = int(request.cluster.accelerators().sum())
        self._num_ops = 0 if whole is None else whole.problem.num_ops
        self._ops = self._num_ops or _OPS
        # Step time of the best single device, one op after the other.
        self._step_s = self._ops * _OP_S
        if whole is not None:
            self._step_s = float(whole.problem.compute_ns.sum(axis=0).min()) / 1e9
        self._load_s = _LOAD_S + _LOAD_S_PER_OP * self._ops

    def reading(self) -> list[Phase]:
        """Phases of reading a program, tracing or profiling it."""
        request, expected = self._request, self._log.expected
        name = request.source.name
        phases = [*compiling(self._log), expected(BUILD, _READ_S, f"building {name}")]
        if request.source.is_anew:
            phases[-1] = expected(BUILD, _TRACE_S, f"building {name} anew", is_once=True)
        if request.recomputes or request.parks:
            phases.append(expected(RECOMPUTE, _RECOMPUTE_S, f"{RECOMPUTE} {request.where}"))
        if request.is_profiled:
            key = f"profiling {request.where}"  # as long as the last time, when what was measured was kept
            is_once = self._log.durations.of(key) is None
            phases.append(expected(PROFILE, _PROFILE_S, key, is_once=is_once))
        return phases

    def finding(self) -> list[Phase]:
        """Phases of ``find``, in their order."""
        request = self._request
        is_live, runs = request.cluster.is_live, runs_live(request, self._whole)
        if fuses_here(request):
            return [Phase(FUSE, share=1.0)]
        rule_s = _AT_ONCE_S + _S_PER_OP * self._ops
        at_once = self._log.expected(AT_ONCE, rule_s, f"{AT_ONCE} for {request.source.name}")
        if request.compared:
            searches = [self._search(name, float(methods.find(name).goes_on)) for name in request.compared]
            return [*searches, *(self.timing(len(request.compared)) if is_live else [])]
        if is_given(request, self._whole):
            return [at_once, *(self.timing(2, " while the graph is built") if is_live else [])]
        if request.objective.is_memory:
            plans = 1 + len(request.cluster.devices)
            timed = self.timing(plans, is_raced=not request.is_call) if runs else []
            return [at_once, self._search(request.method), *timed]
        if not runs:
            return [at_once, *self._simulated(), *([Phase(FUSE)] if request.fuse else [])]
        # Half of the budget, or nearly all where there is nothing else to search.
        share = _FUSE_ALONE if len(request.cluster.devices) == 1 else 1.0
        fusing = Phase(FUSE, FUSE_MOST_S) if math.isinf(request.whole_s) else Phase(FUSE, share=share)
        return [*self._live(), *([fusing] if request.fuse else [])]

    def timing(self, count: int, meanwhile: str = "", is_raced: bool = True) -> list[Phase]:
        """Phases from the start of workers to a race of so many plans."""
        racing = [Phase(RACE, (count + 1) * _RACED_S, is_cut=True)] if is_raced else []
        return [self.starting(meanwhile), Phase(MEASURE, count * _TIMED_S, is_cut=True), *racing]

    def starting(self, meanwhile: str = "") -> Phase:
        """The start of workers: by far the most of it is that TensorFlow is imported, which is done once.

        ``meanwhile`` is what is done while it is imported, if that counts.
        """
        again, fleet = has_forked(), self._request.fleet
        key = f"starting workers {len(self._request.cluster.devices)}{' again' if again else meanwhile}"
        rule_s = _START_AGAIN_S if again else _START_S
        if fleet is not None:
            return self._log.expected(START, rule_s + _FLEET_S, f"{key} and the fleet {fleet}")
        return self._log.expected(START, rule_s, key)

    def closing(self) -> list[Phase]:
        """Phases after the plan: what splitting the batch over the devices gives, the report, the files."""
        request, source, replicas = self._request, self._request.source, self._replicas
        is_split = self.tries_parts
        ops = self._ops * (replicas if is_split else 1)
        key = f"writing {request.where}{' in parts' if is_split else ''}"
        writing = self._log.expected(WRITE, _WRITE_S + _S_PER_OP * ops, key)
        if request.tries_parts or source.graph or source.parts > 1 or replicas < 2:
            return [writing]
        key = f"splitting the batch of {source.name} over {replicas} devices"
        rule_s = self.splitting.seconds or 0.0
        return [self._log.expected(SPLIT, rule_s, key, is_optional=True), writing]

    @property
    def splitting(self) -> Phase:
        """The phase that splits the batch into parts, with the problem that comes of it."""
        rule_s = _SPLIT_S + _SPLIT_S_PER_OP * self._replicas * self._ops
        return self._log.expected(
            SPLIT_STAGE, rule_s, f"splitting the batch of {self._request.where} in parts"
        )

    @property
    def tries_parts(self) -> bool:
        """True if the batch is also put in parts, one for each device, and there is as long left for the search."""
        return self._request.tries_parts and 2 * (self.splitting.seconds or 0.0) <= self._log.until_s

    @property
    def config(self) -> LiveConfig:
        """The live search as it is meant to be, or with fewer searches and turns where measuring takes too much."""
        config, whole_s = LiveConfig(), self._request.whole_s
        if math.isfinite(whole_s) and searchers(self._request.method):
            for searches, rounds in _FEWER:
                if self._measuring_s(config) + self._racing_s(config) <= _MOST_SHARE * whole_s:
                    break
                config = dataclasses.replace(config, searches=searches, rounds=rounds)
        return config

    def _measuring_s(self, config: LiveConfig) -> float:
        request, timing = self._request, RuntimeConfig()
        plans = len(request.cluster.devices) + config.searches * len(searchers(request.method))
        plans += 0 if request.fleet is None else CONSTRUCTIVE_PLANS + _REFERENCES
        return plans * (self._load_s + (timing.warmup_steps + timing.steps) * self._step_s)

    def _racing_s(self, config: LiveConfig, others: int = 3) -> float:
        """Of the finalists and others: the best single device, that of another method, and the program as it is."""
        return (FINALISTS + others) * (self._load_s + config.rounds * max(TURN_S, self._step_s))

    def _search(self, method: str, share: float = 1.0, parts: float = 1) -> Phase:
        """A search in the simulator, or one of several parts of it.

        ``share`` is of what is left of a whole budget; 0 where it ends by itself.
        """
        request, name, seconds = self._request, searching(method), self._request.budget.seconds
        if math.isinf(seconds):
            key = f"{request.budget.evaluations} evaluations of {method}, {request.where}"
            before_s = self._log.durations.of(key)
            return Phase(name, None if before_s is None else before_s / parts, key)
        if math.isinf(request.whole_s):
            return Phase(name, seconds / parts)
        ending = f"ending a search of {request.source.name} with {method}"
        rule_s = _END_S + _END_S_PER_OP * self._num_ops
        if methods.find(method).kind == Kind.LEARNED:
            rule_s += _LEARNED_S
        ending_s = self._log.durations.of(ending, rule_s)
        return Phase(name, ending_s, ending if share else "", share=share / parts)

    def _simulated(self) -> list[Phase]:
        """The search with the method, and then random search."""
        method, splits = self._request.method, self.tries_parts
        spec, share = methods.find(method), 1 - CONTROL_SHARE
        is_control = Role.CONTROL in spec.roles
        if not splits and (not spec.goes_on or is_control):
            return [self._search(method, float(spec.goes_on))]
        control = [] if is_control else [self._search(CONTROL, CONTROL_SHARE)]
        if not splits:
            return [self._search(method, share), *control]
        before, after = (self._search(method, share, 1 / part) for part in (_WHOLE_SHARE, 1 - _WHOLE_SHARE))
        return [before, self.splitting, after, *control]

    def _live(self) -> list[Phase]:
        """A live search, from the start of the workers to the race."""
        request, config, splits = self._request, self.config, self.tries_parts
        method, names = request.method, searchers(request.method)
        shares = dict.fromkeys(names, 1 / max(len(names), 1))
        if method != CONTROL:
            shares = dict.fromkeys(names, (1 - CONTROL_SHARE) / max(len(names) - 1, 1))
            shares[CONTROL] = CONTROL_SHARE
        order = [MEASURE]
        for turn in range(config.searches):
            order += [
                word for name in searchers_in(request, config, turn) for word in (searching(name), MEASURE)
            ]
        if splits and names:
            order += [SPLIT_STAGE, MEASURE, *[searching(method), MEASURE] * config.searches]
        counts = Counter([*order, RACE])
        where = f"{request.where} with {method}{', also in parts' if splits else ''}"
        on_fleet = "" if request.fleet is None else f", on the fleet {request.fleet}"
        measured_s = self._measuring_s(config) * (2 if splits else 1)
        key = f"measuring {config.searches} {where}{on_fleet}"
        measuring = self._log.expected(MEASURE, measured_s, key, is_cut=True)
        raced_s = self._racing_s(config, 5 if splits else 3)
        racing = self._log.expected(RACE, raced_s, f"racing {config.rounds} {where}", is_cut=True)
        phase_of = {
            searching(name): self._search(name, shares[name], counts[searching(name)]) for name in names
        }
        measured_s = (measuring.seconds or 0.0) / counts[MEASURE]
        phase_of[MEASURE] = dataclasses.replace(measuring, seconds=measured_s)
        phase_of[SPLIT_STAGE] = self.splitting
        # The plan that is written is loaded once more, and a step of it is traced.
        tracing = Phase(RACE, 2 * self._load_s + (RuntimeConfig().warmup_steps + 1) * self._step_s)
        started = self.starting(" while the graph is built")
        return [started, *(phase_of[name] for name in order), racing, tracing]
