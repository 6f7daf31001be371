"""A method at work: its context and starting plans, and the run that asks it, evaluates its plans and tells it."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import Learner, WarmStart
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator, simulator_beside
from tf_placer.grouper.memory_repair import repairs
from tf_placer.planners.plain import single_device_placements
from tf_placer.planners.planner import Improving, Proving
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem, made_once
from tf_placer.search.checkpoint import Checkpoint, Kept
from tf_placer.search.known import NO_ORDER


def configured(spec: MethodSpec, config: object | None = None) -> Any:
    """The settings of a method.

    Args:
      spec: its row.
      config: an instance of ``spec.config``, or name -> value of some of its fields; the others are as
        in the row's default.

    Raises:
      InputError: neither of the two, a setting that the method lacks, or a value that is not possible.
    """
    default = spec.config() if spec.default is None else spec.default
    if config is None:
        return default
    if type(config) is spec.config:
        return config
    if not isinstance(config, Mapping):
        raise InputError(
            f"config is {arguments.shown(config)}; give a {spec.config.__name__}, the settings of method "
            f"{spec.name!r}, or a dict of some of them"
        )
    fields = [field.name for field in dataclasses.fields(spec.config)]
    for name in config:
        if name not in fields:
            hint = arguments.nearest(str(name), fields) if fields else "it has none: give none"
            raise InputError(f"config: method {spec.name!r} has no setting {arguments.shown(name)}; {hint}")
    hints = typing.get_type_hints(spec.config)
    try:
        values = {name: _taken(name, value, hints[name]) for name, value in config.items()}
        if (
            "preset" in values
        ):  # says what the fields are that are not given (``tf_placer/base/method_spec.py``)
            default = spec.config(preset=values["preset"])
        return dataclasses.replace(default, **values)
    except InputError as error:
        raise InputError(f"config: method {spec.name!r}: {error}") from None


def recorded(config: Any) -> dict[str, Any]:
    """Settings as JSON data: what results and checkpoints keep of them."""
    return dict(dataclasses.asdict(config))


def _taken(name: str, value: object, hint: object) -> object:
    """A value as the type of its field; other types than these are the class's own to check."""
    if hint is bool:
        return arguments.truth(name, value)
    if hint is int:
        return arguments.whole_number(name, value)
    if hint is float:
        return arguments.number(name, value)
    if hint is str:
        arguments.instance_of(name, value, str, "give a text")  # which texts there are the class says
    return value


@dataclasses.dataclass(frozen=True, eq=False)
class Round:
    """B placements that a method tried together, or the best of those that it tried.

    Raises:
      InputError: the decisions are none, as many evaluations as there cannot be, or a negative time.
    """

    decisions: Decisions  # or devices alone, [B, U] int32; of tensors only the best row is ever copied out
    runtime_s: np.ndarray  # [B]; not meaningful where not ``valid``
    valid: np.ndarray  # [B] bool, the placement runs and fits
    evaluations: int | None = None  # placements tried to find these; None: these and no others
    found_by: str = ""  # the method inside a method
    proven_s: float = 0.0  # no placement that fits takes less; 0: nothing is proven
    order: str = NO_ORDER  # the rule that made their priorities

    def __post_init__(self) -> None:
        decisions: Any = self.decisions
        if not isinstance(decisions, Decisions):
            object.__setattr__(self, "decisions", Decisions(decisions))
        if self.evaluations is not None:
            arguments.whole_number("evaluations", self.evaluations, least=0)
        arguments.instance_of("found_by", self.found_by, str, "give the name of a method")
        arguments.number("proven_s", self.proven_s, least=0)

    @property
    def times_s(self) -> np.ndarray:
        """[B] step times, infinite where a placement does not run."""
        return np.where(self.valid, self.runtime_s, np.inf)


@dataclasses.dataclass
class Best:
    """The fastest plan so far, and its origin."""

    plan: Decisions | None = None  # of one row
    runtime_s: float = math.inf
    found_by: str = ""
    order: str = NO_ORDER

    def take(self, batch: Round, rows: int | None = None) -> None:
        """Keeps the fastest of a round's first ``rows`` plans where it is faster; of equal ones the earliest stays."""
        times_s = batch.times_s[:rows]
        if times_s.min(initial=math.inf) < self.runtime_s:
            row = int(times_s.argmin())
            self.plan, self.runtime_s = batch.decisions.row(row), float(times_s[row])
            self.found_by, self.order = batch.found_by, batch.order


