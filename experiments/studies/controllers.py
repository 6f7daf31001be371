"""Controllers that train one policy through a parameter server: in the order of simulated clocks, and as processes."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.evaluation.simulated import SimulatedEvaluator, search_simulator
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.recorder import SearchResult
from tf_placer.search.round import Context, Round, evaluated
from tf_placer.search.search import search
from tf_placer.workers.local_workers import WorkerError


@dataclasses.dataclass(frozen=True)
class Durations:
    """Time that each part of an update takes, in nanoseconds.

    Attributes:
      sample_ns: a controller fetches the weights and draws its placements.
      prepare_ns: a worker makes one placement ready to run; one that does not run takes this.
      steps: that a worker then runs and times of each placement.
      gradient_ns: a controller computes its gradient.
      apply_ns: the server applies it; one at a time.

    Raises:
      InputError: a negative number, or none.
    """

    sample_ns: int = 20_000_000
    prepare_ns: int = 1_000_000_000
    steps: int = 10
    gradient_ns: int = 50_000_000
    apply_ns: int = 5_000_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = arguments.whole_number(field.name, getattr(self, field.name), least=0)
            object.__setattr__(self, field.name, value)

    def measured_ns(self, runtime_s: np.ndarray, valid: np.ndarray, workers: int) -> int:
        """Time until workers have measured placements [B], which go to them in turn."""
        steps_ns = np.rint(np.where(valid, runtime_s, 0.0) * (1e9 * self.steps)).astype(np.int64)
        each_ns = np.zeros(workers, np.int64)
        np.add.at(each_ns, np.arange(len(steps_ns)) % workers, steps_ns + self.prepare_ns)
        return int(each_ns.max())


@dataclasses.dataclass(frozen=True)
class Training:
    """Controllers around a parameter server (Mirhoseini et al. 2017, section 3.3).

    Attributes:
      controllers: that draw, have measured, and push gradients, each by itself.
      workers: of each controller; the placements of an update go to them in turn, as many each as need be.
      most_late: updates that others may have made since a controller fetched the weights of its gradient; one that is
        later is refused. -1 for twice the controllers: of controllers that are as fast as each other none is.
      durations: of the parts of an update; they and the step times fix the order of updates.

    Raises:
      InputError: no controller, no worker, or a bound below -1.
    """

    controllers: int = 4
    workers: int = 2
    most_late: int = -1
    durations: Durations = dataclasses.field(default_factory=Durations)

    def __post_init__(self) -> None:
        most = arguments.whole_number("most_late", self.most_late, least=-1)
        for name in ("controllers", "workers"):
            object.__setattr__(self, name, arguments.whole_number(name, getattr(self, name), least=1))
        object.__setattr__(self, "most_late", 2 * self.controllers if most < 0 else most)
        arguments.instance_of("durations", self.durations, Durations, "give one")

    def settings(self) -> dict[str, int]:
        """All numbers by name: a checkpoint of another training is refused."""
        flat = {**dataclasses.asdict(self), **dataclasses.asdict(self.durations)}
        del flat["durations"]
        return {f"training {name}": value for name, value in flat.items()}


def learned(method: str | MethodSpec) -> MethodSpec:
    """The row of a method with a policy.

    Raises:
      InputError: no method, or one without.
    """
    spec = methods.find(method) if isinstance(method, str) else method
    arguments.instance_of("method", spec, MethodSpec, "give the name of a method or its row")
    if spec.kind != Kind.LEARNED:
        raise InputError(f"method {spec.name!r} has no policy to train; give a learned one")
    return spec


def pushing(learner: Any) -> PolicyLearner:
    """The learner, if its update is one gradient.

    Raises:
      InputError: it is more.
    """
    if not (isinstance(learner, PolicyLearner) and learner.pushes_gradients):
        raise InputError(
            f"an update of {type(learner).__name__} is more than one gradient that can be pushed to a server; give "
            "an agent whose update is one, or settings with which it is (loss='reinforce', epochs=1)"
        )
    return learner


def gradients_nest(learner: PolicyLearner) -> Any:
    """Nest of what ``learner.gradients`` gives, with symbolic tensors for values."""
    proposal = learner.propose()
    samples = len(proposal.placements)
    given = proposal.actions, tf.zeros([samples], tf.float64), tf.ones([samples], tf.bool)
    return learner.gradients.get_concrete_function(*given).structured_outputs


_NEVER = -1  # a controller that has not begun; a gradient that was not refused


class Controllers(tf.Module):
    """Controllers of one policy as one ``Learner``: the loop of a search trains them as it trains any agent.

    A controller fetches the weights, draws placements, has them measured, computes its gradient by the weights that it
    fetched, and pushes it. The server clips it, applies it, and sends the weights back. Others have pushed meanwhile:
    a gradient is late by as many updates as were applied since its weights were fetched. One that is too late is
    refused and counted; what its placements took is known all the same.

    What is a controller's own, such as its baseline of rewards (Mirhoseini et al. 2017, section 3.1), are all variables
    of the learner that ``apply`` does not change. Draws are numbered over all controllers, and a draw is of the seed
    and its number alone, so no two controllers draw the same, and one controller is the learner by itself, bit by bit.
    What fades with updates fades with draws.

    It is a discrete simulation: each ``propose`` is of the controller that fetches next by its clock, and as a gradient
    is of the weights at that moment, it is computed then and waits until it is due. Ties go to the first controller.

    Attributes:
      applied: gradients that were.
      measured_ns: [R] of each round, when its placements were measured.
      best_s: [R] the fastest placement of each round, infinite where none ran.
      late: [P] of each gradient that was pushed, by how many updates; those refused, too.
    """

    def __init__(self, learner: PolicyLearner, training: Training):
        """Takes over a learner that has made no update.

        Args:
          learner: its update is one gradient.
          training: how many, and their times.

        Raises:
          InputError: the update of this learner, or with these settings, is more than one gradient.
        """
        super().__init__(name="controllers")
        self._learner = pushing(learner)
        self._training = training
        count = training.controllers
        served = {id(one) for one in (*learner.served, learner.updates)}
        self._own = [one for one in learner.variables if id(one) not in served]
        self._kept = [[tf.Variable(one, trainable=False) for one in self._own] for _ in range(count)]
        self._nest = gradients_nest(learner)
        self._pending = [self._like_gradients() for _ in range(count)]
        self._due_ns = tf.Variable(np.full(count, _NEVER, np.int64), trainable=False)
        self._fetched = tf.Variable(np.zeros(count, np.int64), trainable=False)  # ``applied`` at that time
        self._turn = tf.Variable(0, trainable=False)
        self._now_ns = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.applied = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.measured_ns = _series(tf.int64)
        self.best_s = _series(tf.float64)
        self.late = _series(tf.int64)

    def _like_gradients(self) -> list[tf.Variable]:
        """Variables for one gradient, laid out flat."""
        flat = tf.nest.flatten(self._nest, expand_composites=True)
        zeros = [tf.zeros([size or 0 for size in one.shape], one.dtype) for one in flat]
        return [
            tf.Variable(zero, shape=one.shape, trainable=False) for zero, one in zip(zeros, flat, strict=True)
        ]

    def propose(self) -> Proposal:
        """Draws B placements of the controller whose turn it is."""
        return self._learner.propose()

    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes in its measurements, and brings the clock to where the next controller fetches; see ``Learner``."""
        controller, durations = int(self._turn), self._training.durations
        _assign(self._own, self._kept[controller])
        gradients = self._learner.gradients(actions, runtime_s, valid)
        _assign(self._kept[controller], self._own)
        _assign(self._pending[controller], tf.nest.flatten(gradients, expand_composites=True))
        times_s, runs = runtime_s.numpy(), valid.numpy()
        took_ns = durations.measured_ns(times_s, runs, self._training.workers)
        measured_ns = int(self._now_ns) + durations.sample_ns + took_ns
        _append(self.measured_ns, measured_ns)
        _append(self.best_s, np.min(times_s, where=runs, initial=np.inf))
        self._due_ns[controller].assign(measured_ns + durations.gradient_ns)
        self._fetched[controller].assign(self.applied)
        self._next()
        self._learner.updates.assign_add(1)

    def _next(self) -> None:
        """Gives the turn to who has not begun, or else to the controller whose gradient is due next, and serves it."""
        due_ns = self._due_ns.numpy()
        controller = int(np.argmin(due_ns))
        self._turn.assign(controller)
        if due_ns[controller] == _NEVER:
            return
        # The server applied the last one at ``_now_ns``: what was due before has waited.
        begin_ns = max(int(self._now_ns), int(due_ns[controller]))
        late = int(self.applied) - int(self._fetched[controller])
        _append(self.late, late)
        if late <= self._training.most_late:
            flat = [tf.convert_to_tensor(one) for one in self._pending[controller]]
            self._learner.apply(tf.nest.pack_sequence_as(self._nest, flat, expand_composites=True))
            self.applied.assign_add(1)
            begin_ns += self._training.durations.apply_ns
        self._now_ns.assign(begin_ns)


