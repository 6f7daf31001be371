"""What a policy is while it is taught on many problems: it is shown them, with good plans if it needs some."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.weights import PolicyKind
from tf_placer.problem.problem import Problem


class Student(Protocol):
    """A ``tf.Module`` with a policy for any problem, all of whose state is in variables.

        group_of_unit = student.groups_of(problem)  # whoever looks for plans keeps to these
        lesson = student.meets(problem, plans)
        loss = student.learn(lesson, tf.constant(1.0))

    What a step draws depends on the seed and the count of steps alone: a student with restored variables goes on as the
    saved one would have.

    Attributes:
      policy: what is taught.
      kind: says for which policies its weights are.
      needs_plans: whether it learns from plans; else none are searched for it.
    """

    policy: snt.Module
    kind: PolicyKind
    needs_plans: bool

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32, from 0 on: units that the policy can only place together have the same number."""

    def meets(self, problem: Problem, plans: np.ndarray | None) -> Any:
        """A problem with good plans [K, U], if it needs some, as the policy sees them."""

    def learn(self, lesson: Any, rate: tf.Tensor) -> tf.Tensor:
        """Takes one step: towards the plans, or towards what it finds by itself.

        Args:
          lesson: what ``meets`` gave.
          rate: scalar float32, the length of the step as a share of the learning rate.

        Returns:
          Scalar float32, what is to become small, before the step: a mean -log p in nats, or the logarithm of a time.
        """

    def loss_of(self, lesson: Any) -> tf.Tensor:
        """The same without a step: for problems that it is not taught."""
