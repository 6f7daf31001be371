"""A distribution of rules for one problem, which moves to those that fare well."""

from __future__ import annotations

import numpy as np

from tf_placer.agents.learned_list.config import LearnedListConfig


class Rules:
    """The cross-entropy method over the coefficients of rules (Rubinstein 1999; de Boer et al. 2005).

        rules = Rules(mean, spread, config)
        drawn = rules.draw(generator)
        rules.learn(drawn, runtime_s)

    Attributes:
      mean: [P] float64.
      spread: [P] float64 standard deviations.
    """

    def __init__(self, mean: np.ndarray, spread: np.ndarray, config: LearnedListConfig) -> None:
        """Begins with a distribution."""
        self._config = config
        self.mean, self.spread = np.array(mean, np.float64), np.array(spread, np.float64)

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """[B, P]: the mean, then draws."""
        noise = generator.standard_normal((self._config.rules, len(self.mean)))
        noise[0] = 0
        return self.mean + self.spread * noise

    def learn(self, drawn: np.ndarray, runtime_s: np.ndarray) -> None:
        """Moves towards the fastest of what was drawn, and becomes as narrow as they are.

        Args:
          drawn: [B, P].
          runtime_s: [B] seconds, inf where a placement does not run.
        """
        config = self._config
        fastest = np.argsort(runtime_s, kind="stable")[: config.elites]
        elites = drawn[fastest[np.isfinite(runtime_s[fastest])]]
        if not len(elites):
            return
        self.mean += config.step * (elites.mean(axis=0) - self.mean)
        narrower = self.spread + config.spread_step * (elites.std(axis=0) - self.spread)
        self.spread = np.maximum(narrower, np.minimum(self.spread, config.least_spread))
