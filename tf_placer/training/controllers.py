"""Controllers that train one policy through a parameter server, in the order of simulated clocks."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.recorder import SearchResult
from tf_placer.search.search import search


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
