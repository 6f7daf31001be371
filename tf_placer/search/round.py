"""A method at work: its context, its starting plans, and the run that evaluates its proposals."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import PolicyLearner, WarmStart
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator, Status, simulator_beside
from tf_placer.grouper.memory_repair import repairs
from tf_placer.planners.planner import Best, Method, Round
from tf_placer.problem.placement import Decisions, decisions_of
from tf_placer.problem.problem import Problem, made_once
from tf_placer.search.checkpoint import Checkpoint


class Starts:
    """Baseline plans: single devices and the constructive methods' plans that fit.

    Where the host alone holds a model, a search that begins there and is paid relative to that learns little: devices
    filled in order are often several times as fast. The constructed plans are made when first asked for, and are judged
    by the simulator; single devices are measured.
    """

    def __init__(self, problem: Problem, evaluator: Evaluator, planners: Sequence[MethodSpec]) -> None:
        """Times the single devices.

        Planners are constructive; of the one that makes the single devices (``Role.REFERENCE``) only the name is used.
        """
        self._problem = problem
        self._evaluator = evaluator
        self._planners = [spec for spec in planners if Role.REFERENCE not in spec.roles]
        self._single_by = next((spec.name for spec in planners if Role.REFERENCE in spec.roles), "")
        self._singles = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
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
        return self._ranked[0]

    @property
    def made_by(self) -> tuple[str, ...]:
        """Names of the methods that made ``plans``."""
        return self._ranked[2]

    @property
    def reference_s(self) -> float:
        """Step time of the first plan, above 0: what rewards are relative to.

        On the runtime that of the best single device, times what the simulator says of the first plan beside it; where
        no single device runs, the simulator's, which rewards can be relative to as well.
        """
        return max(self._ranked[1], 1e-9)

    @functools.cached_property
    def _ranked(self) -> tuple[np.ndarray, float, tuple[str, ...]]:
        """``plans``, ``reference_s`` and ``made_by``."""
        simulator = simulator_beside(self._evaluator, self._problem)
        built = [made_once(spec.build, self._problem, spec.config(), 0) for spec in self._planners]
        makers = [self._single_by] * len(self._singles)
        makers += [spec.name for spec, rows in zip(self._planners, built, strict=True) for _ in rows]
        rows = np.concatenate([self._singles, *built])
        positions = np.sort(np.unique(rows, axis=0, return_index=True)[1])
        rows, makers = rows[positions], [makers[i] for i in positions]
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
            return rows[order], float(times_s[order[0]]), tuple(makers[i] for i in order)
        # Nothing fits: of these and the single devices less what does not fit there, the nearest, timed without limit.
        certain, _ = repairs(self._problem)
        rows = np.concatenate([rows, [certain(row) for row in self._singles]])
        makers += [self._single_by] * len(self._singles)
        times = simulator.times(tf.constant(rows))
        over = np.maximum(times.peak_bytes.numpy() - self._problem.cluster.capacity_bytes(), 0).sum(axis=1)
        least = int(np.lexsort((times.runtime_s.numpy(), over))[0])
        return rows[least : least + 1], float(times.runtime_s[least]), (makers[least],)


@dataclasses.dataclass(frozen=True)
class Context:
    """Context of a search, given to every method."""

    problem: Problem
    evaluator: Evaluator  # times placements
    starts: Starts  # the plans that cost nothing to find
    given: np.ndarray | None  # [K, U], K >= 1, where a method that improves a placement has to begin
    seed: int  # fixes everything random
    rounds: int  # made before the search was interrupted; the method goes on after them
    checkpoint: Checkpoint  # keeps what a method has learned, see ``Checkpoint.track``
    evaluations_left: Callable[[], float] = lambda: math.inf  # infinite where only time counts
    used: Callable[[], float] = lambda: 0.0  # share of the budget that is used up, from 0 on
    priority_of_op: np.ndarray | None = None  # [N] int32 of every plan; None where plans decide no order

    def left_until(self, share: float) -> float:
        """Evaluations until a share of the budget is used, at least 1; infinite where only time counts."""
        evaluations, used = self.evaluations_left(), self.used()
        if math.isinf(evaluations) or used >= 1:
            return evaluations
        return min(evaluations, max(1, math.ceil(evaluations * (share - used) / (1 - used) - 1e-6)))

    def ordered(self, decisions: Decisions) -> Decisions:
        """The plans with the priorities of this search, if any; plans with their own keep them."""
        if self.priority_of_op is None or decisions.priority_of_op is not None:
            return decisions
        ranks = np.broadcast_to(self.priority_of_op, (len(decisions), len(self.priority_of_op)))
        return dataclasses.replace(decisions, priority_of_op=ranks)

    @property
    def plans(self) -> np.ndarray:
        """[K, U], where a method that improves a placement may begin, the fastest first: given ones, if any."""
        return self.starts.plans if self.given is None else self.given

    @property
    def begins(self) -> np.ndarray:
        """[K, U], what such a method tries first: all that are given, or else the fastest of what costs nothing."""
        return self.starts.plans[:1] if self.given is None else self.given


def evaluated(context: Context, plans: np.ndarray | tf.Tensor | Decisions) -> Round:
    """Evaluates placements [B, U], in the order that the context has, or all that B plans decide, as one round."""
    decisions = context.ordered(decisions_of(plans, context.problem))
    if isinstance(context.evaluator, SimulatedEvaluator) and decisions.cluster_of_op is None:
        times = context.evaluator.times(decisions)
        return Round(decisions, times.runtime_s.numpy(), times.fits.numpy())
    measurement = context.evaluator.evaluate(decisions.plain)
    return Round(decisions, measurement.runtime_s, measurement.status == Status.OK)


def _taught(learner: PolicyLearner, context: Context) -> Iterator[Round]:
    """Rounds of a learner, whose state is in variables."""
    while True:
        actions, placements = learner.propose()
        batch = evaluated(context, placements)
        learner.learn(actions, tf.constant(batch.runtime_s), tf.constant(batch.valid))
        yield batch


# A burst inside the simulator: long enough to cost nothing, short enough for progress and Ctrl-C.
_BURST_S = 0.25
_FIRST_BURST = 64


class Run:
    """A method at work: asked for plans, told their times; the best plan is kept."""

    def __init__(self, spec: MethodSpec, config: Any, context: Context) -> None:
        """Makes nothing yet; the method will continue from ``context.checkpoint``."""
        self.spec = spec
        self.context = context
        self.best = Best()
        self.goes_on = True
        self.config = config
        self._method: Any = None
        # The method simulates by itself.
        self._is_inside = bool(spec.build_inside) and isinstance(context.evaluator, SimulatedEvaluator)
        self._tries_starts = spec.uses_start and not context.rounds
        self._burst = _FIRST_BURST

    def next_round(self) -> Round | None:
        """The next round; None when the method has no more plans."""
        batch = self._asked()
        self.goes_on = batch is not None
        if batch is not None:
            self.best.take(batch)
        return batch

    def _asked(self) -> Round | None:
        tries_starts, self._tries_starts = self._tries_starts, False
        kind, context = self.spec.kind, self.context
        if tries_starts and (kind is Kind.LEARNED or self._is_inside):
            return evaluated(context, context.begins)  # before the method is built, which may take long
        if self._method is None:
            self._method = self._built()
        if self._is_inside:
            begin_s = time.monotonic()
            burst = self._method.advance(int(min(self._burst, context.evaluations_left())))
            took_s = max(time.monotonic() - begin_s, 1e-6)
            self._burst = max(_FIRST_BURST, int(min(2 * self._burst, burst.evaluations * _BURST_S / took_s)))
            return dataclasses.replace(burst, decisions=context.ordered(burst.decisions))
        if isinstance(self._method, Iterator):
            return next(self._method, None)
        tries_starts = tries_starts and kind is Kind.IMPROVING
        plans = context.begins if tries_starts else self._method.ask(context.evaluations_left())
        if not len(plans):
            return None
        batch = evaluated(context, plans)
        self._method.tell(batch.decisions, batch)
        if hasattr(self._method, "proven_s") and isinstance(context.evaluator, SimulatedEvaluator):
            batch = dataclasses.replace(batch, proven_s=self._method.proven_s())
        return batch

    def _built(self) -> Method | Iterator[Round] | Any:
        spec, config, context = self.spec, self.config, self.context
        problem, seed = context.problem, context.seed
        if spec.kind is Kind.CONSTRUCTIVE:
            plans = () if context.rounds else made_once(spec.build, problem, config, seed)
            return iter([evaluated(context, plans)] if len(plans) else [])
        if spec.kind is Kind.LEARNED:
            simulator = simulator_beside(context.evaluator, problem)

            def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                times = simulator.times(tf.constant(rows))
                return times.runtime_s.numpy(), times.fits.numpy()

            warm_start = WarmStart(context.plans, context.starts.reference_s, simulate)
            learner = spec.build(problem, config, warm_start, seed)
            context.checkpoint.track(learner)
            return _taught(learner, context)
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
            start = context.plans[0] if spec.uses_start else None
            method = spec.build(problem, config, start, seed)
        is_restored = context.checkpoint.track_state(method)
        if spec.kind is Kind.IMPROVING and not self._is_inside:
            if not hasattr(planner := method, "ask"):  # REGAL, the learned list, users' of the last version
                method = types.SimpleNamespace(
                    ask=lambda most: planner.propose(),
                    tell=lambda decisions, times: planner.learn(decisions.device_of_unit, times.times_s),
                    **({"proven_s": planner.proven_s} if hasattr(planner, "proven_s") else {}),
                )
            # A checkpoint from before planners were kept: their draws are made again.
            for _ in () if is_restored or spec.uses_start else range(context.rounds):
                method.ask(context.evaluations_left())
        return method
