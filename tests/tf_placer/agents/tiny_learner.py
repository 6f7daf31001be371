"""The smallest learner that learns: a probability for each unit, and nothing to trace."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import Proposal, WarmStart
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class TinyConfig:
    """Cross-entropy minimization (Rubinstein 1999) over units.

    Attributes:
      samples: drawn for an update.
      rate: how far an update goes; 0 learns nothing.
    """

    samples: int = 32
    rate: float = 0.3


class TinyLearner(tf.Module):
    """A learner of problems whose units may all be on devices 0 and 1."""

    def __init__(self, problem: Problem, config: TinyConfig, warm_start: WarmStart, seed: int) -> None:
        super().__init__()
        del warm_start  # it begins nowhere
        self._config, self._seed = config, seed
        self.likely = tf.Variable(np.full(problem.num_units, 0.5))  # to be on device 1
        self.updates = tf.Variable(0)

    def propose(self) -> Proposal:
        draw = np.random.default_rng([self._seed, int(self.updates)])
        likely = self.likely.numpy()
        rows = draw.random((self._config.samples, len(likely))) < likely
        return Proposal(tf.constant(rows.astype(np.int32)), tf.constant(rows.astype(np.int32)))

    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        times = np.where(valid.numpy(), runtime_s.numpy(), np.inf)
        elites = actions.numpy()[np.argsort(times, kind="stable")[: self._config.samples // 8]]
        self.likely.assign_add(self._config.rate * (elites.mean(axis=0) - self.likely))
        self.updates.assign_add(1)

    def entropy(self) -> float:
        """Mean of a unit, in nats."""
        likely = np.clip(self.likely.numpy(), 1e-9, 1 - 1e-9)
        return float(np.mean(-likely * np.log(likely) - (1 - likely) * np.log(1 - likely)))


TINY = MethodSpec("tiny", Kind.LEARNED, "A probability for each unit.", TinyLearner, config=TinyConfig)
