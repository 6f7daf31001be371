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
from tf_placer.problem.pins import Pin
from tf_placer.problem.placement import PlanFile
from tf_placer.runtime.timing import TURN_S, RuntimeConfig
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, DEFAULT, PLAIN, REFERENCE, WHOLE, Budget, Objective
from tf_placer.workers.fork_server import has_forked

# Method -> setting -> value.
MethodSettings = Mapping[str, Mapping[str, Any]]
LEAST_S = 1e-3  # of a search of whose time nothing is left: it makes a round in any case
CONTROL_SHARE = 0.1  # of the time of all searches, for random search
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
        """Reads or builds it, and splits its batch."""


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
    write: str = (
        methods.FASTEST
    )  # whose plan: the ``"fastest"``, whoever found it, or that of the ``"method"``
    by: str = (
        methods.OP
    )  # what the plan is made of: each ``"op"`` where it is best, or every ``"layer"`` whole
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
    def is_made_to_fit(self) -> bool:
        """True where a step too large for its devices is to be changed."""
        return self.recomputes or self.parks

    @property
    def is_free(self) -> bool:
        """True where no op has its place already."""
        return not (self.pins or self.held or self.plan or self.respect_devices)

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

    def control_s(self, seconds: float) -> float:
        """Seconds for random search, whose share is of everything, also where others leave more."""
        return min(seconds, CONTROL_SHARE * self.whole_s)


@dataclasses.dataclass(frozen=True)
class LiveConfig:
    """Settings of a live search."""

    # Each has an equal share of the budget and a simulator refitted to all that was measured before.
    searches: int = 3
    # The fastest plans, which race against the best single device and the best plan of each method.
    finalists: int = 2
    rounds: int = 20  # turns of each in the race
    confidence: float = 0.95  # that a plan is faster, turn by turn, before it is recommended


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


def compiling(log: Log) -> list[Phase]:
    """The C++ ops compiled: an installed package has none until its first use. Nothing where they are there."""
    return [] if is_built() else [log.expected(COMPILE, _COMPILE_S, "compiling the ops", is_once=True)]


def compile_simulator(log: Log) -> None:
    """Compiles the C++ ops where they are not there."""
    if not is_built():
        with log.phase(COMPILE):
            build_library(is_announced=True)


def reading(request: Request, log: Log) -> list[Phase]:
    """Phases of reading a program, tracing or profiling it."""
    name = request.source.name
    build = log.expected(BUILD, _READ_S, f"building {name}")
    if request.source.is_anew:
        build = log.expected(BUILD, _TRACE_S, f"building {name} anew", is_once=True)
    key = f"profiling {request.where}"  # as long as the last time, when what was measured was kept
    profile = log.expected(PROFILE, _PROFILE_S, key, is_once=log.durations.of(key) is None)
    again = (
        [log.expected(RECOMPUTE, _RECOMPUTE_S, f"{RECOMPUTE} {request.where}")]
        if request.is_made_to_fit
        else []
    )
    return [*compiling(log), build, *again, *([profile] if request.is_profiled else [])]


def expect_profile(request: Request, item: Item, log: Log) -> None:
    """Announces, within a phase, how long measuring what is not kept of a program takes; it is done once."""
    if not request.cluster.is_live or not item.runs_standalone:
        return
    seconds = awaited_s(item, request.cluster, cache=request.profiles)
    log.correct(seconds, is_once=bool(seconds))
    if seconds:
        log.tell(f"Profiling takes {roughly(seconds)}, once; it is kept, and later runs need none of it.")


def finding(request: Request, whole: Form | None, log: Log) -> list[Phase]:
    """Phases of ``find``, in their order.

    Args:
      request: what is asked for.
      whole: the program; None before it is read.
      log: remembers durations.
    """
    method, devices, size = request.method, len(request.cluster.devices), _Size(request, whole)
    rule_s, runs = _AT_ONCE_S + _S_PER_OP * size.ops, runs_live(request, whole)
    at_once = log.expected(AT_ONCE, rule_s, f"{AT_ONCE} for {request.source.name}")
    if request.compared:
        searches = [
            _search(request, size, log, name, float(methods.find(name).goes_on)) for name in request.compared
        ]
        is_live = request.cluster.is_live
        return [*searches, *(timing(request, len(request.compared), log) if is_live else [])]
    if is_given(request, whole):
        return [
            at_once,
            *(timing(request, 2, log, " while the graph is built") if request.cluster.is_live else []),
        ]
    if request.objective.is_memory:
        is_raced = not request.is_call
        timed = timing(request, 1 + devices, log, is_raced=is_raced) if runs else []
        return [at_once, _search(request, size, log, method), *timed]
    if runs:
        # Half of the budget, or nearly all where there is nothing else to search.
        share = _FUSE_ALONE if len(request.cluster.devices) == 1 else 1.0
        fusing = Phase(FUSE, FUSE_MOST_S) if math.isinf(request.whole_s) else Phase(FUSE, share=share)
        return [*_live(request, size, log), *([fusing] if request.fuse else [])]
    return [at_once, *_simulated(request, size, log), *([Phase(FUSE)] if request.fuse else [])]