class Starts:
    """Everything on one device, and the plans that constructive methods make at once: whatever of them fits.

    Where the host alone holds a model, a search that begins there and is paid relative to that learns little: the
    devices filled in order are often several times as fast. The constructed plans are made when first asked for, and
    are judged by the simulator: what is measured on the runtime is what was before, every single device.

        starts = Starts(problem, evaluator, methods.having(Role.BESIDE))
        starts.plans[0], starts.reference_s, starts.single_device_s
    """

    def __init__(self, problem: Problem, evaluator: Evaluator, planners: Sequence[MethodSpec]) -> None:
        """Times the single devices.

        Args:
          problem: what is placed.
          evaluator: of the search.
          planners: constructive methods, whose plans are looked at beside the single devices; of the one that makes
            those (``Role.REFERENCE``) only the name is used.
        """
        self._problem = problem
        self._evaluator = evaluator
        self._planners = [spec for spec in planners if Role.REFERENCE not in spec.roles]
        self._single_by = next((spec.name for spec in planners if Role.REFERENCE in spec.roles), "")
        self._singles = single_device_placements(problem)
        measured = evaluator.evaluate(self._singles)
        self._single_s = np.where(measured.status == Status.OK, measured.runtime_s, np.inf)

    @property
    def single_device_s(self) -> float | None:
        """Step time of the best single device, by the evaluator; None when the step runs on none."""
        return float(self._single_s.min()) if np.isfinite(self._single_s).any() else None

    @property
    def plans(self) -> np.ndarray:
        """[K, U] int32, K >= 1: what runs and fits, the fastest first; a single device wins a tie.

        Where nothing does, the one plan that exceeds the devices' memory least.
        """
        return self._found[0]

    @property
    def made_by(self) -> tuple[str, ...]:
        """Names of the methods that made ``plans``."""
        return self._found[2]

    @property
    def reference_s(self) -> float:
        """Step time of the first plan, above 0: what rewards are relative to.

        On the runtime that of the best single device, times what the simulator says of the first plan beside it; where
        no single device runs, the simulator's, which rewards can be relative to as well.
        """
        return max(self._found[1], 1e-9)

    @functools.cached_property
    def _found(self) -> tuple[np.ndarray, float, tuple[str, ...]]:
        """``plans``, ``reference_s`` and ``made_by``."""
        simulator = simulator_beside(self._evaluator, self._problem)
        built = [made_once(spec.build, self._problem, spec.config(), 0) for spec in self._planners]
        every = [self._single_by] * len(self._singles)
        every += [spec.name for spec, rows in zip(self._planners, built, strict=True) for _ in rows]
        rows = np.concatenate([self._singles, *built])
        positions = np.sort(np.unique(rows, axis=0, return_index=True)[1])
        rows, made_by = rows[positions], [every[i] for i in positions]
        simulated = simulator.evaluate(rows)
        simulated_s = np.where(simulated.status == Status.OK, simulated.runtime_s, np.inf)
        times_s = simulated_s.copy()
        single_s = self._single_s[np.sort(np.unique(self._singles, axis=0, return_index=True)[1])]
        singles = len(single_s)
        times_s[:singles] = single_s
        best = int(np.argmin(single_s))
        if np.isfinite(single_s[best]):
            # The simulator's seconds and the evaluator's differ: the best single device, which both know, joins them.
            in_simulator_s = float(simulated_s[best])
            if np.isinf(in_simulator_s):
                in_simulator_s = float(simulator.times(tf.constant(rows[best : best + 1])).runtime_s[0])
            times_s[singles:] *= single_s[best] / max(in_simulator_s, 1e-9)
        runs = np.flatnonzero(np.isfinite(times_s))
        if len(runs):
            order = runs[np.argsort(times_s[runs], kind="stable")]
            return rows[order], float(times_s[order[0]]), tuple(made_by[i] for i in order)
        return self._nearest_to_fitting(simulator, rows, made_by)

    def _nearest_to_fitting(
        self, simulator: SimulatedEvaluator, rows: np.ndarray, made_by: list[str]
    ) -> tuple[np.ndarray, float, tuple[str, ...]]:
        """The row, or single device less what does not fit there, that exceeds memory least; its time without limit."""
        certain, _ = repairs(self._problem)
        rows = np.concatenate([rows, [certain(row) for row in self._singles]])
        times = simulator.times(tf.constant(rows))
        over = np.maximum(times.peak_bytes.numpy() - self._problem.cluster.capacity_bytes(), 0).sum(axis=1)
        least = int(np.lexsort((times.runtime_s.numpy(), over))[0])
        by = [*made_by, *[self._single_by] * len(self._singles)]
        return rows[least : least + 1], float(times.runtime_s[least]), (by[least],)


