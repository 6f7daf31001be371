"""Teaches a prior of rules on many problems."""

from __future__ import annotations

import dataclasses

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.learned_list.config import LearnedListConfig
from tf_placer.agents.learned_list.placer import ListPlacer
from tf_placer.agents.learned_list.policy import RulePrior, learned_list_kind
from tf_placer.agents.learned_list.rules import Rules
from tf_placer.evaluation.any_order import search_simulator
from tf_placer.evaluation.evaluator import Evaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.grouper.groups import ordered_groups
from tf_placer.planners.single_device import single_device_placements
from tf_placer.problem.problem import Problem

_BATCHES = 8  # of a search
_STEP = 0.3  # share of the way to where it ended
_WORST = 4.0  # a step that does not fit, or takes longer, counts as so many times the reference


@dataclasses.dataclass(frozen=True, eq=False)
class ListLesson:
    """A problem to place.

    Attributes:
      placer: applies rules to it.
      evaluator: times placements.
      reference_s: seconds that others are relative to.
    """

    placer: ListPlacer
    evaluator: Evaluator
    reference_s: float

    def times_s(self, rules: np.ndarray) -> np.ndarray:
        """[B] seconds; inf where the placement does not fit."""
        found = self.evaluator.evaluate(self.placer(rules))
        return np.where(found.status == Status.OK, found.runtime_s, np.inf)


class LearnedListStudent(snt.Module):
    """Teaches a ``RulePrior`` to be near the rules that searches end with; a ``Student``.

    A step searches one problem from the prior on, and moves the prior some of the way to where the search ended
    (Reptile: Nichol, Achiam & Schulman 2018, with the cross-entropy method for the inner steps). So the prior's mean is
    a rule that is good by itself, and a few batches from the best one for a program.
    """

    needs_plans = False

    def __init__(self, config: LearnedListConfig, seed: int):
        """A prior that nobody taught.

        Args:
          config: how searches move.
          seed: fixes everything random.
        """
        super().__init__(name="learned_list_student")
        self._config = config
        self._seed = seed
        self.policy = RulePrior()
        self.kind = learned_list_kind()
        self.updates = tf.Variable(0, trainable=False, name="updates")

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32 nodes."""
        return ordered_groups(problem, self._config.num_groups).group_of_unit

    def meets(self, problem: Problem, plans: np.ndarray | None = None) -> ListLesson:
        """The problem with what times its placements; plans are not looked at."""
        del plans
        evaluator = search_simulator(problem)
        single = evaluator.evaluate(single_device_placements(problem)).runtime_s
        return ListLesson(ListPlacer(problem, self._config), evaluator, float(np.nanmin(single)))

    def learn(self, lesson: ListLesson, rate: tf.Tensor) -> tf.Tensor:
        """Searches the problem, and moves the prior towards where the search ended.

        Args:
          lesson: what ``meets`` gave.
          rate: scalar float32, share of the whole step.

        Returns:
          Scalar float32, ``loss_of`` before the step.
        """
        mean = self.policy.mean.numpy()
        rules, first_s = Rules(mean, self.policy.spread, self._config), np.inf
        for batch in range(_BATCHES):
            drawn = rules.draw(np.random.default_rng([self._seed, 0x1E5, int(self.updates), batch]))
            times_s = lesson.times_s(drawn)
            first_s = times_s[0] if not batch else first_s
            rules.learn(drawn, times_s)
        self.policy.mean.assign(mean + float(rate) * _STEP * (rules.mean - mean))
        self.updates.assign_add(1)
        return _loss(float(first_s), lesson)

    def loss_of(self, lesson: ListLesson) -> tf.Tensor:
        """Scalar float32, logarithm of the step's time by the prior's mean, over that of the best single device."""
        return _loss(float(lesson.times_s(self.policy.mean.numpy()[np.newaxis])[0]), lesson)


def _loss(runtime_s: float, lesson: ListLesson) -> tf.Tensor:
    return tf.constant(np.log(min(runtime_s / lesson.reference_s, _WORST)), tf.float32)
