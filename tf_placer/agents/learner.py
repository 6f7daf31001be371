"""Learned methods: their protocol, the one loop that trains their policies, gradient steps, and elites."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.losses import square_root_reward

# [B, U] int32 placements -> step times [B] in seconds, and [B] bool: does it fit.
SimulateFn = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Variables = Sequence[tf.Variable]
Steps = Sequence[tuple[Variables, snt.optimizers.Adam]]  # variables, and what changes them


class Proposal(NamedTuple):
    """Placements to evaluate before the next update.

    Attributes:
      actions: a nest of tensors, the decisions that fix the placements; for ``Learner.learn``.
      placements: [B, U] int32, what they mean; or ``Decisions``, where more is decided than devices.
    """

    actions: Any
    placements: Any


@dataclasses.dataclass(frozen=True, eq=False)
class WarmStart:
    """Plans and reference time that a learner begins with.

    Attributes:
      plans: [K, U] int32, K >= 1, plans that cost nothing to find, the best first.
      reference_s: step time that rewards are relative to, above 0.
      simulate: times placements that nobody proposed: they do not count as evaluations.
    """

    plans: np.ndarray
    reference_s: float
    simulate: SimulateFn


class Learner(Protocol):
    """A ``tf.Module`` that draws placements and learns from how they fared.

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

    Everything that the next proposal depends on is in variables, and what is drawn depends on the seed and the count of
    updates alone: a learner with restored variables goes on as the saved one would have.

    One that can say how sure its policy is has ``entropy()`` too, the mean of a decision in nats as it is now, and
    changes nothing by saying it: ``experiments.learning`` asks.
    """

    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""

    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes one optimizer step.

        Args:
          actions: what ``propose`` gave last.
          runtime_s: [B] step times of its placements; not read where not valid.
          valid: [B] bool, the placement runs and fits.
        """


