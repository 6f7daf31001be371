"""A method at work: its checkpoint, its starting plans, its context, and the run that evaluates its proposals."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
import shutil
import time
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import PolicyLearner, WarmStart
from tf_placer.base.arguments import InputError
from tf_placer.base.files import write_atomically
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.evaluation.simulated import Evaluator, SimulatedEvaluator, Status, simulator_beside
from tf_placer.grouper.memory_repair import repairs
from tf_placer.planners.planner import Best, Method, Round
from tf_placer.problem.placement import Decisions, decisions_of
from tf_placer.problem.problem import Problem, made_once

SCHEMA_VERSION = 1
FILE_NAME = "search.json"
_LEARNER = "learner-"
_REST = "json"  # name of what is no array in a planner's file


class Checkpoint:
    """Checkpoint of a search after its last whole round; without a folder nothing is written.

        checkpoint = Checkpoint(folder, identity, every_s)
        recorder.restore(checkpoint.recorder)
        for batch in rounds:  # of a method that has called context.checkpoint.track(learner)
            recorder.add(batch)
            checkpoint.save(len(recorder.history), recorder.state, last=recorder.exhausted)

    ``search.json`` names the learner's files that go with it and is replaced in one step: a kill at any moment
    leaves the old pair or the new one.
    """

    def __init__(
        self,
        folder: pathlib.Path | None = None,
        identity: Mapping[str, Any] | None = None,
        every_s: float = 0.0,
        state: dict[str, Any] | None = None,
    ) -> None:
        """Reads the folder of one search, which is made if need be; None writes nothing.

        A search with another ``identity``, JSON data, cannot go on here. Saves are ``every_s`` seconds apart or more.
        A method inside a method has no folder, and its planner goes on from a ``state`` that ``planner_state`` gave.

        Raises:
          InputError: the folder holds another search, or is damaged.
        """
        self._folder = folder
        self._identity = json.loads(json.dumps(identity))
        self._every_s = every_s
        self._state = state or {}
        self._planner: Any = None  # with ``state`` and ``restore``, as ``planners.planner.Method``
        self._saved_s = float("-inf")
        self._write_learner: Callable[[pathlib.Path], object] | None = None
        self._settings: dict[str, Any] | None = None
        self._document: dict[str, Any] = {}
        path = None if folder is None else folder / FILE_NAME
        try:
            if path is not None and path.exists():
                document = json.loads(path.read_text(encoding="utf8"))
                if document["schema_version"] != SCHEMA_VERSION:
                    raise ValueError(f"schema version {document['schema_version']}")
                self._document = document | {"identity": document["identity"]}  # none without it
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"checkpoint: {path} cannot be read ({type(error).__name__}: {error}); delete it to begin anew, "
                "which keeps what was measured"
            ) from error
        if self._document:
            self._refuse_other(self._document["identity"], self._identity)
        # State of the recorder when last saved; None for a search that begins.
        self.recorder: dict[str, Any] | None = self._document.get("recorder")
        self._saved_rounds = 0 if self.recorder is None else len(self.recorder["history"])
        if folder and not self._document:
            self._write(folder, None, None)

    def settings_are(self, settings: Mapping[str, Any]) -> None:
        """Notes the method's settings, JSON data; raises InputError if the folder holds a search with others."""
        self._settings = json.loads(json.dumps(settings))
        if self._document.get("settings") is not None:
            self._refuse_other(self._document["settings"], self._settings)

    def track(self, learner: tf.Module, settings: Mapping[str, Any] | None = None) -> None:
        """Restores a learner from the last save, and saves its variables from now on; see ``settings_are``.

        Raises InputError where what was saved is damaged, as ``track_state`` does.
        """
        if settings is not None:
            self.settings_are(settings)
        variables = tf.train.Checkpoint(learner=learner)
        self._track(
            lambda prefix: variables.write(str(prefix)),
            lambda prefix: variables.read(str(prefix)).assert_consumed(),
        )

    def track_state(self, planner: Any) -> bool:
        """The same for a planner without variables, by its ``state``; returns whether there was one.

        Its file has arrays as they are, everything else as JSON.
        """

        def write(prefix: pathlib.Path) -> None:
            arrays, rest = dict[str, Any](), dict[str, Any]()
            for name, value in planner.state().items():
                (arrays if isinstance(value, np.ndarray) else rest)[name] = value
            arrays[_REST] = np.array(json.dumps(rest))
            np.savez(f"{prefix}.npz", **arrays)

        def read(prefix: pathlib.Path) -> None:
            try:
                with np.load(f"{prefix}.npz", allow_pickle=False) as file:
                    arrays = dict(file)
            except zipfile.BadZipFile as error:
                raise ValueError(str(error)) from error
            planner.restore({**json.loads(str(arrays.pop(_REST))), **arrays})

        self._planner = planner
        if self._state:
            planner.restore(self._state)
        return self._track(write, read) or bool(self._state)

    def planner_state(self) -> dict[str, Any]:
        """State of the tracked planner, if there is one."""
        return {} if self._planner is None else self._planner.state()

    def _track(self, write: Callable[[pathlib.Path], object], read: Callable[[pathlib.Path], object]) -> bool:
        self._write_learner = write
        if self._document.get("learner") is None:
            return False
        assert self._folder is not None  # or there would be no document
        prefix = self._folder / self._document["learner"]
        try:
            read(prefix)
        except (tf.errors.OpError, AssertionError, OSError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{prefix}.* cannot be restored ({type(error).__name__}); delete {self._folder / FILE_NAME} to "
                "begin anew, which keeps what was measured"
            ) from error
        return True

    def save(self, rounds: int, recorder_state: Callable[[], dict[str, Any]], last: bool = False) -> None:
        """Saves after a number of rounds, unless the last save was a moment ago and this may not be the last.

        The recorder's state has a list of rounds called ``history``.
        """
        is_due = last or time.monotonic() - self._saved_s >= self._every_s
        if self._folder is None or rounds == self._saved_rounds or not is_due:
            return
        learner = None
        if self._write_learner is not None:
            learner = f"{_LEARNER}{rounds}"
            self._write_learner(self._folder / learner)
            for file in self._folder.glob(f"{learner}.*"):
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        self._write(self._folder, recorder_state(), learner)
        for path in self._folder.glob(f"{_LEARNER}*"):
            if path.is_dir():  # a killed save was writing to it
                shutil.rmtree(path, ignore_errors=True)
            elif path.stem != learner:
                path.unlink(missing_ok=True)
        self._saved_s = time.monotonic()
        self._saved_rounds = rounds

    def _write(self, folder: pathlib.Path, recorder: dict[str, Any] | None, learner: str | None) -> None:
        document = {"schema_version": SCHEMA_VERSION, "identity": self._identity, "settings": self._settings}
        document |= {"recorder": recorder, "learner": learner}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            remedy = "give another folder"
            raise InputError(f"checkpoint={folder} cannot be made ({error.strerror}); {remedy}") from error
        write_atomically(folder / FILE_NAME, json.dumps(document))

    def _refuse_other(self, saved: dict[str, Any], current: dict[str, Any]) -> None:
        for key in {**current, **saved}:
            if saved.get(key) != current.get(key):
                raise InputError(
                    f"{self._folder} holds a search with {key} {saved.get(key)!r}, not {current.get(key)!r}; give "
                    "that, or another folder"
                )


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
            fastest = context.ordered(Decisions(burst.device_of_unit, burst.priority_of_op))
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
