"""Samples that change the best plan so far: what they change, and what that is worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tf_placer.agents.baselines import standardized_advantage
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.incumbent import Incumbent
from tf_placer.agents.hdp.inputs import HdpInputs
from tf_placer.agents.hdp.policy import Actions, HdpPolicy
from tf_placer.agents.hdp.regrouping import Moves, Regrouping

MOVES_DEVICES = 4
"""Once units move, one sample in so many still puts groups on other devices."""


class Tries(NamedTuple):
    """Changes of the incumbent, C samples.

    Attributes:
      moves: of units between its groups; none where devices change.
      device_of_group: [C, G'] int32.
    """

    moves: Moves
    device_of_group: tf.Tensor


class Executed(NamedTuple):
    """What a batch is made of.

    Attributes:
      drawn: M groupings and K placements of each, that the policy scores. With ``tries`` the last grouping and all its
        placements are the incumbent's, which were executed before, and the tries are executed in their place.
      tries: K samples; () without any.
    """

    drawn: Actions
    tries: Any


class Changes:
    """Draws changes of an incumbent, beside what the policy draws, and scores them."""

    def __init__(
        self, incumbent: Incumbent, regrouping: Regrouping | None, legal: tf.Tensor, config: HdpConfig
    ):
        """Takes what they are made of.

        Args:
          incumbent: that is changed.
          regrouping: of the same problem; None for no changes.
          legal: [G', D] bool.
          config: when units begin to move, and how many samples there are.
        """
        self._incumbent = incumbent
        self._regrouping = regrouping
        self._legal = legal
        self._begin = config.regroup_after or tf.int32.max
        self._placements = config.placements
        self.own = config.groupings * config.placements  # samples, the first ones, that the policy draws

    @property
    def any(self) -> bool:
        """Whether there are others."""
        return self._regrouping is not None

    def execute(
        self, drawn: Actions, group_logits: tf.Tensor, updates: tf.Tensor, seed: tf.Tensor
    ) -> Executed:
        """What is executed after so many updates, where the policy has drawn groupings and placements."""
        if not self.any:
            return Executed(drawn, ())
        best = self._incumbent
        devices = tf.repeat(best.device_of_group[tf.newaxis], self._placements, axis=0)
        with_best = Actions(
            tf.concat([drawn.group_of_unit, best.group_of_unit[tf.newaxis]], axis=0),
            tf.concat([drawn.device_of_group, devices[tf.newaxis]], axis=0),
        )
        return Executed(with_best, self.draw(group_logits, self._placements, updates, seed))

    def placements(self, policy: HdpPolicy, inputs: HdpInputs, executed: Executed) -> tf.Tensor:
        """[B, U] int32 devices of what is executed."""
        if not self.any:
            return policy.placements(inputs, executed.drawn)
        own = Actions(*(tensor[:-1] for tensor in executed.drawn))
        parts = [policy.placements(inputs, each) for each in (own, self.actions(executed.tries))]
        return tf.concat(parts, axis=0)

    def decided(self, executed: Executed, index: tf.Tensor) -> Actions:
        """One grouping and one placement: what fixed the placement of that number."""
        grouping, sample = index // self._placements, index % self._placements
        drawn = Actions(
            executed.drawn.group_of_unit[grouping][tf.newaxis],
            executed.drawn.device_of_group[grouping, sample][tf.newaxis, tf.newaxis],
        )
        if not self.any:
            return drawn
        number = tf.maximum(index - self.own, 0)
        one = tf.nest.map_structure(lambda tensor: tensor[number : number + 1], executed.tries)
        return tf.nest.map_structure(
            lambda other, own: tf.where(index >= self.own, other, own), self.actions(one), drawn
        )

    def draw(self, group_logits: tf.Tensor, samples: int, updates: tf.Tensor, seed: tf.Tensor) -> Tries:
        """C changes; once units move, most do that, by the Grouper's logits [U, G']."""
        seeds = tf.random.split(seed, 2)
        moves = self._of_units.draw(self._borders(group_logits), samples, seeds[0])
        devices = tf.logical_or(tf.range(samples) % MOVES_DEVICES == 0, updates < self._begin)
        changed = self._incumbent.changed(self._legal, samples, seeds[1])
        return Tries(
            Moves(moves.border, moves.size, tf.where(devices, 0, moves.count)),
            tf.where(devices[:, tf.newaxis], changed, self._incumbent.device_of_group),
        )

    def actions(self, tries: Tries) -> Actions:
        """What they decide: C groupings and a placement of each."""
        groups = self._of_units.moved(self._incumbent.group_of_unit, tries.moves)
        return Actions(groups, tries.device_of_group[:, tf.newaxis])

    def log_prob(self, group_logits: tf.Tensor, tries: Tries) -> tf.Tensor:
        """[C] log-probability of exactly these moves; 0 where devices change, which no network draws."""
        return self._of_units.log_prob(self._borders(group_logits), tries.moves)

    def advantage(self, tries: Tries, runtime_s: tf.Tensor, counts: tf.Tensor, unit_s: float) -> tf.Tensor:
        """[C] by how much each regrouping is faster than the incumbent, 0 if it is not, standardized.

        The mean time of regroupings would be best where they change nothing; what is asked of them is a better plan.

        Args:
          tries: what was executed.
          runtime_s: [C] step times; not read where they do not count.
          counts: [C] bool, it was executed and runs.
          unit_s: what gains are relative to.
        """
        regrouped = tf.logical_and(counts, tries.moves.count > 0)
        gain = (self._incumbent.runtime_s - tf.cast(runtime_s, tf.float64)) / unit_s
        known = tf.logical_and(regrouped, tf.math.is_finite(gain))
        gain = tf.where(known, tf.maximum(gain, 0.0), 0.0)
        return standardized_advantage(tf.cast(gain, tf.float32), tf.cast(known, tf.float32))

    @property
    def _of_units(self) -> Regrouping:
        """The regrouping, where there ever are changes."""
        assert self._regrouping is not None
        return self._regrouping

    def _borders(self, group_logits: tf.Tensor) -> tf.Tensor:
        """[R] logits of the incumbent's borders."""
        return self._of_units.logits(
            group_logits, self._incumbent.group_of_unit, self._incumbent.device_of_group
        )
