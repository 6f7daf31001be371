"""Teaches GO's policy on many problems, from plans that a search has found for them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.policy import NOWHERE, GoInputs, GoPolicy, go_inputs, go_kind
from tf_placer.agents.graph_inputs import GraphInputs
from tf_placer.agents.learner import adam
from tf_placer.base import masked
from tf_placer.cluster.device import MAX_DEVICES
from tf_placer.grouper.groups import ordered_groups
from tf_placer.problem.problem import Problem

_FEWEST = 0.05  # share of the decisions that are asked for at least
_GRADIENT_CLIP = 1.0


class GoLesson(NamedTuple):
    """A problem, and good plans [K, V] int32 for its nodes."""

    inputs: GoInputs
    plans: tf.Tensor


class GoStudent(snt.Module):
    """Teaches a ``GoPolicy`` to complete plans of which parts are missing; a ``Student``.

    Of each plan a part of the nodes, drawn anew each time and of any size, is taken away, and the policy is to say
    where they are (masked imitation; Devlin et al. 2019 for words). In half of the lessons they are not nowhere but
    anywhere: what a refinement begins with. Numbers of devices of a type are drawn anew, so that devices that are alike
    are treated alike, and that no number stands for a part of the plan.
    """

    needs_plans = True

    def __init__(self, config: GoConfig, seed: int, repeats: int = 4):
        """Draws weights.

        Args:
          config: sizes of the networks and what nodes are.
          seed: fixes everything random.
          repeats: how often a step takes parts of each plan away.
        """
        super().__init__(name="go_student")
        self._config = config
        self.policy = GoPolicy(dataclasses.replace(config, keep_probability=0.0, exploration=0.0), seed)
        self.kind = go_kind(config)
        self._repeats = repeats
        self._seed = tf.constant([seed, 0x57D], tf.int32)
        self._step_length = tf.Variable(config.learning_rate, trainable=False, name="step_length")
        self._optimizer = adam(self._step_length, self.policy.trainable_variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32 nodes."""
        return ordered_groups(problem, self._config.most_nodes).group_of_unit

    def meets(self, problem: Problem, plans: np.ndarray) -> GoLesson:
        """A problem with good plans [K, U]; of units of one node the first says where it is."""
        nodes = ordered_groups(problem, self._config.most_nodes)
        return GoLesson(go_inputs(problem, nodes), tf.constant(plans[:, nodes.first_unit], tf.int32))

    @tf.function(autograph=False, reduce_retracing=True)
    def learn(self, lesson: GoLesson, rate: tf.Tensor) -> tf.Tensor:
        """Takes one optimizer step; the mean -log p of what was missing, before it."""
        variables = self.policy.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._loss(lesson, tf.random.fold_in(self._seed, self.updates))
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        clipped, _ = tf.clip_by_global_norm([tf.convert_to_tensor(one) for one in gradients], _GRADIENT_CLIP)
        self._step_length.assign(self._config.learning_rate * rate)
        self._optimizer.apply(clipped, variables)
        self.updates.assign_add(1)
        return loss

    @tf.function(autograph=False, reduce_retracing=True)
    def loss_of(self, lesson: GoLesson) -> tf.Tensor:
        """The same parts missing each time, and no step."""
        return self._loss(lesson, tf.random.fold_in(self._seed, -1))

    def _loss(self, lesson: GoLesson, seed: tf.Tensor) -> tf.Tensor:
        numbers, share, hidden, anywhere, is_anywhere = tf.unstack(tf.random.split(seed, 5))
        inputs = with_drawn_numbers(lesson.inputs, numbers)
        plans = tf.repeat(lesson.plans, self._repeats, axis=0)
        rows = tf.shape(plans)[0]
        most = tf.random.stateless_uniform([rows, 1], share, _FEWEST, 1.0)
        missing = tf.random.stateless_uniform(tf.shape(plans), hidden) < most
        free = tf.reduce_sum(tf.cast(inputs.legal, tf.int32), axis=1) > 1
        missing = tf.logical_and(missing, free)
        uniform = masked.masked(tf.zeros_like(inputs.slowness), inputs.legal)
        drawn = masked.largest(uniform + masked.gumbel([rows, *tf.unstack(tf.shape(uniform))], anywhere))
        nowhere = tf.random.stateless_uniform([rows, 1], is_anywhere) < 0.5
        seen = tf.where(missing, tf.where(nowhere, NOWHERE, drawn), plans)
        log_prob = masked.log_prob(self.policy.logits(inputs, seen), plans)
        asked = tf.cast(missing, tf.float32)
        return -tf.reduce_sum(asked * log_prob) / tf.maximum(tf.reduce_sum(asked), 1.0)


def with_drawn_numbers(inputs: GoInputs, seed: tf.Tensor) -> GoInputs:
    """A problem whose devices have other numbers of their types, each number once."""
    graph = inputs.graph
    order = tf.argsort(tf.random.stateless_uniform([MAX_DEVICES], seed), stable=True)
    kind = graph.device_numbers // MAX_DEVICES
    numbers = kind * MAX_DEVICES + tf.gather(order, graph.device_numbers % MAX_DEVICES)
    renumbered = GraphInputs(*(numbers if one is graph.device_numbers else one for one in graph))
    return GoInputs(renumbered, *inputs[1:])
