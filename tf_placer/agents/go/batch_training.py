"""One policy, taught on several graphs of unlike size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.learner import GoLearner
from tf_placer.agents.go.policy import GoPolicy
from tf_placer.agents.learner import Beginning
from tf_placer.problem.problem import Problem


class ManyProblems(snt.Module):
    """Trains a ``GoPolicy`` on several problems in turn (Zhou et al. 2020, section 3.4: J = E_G E_pi r).

        many = ManyProblems(problems, config, beginnings, seed)
        for turn in many.rounds(100):
            print(turn)  # the mean time of each problem's samples

    Each problem has a learner of its own, with a baseline, a best placement and Adam's moments of its own; the weights
    are the same. A round is an update on each problem, in an order that is drawn anew.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        config: GoConfig,
        beginnings: Sequence[Beginning],
        seed: int,
        policy: GoPolicy | None = None,
    ):
        """Builds the policy, and a learner for each problem.

        Args:
          problems: P >= 1 of them; sizes, numbers of devices and op types may differ.
          config: settings, the same for all.
          beginnings: of each problem; samples are timed by its ``simulate``.
          seed: fixes everything random.
          policy: goes on with these weights and changes them; None draws new ones.
        """
        super().__init__(name="many_problems")
        self.policy = GoPolicy(config, seed) if policy is None else policy
        self.learners = [
            GoLearner(problem, config, beginning, seed + number, policy=self.policy)
            for number, (problem, beginning) in enumerate(zip(problems, beginnings, strict=True))
        ]
        self._simulate = [one.simulate for one in beginnings]
        self._seed = seed
        self.count = tf.Variable(0, trainable=False, name="count")  # rounds that are done

    def rounds(self, count: int) -> Iterator[list[float]]:
        """Takes that many rounds; gives the mean time of each problem's samples that ran, infinite where none did."""
        for _ in range(count):
            generator = np.random.default_rng([self._seed, int(self.count)])
            mean_s = [np.inf] * len(self.learners)
            for number in generator.permutation(len(self.learners)):
                mean_s[number] = self._update(number)
            self.count.assign_add(1)
            yield mean_s

    def _update(self, number: int) -> float:
        """One update on one problem; the mean time of what ran."""
        learner = self.learners[number]
        proposal = learner.propose()
        runtime_s, fits = self._simulate[number](proposal.placements.numpy())
        learner.learn(proposal.actions, tf.constant(runtime_s), tf.constant(fits))
        return float(np.mean(runtime_s[fits])) if fits.any() else float("inf")
