"""Learned methods: the update loop of policies, gradient steps, and a memory of good plans."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.losses import square_root_reward

# [B, U] int32 placements -> step times [B] in seconds, and [B] bool: does it fit.
SimulateFn = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Variables = Sequence[tf.Variable]
Steps = Sequence[tuple[Variables, snt.optimizers.Adam]]  # variables and their optimizer


class Proposal(NamedTuple):
    """Placements to evaluate before the next update."""

    actions: Any  # nest of tensors, the decisions that fix the placements; for ``learn``
    placements: Any  # [B, U] int32; or ``Decisions``, where more than devices is decided


@dataclasses.dataclass(frozen=True, eq=False)
class WarmStart:
    """Plans and reference time that a learner begins with."""

    plans: np.ndarray  # [K, U] int32, K >= 1, plans that cost nothing to find, the best first
    reference_s: float  # step time that rewards are relative to, above 0
    simulate: SimulateFn  # times placements without counting them as evaluations


class PolicyLearner(snt.Module):
    """Draws placements and learns from their step times: the update loop of every agent (docs/extending.md).

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

    Whatever has these two methods is a learner. All state is in variables, and draws depend on the seed and the count
    of updates alone: with restored variables it continues as the saved one would have. ``entropy()`` is optional: the
    mean entropy of a decision in nats, for ``experiments.study``. An agent adds what to draw and to learn:

        def _draw(self, seed):
            actions = self.policy.sample(self.inputs, self._config.samples, seed)
            return Proposal(actions, self.policy.placements(self.inputs, actions))

        def _update_gradients(self, actions, reward, runtime_s, valid):
            return self._gradients_of(lambda: ...)

    The agents of tf_placer are built by ``Agent(problem, config, warm_start, seed)``. They lean to the
    fastest of the plans of ``warm_start``, once each group is on one device. ``seed`` fixes everything
    random.

    An update is one gradient, unless ``_update`` is overridden. Rewards are those of ``square_root_reward``.
    Constants of the problem are in ``_of_problem``, which no checkpoint contains.
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
        """Keeps a config with ``failing_reward``, seeds of search and agent, and ``inputs`` and other constants."""
        super().__init__(name=name)
        self.policy = policy
        self._config = config
        self._reference_s = warm_start.reference_s
        self._seed = tf.constant(seeds, tf.int32)
        self._of_problem = types.SimpleNamespace(**of_problem)
        self.updates = tf.Variable(0, trainable=False, name="updates")

    @property
    def inputs(self) -> Any:
        """The policy's inputs."""
        return self._of_problem.inputs

    @tf.function(autograph=False)
    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""
        return self._draw(self._now())

    @tf.function(autograph=False)
    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Learns from step times [B] of the last proposal; they are not read where not ``valid`` [B] bool."""
        self._learn(actions, runtime_s, valid)

    def _trains(self, *trained: tuple[Variables, float], clip: float | None = None) -> None:
        """Makes an Adam for each set of variables; ``clip`` is the global norm of each one's gradient."""
        self._optimizers = [(variables, adam(rate, variables)) for variables, rate in trained]
        self._clip = clip

    def _learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """``learn``, untraced."""
        reward = square_root_reward(runtime_s, valid, self._reference_s, self._config.failing_reward)
        self._update(actions, reward, runtime_s, valid)
        self.updates.assign_add(1)

    def _now(self) -> tf.Tensor:
        """[2] the seed of this update."""
        return tf.random.fold_in(self._seed, self.updates)

    def _draw(self, seed: tf.Tensor) -> Proposal:
        """The proposal of this update, by its seed."""
        raise NotImplementedError

    def _update(self, actions: Any, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Learns from the rewards [B] of executed actions, before the update is counted."""
        gradients = self._update_gradients(actions, reward, runtime_s, valid)
        apply_gradients(gradients, self._optimizers, self._clip)

    def _update_gradients(
        self, actions: Any, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        """Gradients of an update, from the rewards [B] of executed actions."""
        raise NotImplementedError

    def _gradients_of(self, loss: Callable[[], tf.Tensor]) -> list[list[tf.Tensor]]:
        """Gradients of a loss in the variables of each optimizer."""
        with tf.GradientTape() as tape:
            value = loss()
        return tape.gradient(value, [variables for variables, _ in self._optimizers])

    def _fade(self, updates: int) -> tf.Tensor:
        """Factor that falls from 1 to 0 over a number of updates."""
        return tf.maximum(0.0, 1.0 - tf.cast(self.updates, tf.float32) / max(updates, 1))


def executed_times(runtime_s: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B] float64 step times, infinite where a placement does not run."""
    return tf.where(valid, tf.cast(runtime_s, tf.float64), tf.constant(np.inf, tf.float64))


def adam(rate: float | tf.Variable, variables: Variables) -> snt.optimizers.Adam:
    """Adam with its moments created already: else the first update is traced twice, and a checkpoint lacks them."""
    optimizer = snt.optimizers.Adam(rate)
    # Updates of zero leave variables and moments as they are; only the counted step is undone.
    optimizer.apply([tf.zeros_like(variable) for variable in variables], variables)
    optimizer.step.assign(0)
    return optimizer


def descend(loss: Callable[[], tf.Tensor], steps: Steps, clip: float | None = None) -> tf.Tensor:
    """Takes a step of each optimizer (``apply_gradients``); returns the scalar loss before."""
    with tf.GradientTape() as tape:
        value = loss()
    apply_gradients(tape.gradient(value, [variables for variables, _ in steps]), steps, clip)
    return value


def apply_gradients(
    gradients: Sequence[Sequence[tf.Tensor]], steps: Steps, clip: float | None = None
) -> None:
    """Takes a step of each optimizer along its gradients; ``clip`` is the global norm of each one's."""
    for (variables, optimizer), gradient in zip(steps, gradients, strict=True):
        if clip is not None:
            gradient, _ = tf.clip_by_global_norm(gradient, clip)
        optimizer.apply(gradient, variables)


def summed_gradients(
    loss_of: Callable[[tf.Tensor], tf.Tensor], variables: Variables, total: int, part: int
) -> list[tf.Tensor]:
    """Gradients of a sum of losses, one part after the other, so that memory stays small.

    ``loss_of`` is given the first of ``part`` positions in [0, ``total``), which ``part`` divides.
    """

    def add(position: tf.Tensor, *sums: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            loss = loss_of(position)
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # A gradient may be ``IndexedSlices``, which a loop cannot carry.
        added = [a + tf.convert_to_tensor(b) for a, b in zip(sums, gradients, strict=True)]
        return position + part, *added

    begin = (tf.constant(0), *(tf.zeros_like(variable) for variable in variables))
    if part == total:
        return list(add(*begin)[1:])
    return list(tf.while_loop(lambda position, *_: position < total, add, begin, parallel_iterations=1)[1:])


class Best(snt.Module):
    """The E fastest decisions that were executed, in variables, and their step times.

    Only the first of several with the same time is kept: a confident policy draws the same plan
    again and again. With several it is for self-imitation (Oh et al. 2018).
    """

    def __init__(self, *decisions: np.ndarray, count: int = 1):
        """Begins with E = ``count`` copies of decisions whose time is not known: int32 arrays of any shapes."""
        super().__init__(name="best")
        self.decisions = [  # [E, ...] each
            tf.Variable(np.repeat(array[np.newaxis], count, axis=0), trainable=False, dtype=tf.int32)
            for array in decisions
        ]
        self.runtime_s = tf.Variable(np.full(count, np.inf), trainable=False, name="runtime_s")  # [E]

    def take(self, decisions: Sequence[tf.Tensor], runtime_s: tf.Tensor) -> None:
        """Merges B decisions, [B, ...] each, with step times [B]; infinite where they do not run."""
        times = tf.concat([self.runtime_s, tf.cast(runtime_s, tf.float64)], axis=0)
        order = tf.argsort(times, stable=True)
        ranked = tf.gather(times, order)
        is_repeated = tf.concat([[False], ranked[1:] == ranked[:-1]], axis=0)
        ranked = tf.where(is_repeated, tf.constant(np.inf, tf.float64), ranked)
        best = tf.argsort(ranked, stable=True)[: self.runtime_s.shape[0]]
        rows = tf.gather(order, best)
        for variable, batch in zip(self.decisions, decisions, strict=True):
            variable.assign(tf.gather(tf.concat([variable, batch], axis=0), rows))
        self.runtime_s.assign(tf.gather(ranked, best))

    @property
    def fastest(self) -> list[tf.Tensor]:
        """The decisions of the fastest plan."""
        return [variable[0] for variable in self.decisions]

    @property
    def known(self) -> tf.Tensor:
        """[E] float32, 1 where there is a plan, 0 where there is none yet."""
        return tf.cast(tf.math.is_finite(self.runtime_s), tf.float32)
