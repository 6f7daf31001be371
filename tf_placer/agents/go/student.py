"""GO's policy as a student of good plans: parts of them are missing, and it says what was there."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.multi_task import MultiTaskPolicy, made, placement_of
from tf_placer.agents.go.policy import NOWHERE, GoInputs, go_inputs
from tf_placer.agents.graph_inputs import GraphInputs
from tf_placer.agents.learner import adam
from tf_placer.agents.weights import Plans
from tf_placer.base import masked
from tf_placer.cluster.device import MAX_DEVICES
from tf_placer.grouper.groups import ordered_groups
from tf_placer.grouper.joint_plans import DEVICES, JointPlans
from tf_placer.problem.problem import Problem

_FEWEST = 0.05  # share of the decisions that are asked for at least
_GRADIENT_CLIP = 1.0


class GoLesson(NamedTuple):
    """A problem, and good plans for its nodes.

    Attributes:
      inputs: the problem.
      plans: [K, V] int32 devices.
      levels: [K, L, V] int32, in the tasks beyond devices.
      neutral: [L, V] int32, levels with which nothing is decided.
      legal_levels: [L, V, levels] bool.
    """

    inputs: GoInputs
    plans: tf.Tensor
    levels: tf.Tensor
    neutral: tf.Tensor
    legal_levels: tf.Tensor


class GoStudent(snt.Module):
    """Teaches a policy of GO to complete plans of which parts are missing; a ``Student``.

    Of each plan a part of the nodes, drawn anew each time and of any size, is taken away, and the policy is to say
    where they are (masked imitation; Devlin et al. 2019 for words). In half of the lessons they are not nowhere but
    anywhere: what a refinement begins with. Numbers of devices of a type are drawn anew, so that devices that are alike
    are treated alike, and that no number stands for a part of the plan.

    With further tasks (``MultiTaskPolicy``) it is also to say the levels that are missing, given all devices of the
    plan and its levels in the tasks before.
    """

    def __init__(self, config: GoConfig, seed: int, repeats: int = 4):
        """Draws weights.

        Args:
          config: sizes of the networks, what nodes are, and what is decided.
          seed: fixes everything random.
          repeats: how often a step takes parts of each plan away.
        """
        super().__init__(name="go_student")
        self._config = config
        self.tasks, self.levels = tuple(config.tasks.split(",")), config.levels
        # Nothing leans to what stands: a lesson says how likely that is to be right.
        leaning_to_nothing = dataclasses.replace(config, keep_probability=0.0, exploration=0.0)
        self.policy, self.kind = made(leaning_to_nothing, seed)
        self._placement = placement_of(self.policy)
        self._repeats = repeats
        self._seed = tf.constant([seed, 0x57D], tf.int32)
        self._step_length = tf.Variable(config.learning_rate, trainable=False, name="step_length")
        self._optimizer = adam(self._step_length, self.policy.trainable_variables)
        self.updates = tf.Variable(0, trainable=False, name="updates")

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32 nodes."""
        return ordered_groups(problem, self._config.most_nodes).group_of_unit

    def meets(self, problem: Problem, plans: Plans) -> GoLesson:
        """A problem with good plans; of units of one node the first says where it is."""
        nodes = ordered_groups(problem, self._config.most_nodes)
        joint = JointPlans(nodes, self.tasks, self.levels)
        return GoLesson(
            inputs=go_inputs(problem, nodes),
            plans=tf.constant(plans.device_of_unit[:, nodes.first_unit], tf.int32),
            levels=tf.constant(plans.levels, tf.int32),
            neutral=tf.constant(joint.neutral),
            legal_levels=tf.constant(joint.legal),
        )

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
        """Mean over the tasks that are taught."""
        numbers, *of_devices = tf.unstack(tf.random.split(seed, 5))
        inputs = with_drawn_numbers(lesson.inputs, numbers)
        plans = tf.repeat(lesson.plans, self._repeats, axis=0)
        losses = []
        if DEVICES in self.tasks:
            seen, asked = partly_hidden(plans, inputs.legal, tf.constant(NOWHERE), of_devices)
            losses.append(_mean(-masked.log_prob(self._placement.logits(inputs, seen), plans), asked))
        if isinstance(self.policy, MultiTaskPolicy):
            losses.extend(self._losses_of_levels(self.policy, inputs, lesson, plans, seed))
        return tf.add_n(losses) / len(losses)

    def _losses_of_levels(
        self, policy: MultiTaskPolicy, inputs: GoInputs, lesson: GoLesson, plans: tf.Tensor, seed: tf.Tensor
    ) -> list[tf.Tensor]:
        """Mean -log p of the levels that are missing in each further task, of plans with devices [B, V]."""
        further = len([task for task in self.tasks if task != DEVICES])
        levels = tf.unstack(tf.repeat(lesson.levels, self._repeats, axis=0), further, axis=1)
        legal, neutral = (tf.unstack(one, further) for one in (lesson.legal_levels, lesson.neutral))
        seeds = [tf.unstack(tf.random.split(tf.random.fold_in(seed, 1 + task), 4)) for task in range(further)]
        hidden = [partly_hidden(*of_task) for of_task in zip(levels, legal, neutral, seeds, strict=True)]
        seen, asked = zip(*hidden, strict=True)
        begin, state = (tf.stack([plans, *one], axis=1) for one in (seen, levels))
        log_prob = tf.unstack(policy.score_levels(inputs, begin, state).log_prob, further, axis=1)
        return [_mean(-one, missing) for one, missing in zip(log_prob, asked, strict=True)]


