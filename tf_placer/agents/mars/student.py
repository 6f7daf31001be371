"""Teaches Mars' encoder on many graphs, by contrast alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.policy import MarsPolicy
from tf_placer.agents.mars.pretraining import Pretraining
from tf_placer.agents.mars.unit_encoder import mars_kind
from tf_placer.problem.problem import Problem


class MarsStudent(snt.Module):
    """Pre-trains the encoder on graphs of any programs (Lan et al. 2021, section 3); a ``Student``.

    What is taught is the encoder, not the placer: a step is one of Deep Graph Infomax, which asks for no plan.
    """

    needs_plans = False

    def __init__(self, config: MarsConfig, seed: int):
        """Draws weights.

        Args:
          config: sizes of the encoder, and how long its steps are.
          seed: fixes everything random.
        """
        super().__init__(name="mars_student")
        self.policy = MarsPolicy(config, seed).encoder
        self.kind = mars_kind(config)
        self._pretraining = Pretraining(self.policy, config.pretrain_rate, seed)

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32: nothing is placed, so any grouping would do."""
        return np.arange(problem.num_units, dtype=np.int32)

    def meets(self, problem: Problem, plans: Any = None) -> GraphInputs:
        """The graph; plans are not looked at."""
        return graph_inputs(problem, landmarks=0, seed=0)

    def learn(self, lesson: GraphInputs, rate: tf.Tensor) -> tf.Tensor:
        """Takes one optimizer step; the mean -log p that a unit is told from one mixed up, before it."""
        return self._pretraining.step(lesson, rate)

    def loss_of(self, lesson: GraphInputs) -> tf.Tensor:
        """The same without a step, mixed up in a way that is not taught."""
        return self._pretraining.loss(lesson)

    def accuracy(self, lesson: GraphInputs) -> tf.Tensor:
        """Share of the units that are told from those of the graph mixed up; 0.5 by chance."""
        return self._pretraining.accuracy(lesson)