def timing(request: Request, count: int, log: Log, meanwhile: str = "", is_raced: bool = True) -> list[Phase]:
    """Phases from the start of workers to a race of so many plans."""
    racing = [Phase(RACE, (count + 1) * _RACED_S, is_cut=True)] if is_raced else []
    return [starting(request, log, meanwhile), Phase(MEASURE, count * _TIMED_S, is_cut=True), *racing]


def starting(request: Request, log: Log, meanwhile: str = "") -> Phase:
    """The start of workers: by far the most of it is that TensorFlow is imported, which is done once.

    Args:
      request: on live devices.
      log: remembers durations.
      meanwhile: what is done while it is imported, if that counts.
    """
    again = has_forked()
    key = f"starting workers {len(request.cluster.devices)}{' again' if again else meanwhile}"
    rule_s = _START_AGAIN_S if again else _START_S
    if request.fleet is not None:
        return log.expected(START, rule_s + _FLEET_S, f"{key} and the fleet {request.fleet}")
    return log.expected(START, rule_s, key)


def closing(request: Request, whole: Form | None, log: Log) -> list[Phase]:
    """Phases after the plan: what splitting the batch over the devices gives, the report, the files."""
    source, replicas = request.source, int(request.cluster.accelerators().sum())
    is_split = tries_parts(request, whole, log)
    ops = _Size(request, whole).ops * (replicas if is_split else 1)
    key = f"writing {request.where}{' in parts' if is_split else ''}"
    writing = log.expected(WRITE, _WRITE_S + _S_PER_OP * ops, key)
    if request.tries_parts or source.graph or source.parts > 1 or replicas < 2:
        return [writing]
    key = f"splitting the batch of {source.name} over {replicas} devices"
    rule_s = splitting(request, whole, log).seconds or 0.0
    return [log.expected(SPLIT, rule_s, key, is_optional=True), writing]


def splitting(request: Request, whole: Form | None, log: Log) -> Phase:
    """The phase that splits the batch into parts, with the problem that comes of it."""
    ops = int(request.cluster.accelerators().sum()) * _Size(request, whole).ops
    rule_s = _SPLIT_S + _SPLIT_S_PER_OP * ops
    return log.expected(SPLIT_STAGE, rule_s, f"splitting the batch of {request.where} in parts")


def config_within(request: Request, whole: Form | None) -> LiveConfig:
    """The live search as it is meant to be, or with fewer searches and turns where measuring would take too much."""
    config, size = LiveConfig(), _Size(request, whole)
    if math.isfinite(request.whole_s) and searchers(request.method):
        for searches, rounds in _FEWER:
            if size.measuring_s(config) + size.racing_s(config) <= _MOST_SHARE * request.whole_s:
                break
            config = dataclasses.replace(config, searches=searches, rounds=rounds)
    return config


class _Size:
    """Size of a program, by rules before it is read."""

    def __init__(self, request: Request, whole: Form | None) -> None:
        self._request, self.num_ops = request, 0 if whole is None else whole.problem.num_ops
        self.ops = self.num_ops or _OPS
        # Step time of the best single device, one op after the other.
        self.step_s = self.ops * _OP_S
        if whole is not None:
            self.step_s = float(whole.problem.compute_ns.sum(axis=0).min()) / 1e9
        self.load_s = _LOAD_S + _LOAD_S_PER_OP * self.ops
        self.whole = whole

    def measuring_s(self, config: LiveConfig) -> float:
        plans = len(self._request.cluster.devices) + config.searches * len(searchers(self._request.method))
        plans += 0 if self._request.fleet is None else CONSTRUCTIVE_PLANS + _REFERENCES
        timing = RuntimeConfig()
        return plans * (self.load_s + (timing.warmup_steps + timing.steps) * self.step_s)

    def racing_s(self, config: LiveConfig) -> float:
        # The best single device, that of another method, and the program as it is.
        return (config.finalists + 3) * self.racer_s(config)

    def racer_s(self, config: LiveConfig) -> float:
        return self.load_s + config.rounds * max(TURN_S, self.step_s)