def _assign(variables: list[tf.Variable], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _series(dtype: tf.DType) -> tf.Variable:
    """An empty row of numbers that grows; in a variable, so that a checkpoint has it."""
    return tf.Variable(tf.zeros([0], dtype), shape=[None], trainable=False)


def _append(series: tf.Variable, value: float) -> None:
    series.assign(tf.concat([series, tf.constant([value], series.dtype)], axis=0))


@dataclasses.dataclass(frozen=True)
class Trained:
    """A search by several controllers.

    Attributes:
      result: of the search.
      seconds: [R] by the simulated clock, when placements of each round were measured, the earliest first.
      best_s: [R] the fastest placement by then.
      late: [P] of each gradient that was pushed, by how many updates.
      refused: gradients that were too late.
      waiting: gradients that were computed and not yet pushed when the search ended.
    """

    result: SearchResult
    seconds: np.ndarray
    best_s: np.ndarray
    late: np.ndarray
    refused: int
    waiting: int

    @property
    def mean_late(self) -> float:
        """Mean over gradients that were pushed; 0 where none was."""
        return float(self.late.mean()) if len(self.late) else 0.0

    @property
    def most_late(self) -> int:
        """The latest gradient that was pushed."""
        return int(self.late.max(initial=0))


def train(
    problem: Problem,
    method: str | MethodSpec,
    training: Training,
    checkpoint: str | os.PathLike[str] | None = None,
    **searching: Any,
) -> Trained:
    """Searches with several controllers of a learned method.

    Args:
      problem: what to place.
      method: a learned method whose update is one gradient; as many placements as it draws for an update, a controller
        gives to its workers.
      training: how many controllers and workers, and their times.
      checkpoint: as of ``search``; it holds gradients on their way, too, and the same call goes on bit by bit.
      **searching: other arguments of ``search``.

    Raises:
      InputError: as ``search``; a method that pushes no gradients; a checkpoint of a training that is finished.
      NothingFits, KeyboardInterrupt, WorkerError: as ``search``.
    """
    arguments.instance_of("training", training, Training, "give one")
    spec = learned(method)
    made: list[Controllers] = []

    def build(problem: Problem, config: Any, warm_start: WarmStart, seed: int) -> Controllers:
        made.append(Controllers(spec.build(problem, config, warm_start, seed), training))
        return made[0]

    of_several = dataclasses.replace(spec, build=build, versions={**spec.versions, **training.settings()})
    result = search(problem, of_several, checkpoint=checkpoint, **searching)
    if not made:
        raise InputError(
            f"checkpoint={checkpoint} holds a training that is finished; give a larger budget, or another folder"
        )
    controllers = made[0]
    order = np.argsort(controllers.measured_ns.numpy(), kind="stable")
    late = controllers.late.numpy()
    return Trained(
        result=result,
        seconds=controllers.measured_ns.numpy()[order] / 1e9,
        best_s=np.minimum.accumulate(controllers.best_s.numpy()[order]),
        late=late,
        refused=int((late > training.most_late).sum()),
        waiting=len(order) - len(late),
    )


# Controllers that are processes: each draws, simulates and pushes when it is ready, and this one is the server.

_ENDS_S = 5.0  # that a process gets to end by itself
# What a pipe raises whose other end has died: before a message, or within one, which has no error of its own.
_HAS_DIED = (EOFError, OSError)


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    """What a controller's process is given once: a learner to build, as the server builds its own."""

    problem: Problem
    method: str
    config: Any
    plans: np.ndarray
    reference_s: float
    seed: int


def _built(work: _Work) -> tuple[PolicyLearner, SimulatedEvaluator]:
    simulator = search_simulator(work.problem)

    def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    warm_start = WarmStart(work.plans, work.reference_s, simulate)
    learner = methods.find(work.method).build(work.problem, work.config, warm_start, work.seed)
    return pushing(learner), simulator


def _control(connection: Connection, work: _Work) -> None:
    """A controller: of each number of a draw and weights that arrive, what was drawn, its times and its gradient."""
    learner, simulator = _built(work)
    while True:
        try:
            number, weights = connection.recv()
        except _HAS_DIED:
            return
        for variable, value in zip(learner.policy.variables, weights, strict=True):
            variable.assign(value)
        learner.updates.assign(number)
        proposal = learner.propose()
        times = simulator.times(proposal.placements)
        runtime_s, fits = times.runtime_s.numpy(), times.fits.numpy()
        gradients = learner.gradients(proposal.actions, tf.constant(runtime_s), tf.constant(fits))
        flat = [one.numpy() for one in tf.nest.flatten(gradients, expand_composites=True)]
        try:
            connection.send((proposal.placements.numpy(), runtime_s, fits, flat))
        except _HAS_DIED:
            return


class _Server:
    """The weights, who has fetched which, and what was pushed."""

    def __init__(self, learner: PolicyLearner, most_late: int) -> None:
        self._learner = learner
        self._most_late = most_late
        self._nest = gradients_nest(learner)
        self._fetched: dict[Connection, int] = {}
        self._drawn = self._applied = 0
        self.late: list[int] = []

    def fetch(self, connection: Connection) -> None:
        """Sends the number of the next draw, and the weights."""
        connection.send((self._drawn, [one.numpy() for one in self._learner.policy.variables]))
        self._fetched[connection] = self._applied
        self._drawn += 1

    def push(self, connection: Connection, flat: list[np.ndarray]) -> None:
        """Applies a gradient, or refuses one that is too late."""
        self.late.append(self._applied - self._fetched[connection])
        if self.late[-1] <= self._most_late:
            parts = [tf.constant(one) for one in flat]
            self._learner.apply(tf.nest.pack_sequence_as(self._nest, parts, expand_composites=True))
            self._applied += 1
            self._learner.updates.assign(self._applied)


@contextlib.contextmanager
def _processes(work: _Work, count: int) -> Iterator[dict[Connection, BaseProcess]]:
    """Controllers and the ends of their pipes; they end with the block."""
    spawning = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    running: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(count):
            here, there = spawning.Pipe()
            process: BaseProcess = spawning.Process(target=_control, args=(there, work), daemon=True)
            process.start()
            there.close()
            running[here] = process
        yield dict(running)
    finally:
        for connection in running:
            connection.close()
        for process in running.values():
            process.join(_ENDS_S)
            if process.is_alive():
                process.kill()
                process.join()


def train_in_processes(
    problem: Problem, method: str, training: Training, config: Any = None, **searching: Any
) -> Trained:
    """Searches with controllers that are processes of this machine; placements are simulated in them.

    What is late depends on how busy the machine is, so only one controller gives the same result each time: that of
    ``search`` by itself. A process that dies takes its draw along, and the others go on.

    Args:
      problem: what to place.
      method: the name of a learned method whose update is one gradient.
      training: how many controllers, and how late gradients may be; workers and durations are not looked at.
      config: settings of the method, as of ``search``.
      **searching: ``budget_evaluations``, ``budget_s``, ``seed``, ``progress`` and ``start`` of ``search``.

    Returns:
      What ``train`` returns; its seconds are those that passed since the processes were started.

    Raises:
      InputError: as ``train``.
      WorkerError: all processes have died.
      NothingFits, KeyboardInterrupt: as ``search``.
    """
    arguments.instance_of("training", training, Training, "give one")
    spec = learned(method)
    servers: list[_Server] = []
    arrived: list[tuple[float, float]] = []

    def rounds(context: Context, settings: Any) -> Iterator[Round]:
        if spec.uses_start:
            yield evaluated(context, context.begins)
        work = _Work(context.problem, method, settings, context.plans, context.reference_s, context.seed)
        server = _Server(_built(work)[0], training.most_late)
        servers.append(server)
        begin_s = time.monotonic()
        with _processes(work, training.controllers) as running:

            def fetch(connection: Connection) -> None:
                try:
                    server.fetch(connection)
                except _HAS_DIED:
                    del running[connection]

            for connection in list(running):
                fetch(connection)
            while running:
                for connection in cast(list[Connection], wait(list(running))):
                    try:
                        rows, runtime_s, fits, flat = connection.recv()
                    except _HAS_DIED:
                        del running[connection]
                        continue
                    server.push(connection, flat)
                    fetch(connection)  # who dies now has pushed: what it measured counts
                    best_s = float(np.min(runtime_s, where=fits, initial=np.inf))
                    arrived.append((time.monotonic() - begin_s, best_s))
                    yield Round(Decisions(rows), runtime_s, fits)
        raise WorkerError(
            f"all {training.controllers} processes of controllers have died; see what they printed"
        )

    of_processes = dataclasses.replace(spec, kind=Kind.OWN_ROUNDS, build=rounds)
    result = search(problem, of_processes, config=config, **searching)
    late = np.array(servers[0].late if servers else [], np.int64)
    seconds, best_s = np.array(arrived).reshape(-1, 2).T
    return Trained(
        result=result,
        seconds=seconds,
        best_s=np.minimum.accumulate(best_s),
        late=late,
        refused=int((late > training.most_late).sum()),
        waiting=0,
    )