class PolicyLearner(snt.Module):
    """The loop of every agent; a ``Learner``. An agent says what it draws, and what it does with rewards.

        class MyLearner(PolicyLearner):
            def __init__(self, problem, config, warm_start, seed):
                policy, inputs = ...
                super().__init__("my_learner", policy, config, warm_start, [seed, 0x3E], inputs=inputs)
                self._trains((policy.trainable_variables, config.learning_rate), clip=config.gradient_clip)

            def _draw(self, seed):
                actions = self.policy.sample(self.inputs, self._config.samples, seed)
                return Proposal(actions, self.policy.placements(self.inputs, actions))

            def _update_gradients(self, actions, reward, runtime_s, valid):
                return self._gradients_of(lambda: ...)

    An update is one gradient, which is then applied: ``learn`` does both. An agent with more updates,
    such as steps on minibatches, has an ``_update`` of its own; where settings decide, ``pushes_gradients``, too.

    Rewards are R = -sqrt(r / r_ref) or the failing one (``square_root_reward``). What is not in variables, such as the
    problem, is in ``_of_problem``, which no checkpoint has: it is of the policy alone.

    Attributes:
      policy: what is trained.
      updates: how many there were.
    """

    def __init__(
        self,
        name: str,
        policy: snt.Module,
        config: Any,
        warm_start: WarmStart,
        seeds: list[int],
        **of_problem: Any,
    ):
        """Keeps what every agent has.

        Args:
          name: of the module.
          policy: built.
          config: settings, with a ``failing_reward``.
          warm_start: what rewards are relative to.
          seeds: two numbers, the search's seed and the agent's own.
          **of_problem: ``inputs``, the problem as the policy sees it, and whatever else is no variable.
        """
        super().__init__(name=name)
        self.policy = policy
        self._config = config
        self._reference_s = warm_start.reference_s
        self._seed = tf.constant(seeds, tf.int32)
        self._of_problem = types.SimpleNamespace(**of_problem)
        self.updates = tf.Variable(0, trainable=False, name="updates")

    @property
    def inputs(self) -> Any:
        """The problem as the policy sees it."""
        return self._of_problem.inputs

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        return self._draw(self._now())

    @tf.function(autograph=False)
    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes an optimizer step or several, by teacher forcing of what was executed; see ``Learner``."""
        self._learn(actions, runtime_s, valid)

    @property
    def pushes_gradients(self) -> bool:
        """True if an update is one gradient: ``learn`` is ``gradients``, ``apply``, and one update more."""
        return type(self)._update_gradients is not PolicyLearner._update_gradients

    @tf.function(autograph=False)
    def gradients(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> Any:
        """The gradients of an update, which changes baselines and the like, and no weight; a nest for ``apply``."""
        return self._update_gradients(actions, self._reward(runtime_s, valid), runtime_s, valid)

    @tf.function(autograph=False)
    def apply(self, gradients: Any) -> None:
        """Takes an optimizer step along what ``gradients`` gave, by these or by older weights; counts no update."""
        apply_gradients(gradients, self._optimizers, self._clip)

    @property
    def served(self) -> tuple[tf.Variable, ...]:
        """Variables that ``apply`` changes: weights, and what optimizers keep."""
        return (
            *self.policy.variables,
            *(one for _, optimizer in self._optimizers for one in optimizer.variables),
        )

    def _trains(self, *trained: tuple[Variables, float], clip: float | None = None) -> None:
        """Makes an Adam for each of some variables, with a rate; ``clip`` is the global norm of each one's gradient."""
        self._optimizers = [(variables, adam(rate, variables)) for variables, rate in trained]
        self._clip = clip

    def _learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """The same as ``learn``, untraced."""
        self._update(actions, self._reward(runtime_s, valid), runtime_s, valid)
        self.updates.assign_add(1)

    def _reward(self, runtime_s: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        return square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)

    def _now(self) -> tf.Tensor:
        """[2] the seed of this update."""
        return tf.random.fold_in(self._seed, self.updates)

    def _draw(self, seed: tf.Tensor) -> Proposal:
        """The proposal of this update, by its seed."""
        raise NotImplementedError

    def _update(self, actions: Any, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Learns from rewards [B] of what was executed, before the update is counted."""
        apply_gradients(
            self._update_gradients(actions, reward, runtime_s, valid), self._optimizers, self._clip
        )

    def _update_gradients(
        self, actions: Any, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        """The gradients of an update by rewards [B] of what was executed."""
        raise NotImplementedError

    def _gradients_of(self, loss: Callable[[], tf.Tensor]) -> list[list[tf.Tensor]]:
        """Gradients of a loss, of the variables of each optimizer."""
        return loss_gradients(loss, self._optimizers)[1]

    def _fade(self, updates: int) -> tf.Tensor:
        """Factor that falls from 1 to 0 over that many updates."""
        return tf.maximum(0.0, 1.0 - tf.cast(self.updates, tf.float32) / max(updates, 1))

    def _entropy_target(self) -> tf.Tensor:
        """Target that moves from ``entropy_start`` of the configuration to ``entropy_end`` over ``entropy_updates``."""
        config = self._config
        fade = self._fade(config.entropy_updates)
        return config.entropy_end + (config.entropy_start - config.entropy_end) * fade


def executed_times(runtime_s: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B] float64 step times, infinite where a placement does not run."""
    return tf.where(valid, tf.cast(runtime_s, tf.float64), tf.constant(np.inf, tf.float64))


# Gradient steps: optimizers with all variables made beforehand, clipped gradients, gradients in parts.


def adam(rate: float | tf.Variable, variables: Variables) -> snt.optimizers.Adam:
    """Adam whose moments are there: the first update would make them and be traced twice, and a checkpoint lack them.

    Updates of zero leave variables and moments as they are; the step that was counted is taken back.

    Args:
      rate: the learning rate.
      variables: what it is going to change.
    """
    optimizer = snt.optimizers.Adam(rate)
    optimizer.apply([tf.zeros_like(variable) for variable in variables], variables)
    optimizer.step.assign(0)
    return optimizer


def descend(loss: Callable[[], tf.Tensor], steps: Steps, clip: float | None = None) -> tf.Tensor:
    """Takes a step of each optimizer on its variables; the scalar loss before it.

    Args:
      loss: gives it, in terms of all variables.
      steps: variables, and what changes them.
      clip: global norm of each optimizer's gradient.
    """
    value, gradients = loss_gradients(loss, steps)
    apply_gradients(gradients, steps, clip)
    return value


def loss_gradients(loss: Callable[[], tf.Tensor], steps: Steps) -> tuple[tf.Tensor, list[list[tf.Tensor]]]:
    """A scalar loss, and its gradients by the variables of each optimizer."""
    with tf.GradientTape() as tape:
        value = loss()
    return value, tape.gradient(value, [variables for variables, _ in steps])


def apply_gradients(
    gradients: Sequence[Sequence[tf.Tensor]], steps: Steps, clip: float | None = None
) -> None:
    """Takes a step of each optimizer along its gradients; ``clip`` is the global norm of each one's."""
    for (variables, optimizer), each in zip(steps, gradients, strict=True):
        if clip is not None:
            each, _ = tf.clip_by_global_norm(each, clip)
        optimizer.apply(each, variables)


def summed_gradients(
    loss_of: Callable[[tf.Tensor], tf.Tensor], variables: Variables, total: int, part: int
) -> list[tf.Tensor]:
    """Gradients of a sum of losses, one part after the other, so that memory stays small.

    Args:
      loss_of: of the part that begins at a position in [0, total).
      variables: of all of them.
      total: positions.
      part: how many each part takes, a divisor.
    """

    def add(first: tf.Tensor, *sums: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            loss = loss_of(first)
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return first + part, *(
            one + tf.convert_to_tensor(more) for one, more in zip(sums, gradients, strict=True)
        )

    begun = (tf.constant(0), *(tf.zeros_like(variable) for variable in variables))
    if part == total:
        return list(add(*begun)[1:])
    return list(tf.while_loop(lambda first, *_: first < total, add, begun, parallel_iterations=1)[1:])


# The best plans of all updates, for policies that imitate them.


class BestPlans(snt.Module):
    """Keeps the E fastest decisions that were executed, in variables: self-imitation (Oh et al. 2018).

    Of those that take the same time one is kept, the first: a policy that is sure draws the same plan again and again.
    """

    def __init__(self, device_of_group: np.ndarray, count: int):
        """Begins with decisions whose time is not known.

        Args:
          device_of_group: [G] int32, legal: what stands where no plan is known yet.
          count: E.
        """
        super().__init__(name="best_plans")
        rows = np.tile(device_of_group, (count, 1))
        self.device_of_group = tf.Variable(rows, trainable=False, dtype=tf.int32, name="device_of_group")
        self.runtime_s = tf.Variable(np.full(count, np.inf), trainable=False, name="runtime_s")

    def take(self, device_of_group: tf.Tensor, runtime_s: tf.Tensor) -> None:
        """Takes in decisions [B, G] and their step times [B]; infinite where they do not run."""
        count = self.runtime_s.shape[0]
        rows = tf.concat([self.device_of_group, device_of_group], axis=0)
        times = tf.concat([self.runtime_s, tf.cast(runtime_s, tf.float64)], axis=0)
        order = tf.argsort(times, stable=True)
        ranked = tf.gather(times, order)
        again = tf.concat([[False], ranked[1:] == ranked[:-1]], axis=0)
        ranked = tf.where(again, tf.constant(np.inf, tf.float64), ranked)
        best = tf.argsort(ranked, stable=True)[:count]
        self.device_of_group.assign(tf.gather(rows, tf.gather(order, best)))
        self.runtime_s.assign(tf.gather(ranked, best))

    @property
    def known(self) -> tf.Tensor:
        """[E] float32, 1 where there is a plan, 0 where there is none yet."""
        return tf.cast(tf.math.is_finite(self.runtime_s), tf.float32)
