"""Controllers that are processes: each draws, simulates and pushes when it is ready, and one process is the server."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import PolicyLearner, WarmStart
from tf_placer.base import arguments
from tf_placer.base.method_spec import Kind
from tf_placer.evaluation.simulated import SimulatedEvaluator, search_simulator
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.round import Context, Round, evaluated
from tf_placer.search.search import search
from tf_placer.training.controllers import Trained, Training, gradients_nest, learned, pushing
from tf_placer.workers.local_workers import WorkerError

_ENDS_S = 5.0  # that a process gets to end by itself


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
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):  # the server has ended
        while True:
            number, weights = connection.recv()
            for variable, value in zip(learner.policy.variables, weights, strict=True):
                variable.assign(value)
            learner.updates.assign(number)
            proposal = learner.propose()
            times = simulator.times(proposal.placements)
            runtime_s, fits = times.runtime_s.numpy(), times.fits.numpy()
            gradients = learner.gradients(proposal.actions, tf.constant(runtime_s), tf.constant(fits))
            flat = [one.numpy() for one in tf.nest.flatten(gradients, expand_composites=True)]
            connection.send((proposal.placements.numpy(), runtime_s, fits, flat))


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
            for connection in running:
                server.fetch(connection)
            while running:
                for connection in cast(list[Connection], wait(list(running))):
                    try:
                        rows, runtime_s, fits, flat = connection.recv()
                        server.push(connection, flat)
                        server.fetch(connection)
                    except (EOFError, ConnectionResetError, BrokenPipeError):
                        del running[connection]
                        continue
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