def partly_hidden(
    plans: tf.Tensor, legal: tf.Tensor, nothing: tf.Tensor, seeds: list[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decisions [B, V] int32 of which a share is missing, as they are seen, and [B, V] float32, 1 for what is missing.

    Args:
      plans: [B, V] int32.
      legal: [V, C] bool; a node with one legal choice is never missing.
      nothing: scalar or [V], what is seen in half of the rows where something is missing; in the others, any choice.
      seeds: four.
    """
    share, hidden, anywhere, is_anywhere = seeds
    rows = tf.shape(plans)[0]
    most = tf.random.stateless_uniform([rows, 1], share, _FEWEST, 1.0)
    missing = tf.random.stateless_uniform(tf.shape(plans), hidden) < most
    free = tf.reduce_sum(tf.cast(legal, tf.int32), axis=1) > 1
    missing = tf.logical_and(missing, free)
    uniform = masked.masked(tf.zeros(tf.shape(legal)), legal)
    drawn = masked.largest(uniform + masked.gumbel([rows, *tf.unstack(tf.shape(uniform))], anywhere))
    is_nothing = tf.random.stateless_uniform([rows, 1], is_anywhere) < 0.5
    seen = tf.where(missing, tf.where(is_nothing, nothing, drawn), plans)
    return seen, tf.cast(missing, tf.float32)


def _mean(loss: tf.Tensor, asked: tf.Tensor) -> tf.Tensor:
    """Mean over what is asked for."""
    return tf.reduce_sum(asked * loss) / tf.maximum(tf.reduce_sum(asked), 1.0)


def with_drawn_numbers(inputs: GoInputs, seed: tf.Tensor) -> GoInputs:
    """A problem whose devices have other numbers of their types, each number once."""
    graph = inputs.graph
    order = tf.argsort(tf.random.stateless_uniform([MAX_DEVICES], seed), stable=True)
    kind = graph.device_numbers // MAX_DEVICES
    numbers = kind * MAX_DEVICES + tf.gather(order, graph.device_numbers % MAX_DEVICES)
    renumbered = GraphInputs(*(numbers if one is graph.device_numbers else one for one in graph))
    return GoInputs(renumbered, *inputs[1:])