@dataclasses.dataclass(frozen=True)
class Context:
    """Context of a search, given to every method.

    Attributes:
      problem: what to place.
      evaluator: times placements.
      starts: the plans that cost nothing to find; ``reference_s`` is their best one's, for rewards.
      given: [K, U], K >= 1, where a method that improves a placement is told to begin; None when it is not.
      seed: fixes everything random.
      rounds: that this search had made when it was interrupted; the method goes on after them.
      checkpoint: keeps what a method has learned, see ``Checkpoint.track``.
      evaluations_left: says how many more the budget allows, infinite where only time counts.
      used: says what share of the budget is used up, from 0 on.
      priority_of_op: [N] int32 of every plan that is tried; None where plans decide no order.
    """

    problem: Problem
    evaluator: Evaluator
    starts: Starts
    given: np.ndarray | None
    seed: int
    rounds: int
    checkpoint: Checkpoint | Kept
    evaluations_left: Callable[[], float] = lambda: math.inf
    used: Callable[[], float] = lambda: 0.0
    priority_of_op: np.ndarray | None = None

    def ordered(self, decisions: Decisions) -> Decisions:
        """The plans with the priorities of this search, where it has any; those that have their own keep them."""
        if self.priority_of_op is None or decisions.priority_of_op is not None:
            return decisions
        ranks = np.broadcast_to(self.priority_of_op, (len(decisions), len(self.priority_of_op)))
        return dataclasses.replace(decisions, priority_of_op=ranks)

    @property
    def plans(self) -> np.ndarray:
        """[K, U], where a method that improves a placement may begin, the fastest first: those given, if any are."""
        return self.starts.plans if self.given is None else self.given

    @property
    def begins(self) -> np.ndarray:
        """[K, U], what such a method tries first: all that are given, or else the fastest of what costs nothing."""
        return self.starts.plans[:1] if self.given is None else self.given

    @property
    def start(self) -> np.ndarray:
        """[U], the first of ``plans``."""
        return self.plans[0]

    @property
    def start_by(self) -> str:
        """Source of ``start``: the name of a method; ``"start"`` where it was given."""
        return self.starts.made_by[0] if self.given is None else "start"

    @property
    def reference_s(self) -> float:
        """Reference time of rewards in seconds, whatever plan the search begins with."""
        return self.starts.reference_s


def evaluated(context: Context, plans: np.ndarray | tf.Tensor | Decisions) -> Round:
    """Evaluates placements [B, U], in the order that the context has, or all that B plans decide, as one round."""
    decisions = context.ordered(decisions_of(plans, context.problem))
    if isinstance(context.evaluator, SimulatedEvaluator) and decisions.cluster_of_op is None:
        times = context.evaluator.times(decisions)
        return Round(decisions, times.runtime_s.numpy(), times.fits.numpy())
    measurement = context.evaluator.evaluate(decisions.plain)
    return Round(decisions, measurement.runtime_s, measurement.status == Status.OK)


class Method(Protocol):
    """A search method at work on one problem.

        while len(decisions := method.ask(most)):
            method.tell(decisions, evaluated(context, decisions))

    ``state`` is all that its next plans depend on.
    """

    def ask(self, most: float) -> Decisions | np.ndarray:
        """Plans to evaluate, or only their devices [B, U]; those over ``most`` are not counted. No plan: the end."""

    def tell(self, decisions: Decisions, times: Round) -> None:
        """Takes in how the plans fared that ``ask`` returned last."""

    def state(self) -> dict[str, Any]:
        """Arrays, numbers and JSON data by name."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` returned, also in another process."""