def _search(
    request: Request, size: _Size, log: Log, method: str, share: float = 1.0, parts: float = 1
) -> Phase:
    """A search in the simulator, or one of several parts of it.

    Args:
      request: whose budget is shared.
      size: of the program.
      log: remembers durations.
      method: its name.
      share: of what is left of a whole budget; 0 where it ends by itself.
      parts: how many there are.
    """
    name, seconds = searching(method), request.budget.seconds
    if math.isinf(seconds):
        key = f"{request.budget.evaluations} evaluations of {method}, {request.where}"
        before_s = log.durations.of(key)
        return Phase(name, None if before_s is None else before_s / parts, key)
    if math.isinf(request.whole_s):
        return Phase(name, seconds / parts)
    ending = f"ending a search of {request.source.name} with {method}"
    rule_s = _END_S + _END_S_PER_OP * size.num_ops
    if methods.find(method).kind == Kind.LEARNED:
        rule_s += _LEARNED_S
    return Phase(name, log.durations.of(ending, rule_s), ending if share else "", share=share / parts)


def _simulated(request: Request, size: _Size, log: Log) -> list[Phase]:
    """The search with the method, and then random search."""
    method, splits = request.method, tries_parts(request, size.whole, log)
    spec = methods.find(method)
    if not splits and (not spec.goes_on or Role.CONTROL in spec.roles):
        return [_search(request, size, log, method, float(spec.goes_on))]
    share = 1 - CONTROL_SHARE
    control = [] if Role.CONTROL in spec.roles else [_search(request, size, log, CONTROL, CONTROL_SHARE)]
    if not splits:
        return [_search(request, size, log, method, share), *control]
    first, second = (
        _search(request, size, log, method, share, 1 / part) for part in (_WHOLE_SHARE, 1 - _WHOLE_SHARE)
    )
    return [first, splitting(request, size.whole, log), second, *control]


def tries_parts(request: Request, whole: Form | None, log: Log) -> bool:
    """True if the batch is also put in parts, one for each device, and there is as long left for the search."""
    return request.tries_parts and 2 * (splitting(request, whole, log).seconds or 0.0) <= log.until_s


def _live(request: Request, size: _Size, log: Log) -> list[Phase]:
    """A live search, from the start of the workers to the race."""
    method, config, splits = (
        request.method,
        config_within(request, size.whole),
        tries_parts(request, size.whole, log),
    )
    names = searchers(method)
    shares = dict.fromkeys(names, 1 / max(len(names), 1))
    if method != CONTROL:
        shares = dict.fromkeys(names, (1 - CONTROL_SHARE) / max(len(names) - 1, 1)) | {CONTROL: CONTROL_SHARE}
    order = [MEASURE]
    for turn in range(config.searches):
        order += [word for name in searchers_in(request, config, turn) for word in (searching(name), MEASURE)]
    if splits and names:
        order += [SPLIT_STAGE, MEASURE, *[searching(method), MEASURE] * config.searches]
    counts = Counter([*order, RACE])
    where = f"{request.where} with {method}"
    in_parts = ", also in parts" if splits else ""
    on_fleet = "" if request.fleet is None else f", on the fleet {request.fleet}"
    measured_s = size.measuring_s(config) * (2 if splits else 1)
    raced_s = size.racing_s(config) + (2 * size.racer_s(config) if splits else 0.0)
    measuring = log.expected(
        MEASURE, measured_s, f"measuring {config.searches} {where}{in_parts}{on_fleet}", is_cut=True
    )
    racing = log.expected(RACE, raced_s, f"racing {config.rounds} {where}{in_parts}", is_cut=True)
    phase_of = {
        searching(name): _search(request, size, log, name, shares[name], counts[searching(name)])
        for name in names
    }
    phase_of[MEASURE] = dataclasses.replace(measuring, seconds=(measuring.seconds or 0.0) / counts[MEASURE])
    phase_of[SPLIT_STAGE] = splitting(request, size.whole, log)
    # The plan that is written is loaded once more, and a step of it is traced.
    tracing_s = 2 * size.load_s + (RuntimeConfig().warmup_steps + 1) * size.step_s
    return [
        starting(request, log, " while the graph is built"),
        *(phase_of[name] for name in order),
        racing,
        Phase(RACE, tracing_s),
    ]


def searchers_in(request: Request, config: LiveConfig, turn: int) -> list[str]:
    """Methods that search in a turn: random search only in the last one, unless it is asked for."""
    is_last = turn == config.searches - 1
    return [n for n in searchers(request.method) if n != CONTROL or request.method == CONTROL or is_last]
