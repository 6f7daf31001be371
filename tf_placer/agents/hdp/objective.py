"""What the Hierarchical planner descends: the losses of its two networks."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.policy import Scores
from tf_placer.agents.losses import cross_entropy_loss, ppo_loss, quantile_loss, reinforce_loss


class Lesson(NamedTuple):
    """What the rewards of a batch say.

    Attributes:
      advantage: [m k] of the samples that the policy drew, as are the next three; 0 for others.
      may_teach: [m k] 1 or 0.
      elite: [m k] 1 for the best of these, and for the incumbent.
      above: [m k] how far the best rewards are above the others.
      of_tries: [C] advantages of regroupings among themselves; none where there never is one.
    """

    advantage: tf.Tensor
    may_teach: tf.Tensor
    elite: tf.Tensor
    above: tf.Tensor
    of_tries: tf.Tensor


def placer_loss(config: HdpConfig, scores: Scores, lesson: Lesson, old_log_prob: tf.Tensor) -> tf.Tensor:
    """The Placer's.

    Args:
      config: says which.
      scores: of the executed decisions; differentiated.
      lesson: what they were worth.
      old_log_prob: [M, K, G'] of the decisions when they were drawn.
    """
    log_prob = tf.reshape(scores.device_log_prob, [-1])
    if config.loss == "cross_entropy":
        return cross_entropy_loss(log_prob, lesson.elite)
    if config.loss == "quantile":
        return quantile_loss(log_prob, lesson.above)
    if config.loss == "ppo":
        shape = [log_prob.shape[0], scores.decision_log_prob.shape[2]]
        return ppo_loss(
            tf.reshape(scores.decision_log_prob, shape),
            tf.reshape(old_log_prob, shape),
            lesson.advantage[:, tf.newaxis],
            lesson.may_teach[:, tf.newaxis],
        )
    return reinforce_loss(log_prob, lesson.advantage, lesson.may_teach)


def grouping_loss(scores: Scores, lesson: Lesson) -> tf.Tensor:
    """The Grouper's in the paper: each grouping is worth what its placements are on average."""
    shape = scores.device_log_prob.shape
    advantage = tf.reduce_mean(tf.reshape(lesson.may_teach * lesson.advantage, shape), axis=1)
    return reinforce_loss(scores.group_log_prob, advantage, tf.ones_like(advantage))


def regrouping_loss(log_prob: tf.Tensor, lesson: Lesson) -> tf.Tensor:
    """The Grouper's where units move one by one: each move [C] is worth what it gains."""
    return reinforce_loss(log_prob, lesson.of_tries, tf.ones_like(lesson.of_tries))