class _Drawing:
    """A learner as a ``Method``; its state is in variables."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._actions: Any = None

    def ask(self, most: float) -> Any:
        self._actions, placements = self._learner.propose()
        return placements

    def tell(self, decisions: Decisions, times: Round) -> None:
        self._learner.learn(self._actions, tf.constant(times.runtime_s), tf.constant(times.valid))


class _Proposing:
    """A planner that proposes and learns, as a ``Method``."""

    def __init__(self, planner: Improving) -> None:
        self._planner = planner
        if isinstance(planner, Proving):
            self.proven_s = planner.proven_s

    def ask(self, most: float) -> np.ndarray:
        return self._planner.propose()

    def tell(self, decisions: Decisions, times: Round) -> None:
        self._planner.learn(decisions.device_of_unit, times.times_s)


# A burst inside the simulator: long enough to cost nothing, short enough for progress and Ctrl-C.
_BURST_S = 0.25
_FIRST_BURST = 64


class Run:
    """A method at work: asks it for plans, evaluates them, tells it their times, and keeps the best of them."""

    def __init__(self, spec: MethodSpec, config: Any, context: Context) -> None:
        """Makes nothing yet.

        Args:
          spec: row of the method.
          config: an instance of ``spec.config``.
          context: of the search; the method continues where ``context.checkpoint`` left it.
        """
        self.spec = spec
        self.context = context
        self.best = Best()
        self.goes_on = True
        self._config = config
        self._method: Any = None
        self._tries_starts = spec.uses_start and not context.rounds
        self._burst = _FIRST_BURST

    def next_round(self) -> Round | None:
        """The next round; None when the method has no more plans."""
        batch = self._next()
        self.goes_on = batch is not None
        if batch is not None:
            self.best.take(batch)
        return batch

    def _next(self) -> Round | None:
        tries_starts, self._tries_starts = self._tries_starts, False
        kind, context = self.spec.kind, self.context
        if tries_starts and (kind is Kind.LEARNED or self._is_inside):
            return evaluated(context, context.begins)  # before the method is built, which may take long
        if self._method is None:
            self._method = self._built()
        if self._is_inside:
            begin_s = time.monotonic()
            burst = self._method.advance(int(min(self._burst, context.evaluations_left())))
            fastest = context.ordered(Decisions(burst.device_of_unit))
            took_s = max(time.monotonic() - begin_s, 1e-6)
            self._burst = max(_FIRST_BURST, int(min(2 * self._burst, burst.evaluations * _BURST_S / took_s)))
            return Round(fastest, burst.runtime_s, np.isfinite(burst.runtime_s), burst.evaluations)
        if isinstance(self._method, Iterator):
            return next(self._method, None)
        tries_starts = tries_starts and kind is Kind.IMPROVING
        plans = context.begins if tries_starts else self._method.ask(context.evaluations_left())
        if not len(plans):
            return None
        batch = evaluated(context, plans)
        self._method.tell(batch.decisions, batch)
        if isinstance(self._method, Proving) and isinstance(context.evaluator, SimulatedEvaluator):
            batch = dataclasses.replace(batch, proven_s=self._method.proven_s())
        return batch

    @property
    def _is_inside(self) -> bool:
        """True if the method simulates by itself."""
        return self.spec.build_inside is not None and isinstance(self.context.evaluator, SimulatedEvaluator)

    def _built(self) -> Any:
        spec, config, context = self.spec, self._config, self.context
        problem, seed = context.problem, context.seed
        if spec.kind is Kind.CONSTRUCTIVE:
            plans = () if context.rounds else spec.build(problem, config, seed)
            return iter([evaluated(context, plans)] if len(plans) else [])
        if spec.kind is Kind.LEARNED:
            simulator = simulator_beside(context.evaluator, problem)

            def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                times = simulator.times(tf.constant(rows))
                return times.runtime_s.numpy(), times.fits.numpy()

            learner = spec.build(
                problem, config, WarmStart(context.plans, context.reference_s, simulate), seed
            )
            context.checkpoint.track(learner)
            return _Drawing(learner)
        if spec.kind is Kind.OWN_ROUNDS:
            method = spec.build(context, config)
            if not hasattr(method, "ask"):
                return iter(method)
        elif self._is_inside:
            assert spec.build_inside is not None and isinstance(context.evaluator, SimulatedEvaluator)
            ranks, simulator = context.priority_of_op, context.evaluator
            simulator = simulator if ranks is None else simulator.ordered(ranks)
            method = spec.build_inside(problem, config, context.begins, seed, simulator)
        else:
            start = context.start if spec.uses_start else None
            method = spec.build(problem, config, start, seed)
        is_restored = context.checkpoint.track_state(method)
        if spec.kind is Kind.IMPROVING and not self._is_inside:
            method = method if hasattr(method, "ask") else _Proposing(method)
            # A checkpoint from before planners were kept: their draws are made again.
            for _ in () if is_restored or spec.uses_start else range(context.rounds):
                method.ask(context.evaluations_left())
        return method
