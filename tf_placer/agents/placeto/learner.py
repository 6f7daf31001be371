"""REINFORCE for Placeto: whole episodes are drawn, then evaluated together, then learned from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import FEATURES_VERSION
from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart, adam, summed_gradients
from tf_placer.agents.losses import TurnBaseline, discounted_returns, gains
from tf_placer.agents.placeto.inputs import PlacetoConfig, group_graph, placeto_inputs
from tf_placer.agents.placeto.policy import Actions, PlacetoPolicy, episode_states
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem


class Proposed(NamedTuple):
    """Episodes that ``propose`` drew, and their rows.

    Attributes:
      episodes: what was decided.
      row: [B, S] int32, the proposed placement that each evaluated state of an episode is.
    """

    episodes: Actions
    row: np.ndarray


class PlacetoLearner(PolicyLearner):
    """Trains a ``PlacetoPolicy`` on one problem (Addanki et al. 2019, section 3.3).

    gradient = 1/(B T) sum_b sum_t grad log p(a_bt | s_bt) A_bt,   A_bt = return from t on - its mean in episodes before

    No step of an episode looks at the time of one before, so all steps are drawn first, and all placements of B
    episodes, the ones between included, are evaluated as one batch, each different one once.
    """

    def __init__(
        self,
        problem: Problem,
        config: PlacetoConfig,
        warm_start: WarmStart,
        seed: int,
        policy: PlacetoPolicy | None = None,
    ):
        """Builds the policy and finds where episodes begin.

        Args:
          problem: what to place.
          config: settings.
          warm_start: plans, of which the one that is best as groups is begun with, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones.
        """
        graph = group_graph(problem, config.parts)
        plan = graph.groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = placeto_inputs(problem, config, graph, seed)
        policy = PlacetoPolicy(config, seed) if policy is None else policy
        super().__init__("placeto_learner", policy, config, warm_start, [seed, 0x91ACE], inputs=inputs)
        self._rate = tf.Variable(config.learning_rate, trainable=False, name="rate")
        self._optimizer = adam(self._rate, policy.trainable_variables)
        self.begin = tf.Variable(plan, trainable=False, name="begin")  # [G]
        self.begin_reward = tf.Variable(-np.inf, trainable=False, dtype=tf.float32, name="begin_reward")
        self.baseline = TurnBaseline(config.baseline_episodes, len(graph.visited))

    def propose(self) -> Proposal:
        """Draws B episodes; the same ones until ``learn`` is called."""
        episodes, states = self._episodes()
        groups = states.shape[2]
        rows, row = np.unique(states.numpy().reshape(-1, groups), axis=0, return_inverse=True)
        placements = tf.gather(tf.constant(rows), self.inputs.group_of_unit, axis=1)
        return Proposal(Proposed(episodes, row.reshape(states.shape[:2]).astype(np.int32)), placements)

    def learn(self, actions: Proposed, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes one optimizer step, traced but for the values of states; see ``Learner``."""
        self._learn(actions, runtime_s, valid)

    def _update(self, actions: Proposed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        self._step(actions.episodes, tf.gather(reward, actions.row))

    @tf.function(autograph=False)
    def _episodes(self) -> tuple[Actions, tf.Tensor]:
        """This update's episodes, and the states of them that are evaluated [B, S, G]."""
        config, inputs = self._config, self.inputs
        seeds = tf.random.split(self._now(), 2)
        begin = tf.tile(self.begin[tf.newaxis], [config.episodes, 1])
        if config.begin == "anywhere":
            legal = inputs.choices.legal
            begin = masked.draw(masked.masked(tf.zeros([config.episodes, *legal.shape]), legal), seeds[0])
        episodes, _ = self.policy.sample(inputs, begin, seeds[1])
        states = episode_states(inputs, episodes)
        return episodes, states if config.reward == "drop" else states[:, -1:]

    @tf.function(autograph=False)
    def _step(self, episodes: Actions, value: tf.Tensor) -> None:
        """One step; ``value`` [B, S] is the reward of each evaluated state."""
        config = self._config
        self._remember(episodes, value)
        variables = self.policy.trainable_variables
        gradients = self._gradients(episodes, self._advantage(value), variables)
        clipped, _ = tf.clip_by_global_norm(gradients, config.gradient_clip)
        self._rate.assign(
            self._between(config.learning_rate, config.learning_rate_end, config.learning_rate_updates)
        )
        self._optimizer.apply(clipped, variables)

    def _remember(self, episodes: Actions, value: tf.Tensor) -> None:
        """Keeps the best state of all, where episodes begin there."""
        if self._config.begin != "best":
            return
        states = episode_states(self.inputs, episodes)[:, -value.shape[1] :]
        best = tf.argmax(tf.reshape(value, [-1]))
        reward = tf.reduce_max(value)
        better = reward > self.begin_reward
        found = tf.gather(tf.reshape(states, [-1, states.shape[2]]), best)
        self.begin.assign(tf.where(better, found, self.begin))
        self.begin_reward.assign(tf.maximum(reward, self.begin_reward))

    def _advantage(self, value: tf.Tensor) -> tf.Tensor:
        """[B, T] of the values of the evaluated states [B, S]."""
        config = self._config
        if config.reward == "drop":
            rewards = gains(value)
        else:
            rewards = tf.pad(value, [[0, 0], [self.baseline.returns.shape[1] - 1, 0]])
        advantage = self.baseline.advantage(discounted_returns(rewards, config.discount))
        if config.normalize_advantage:
            advantage /= tf.math.reduce_std(advantage) + 1e-6
        return advantage

    def _gradients(
        self, episodes: Actions, advantage: tf.Tensor, variables: tuple[tf.Variable, ...]
    ) -> list[tf.Tensor]:
        """Gradients of the loss; turn after turn where messages pass at every step."""
        count = self.policy.steps_at_once(self.inputs)
        weight = self._between(self._config.entropy, self._config.entropy_end, self._config.entropy_updates)
        by_turn = tf.transpose(tf.stop_gradient(advantage))

        def loss(first: tf.Tensor) -> tf.Tensor:
            scores = self.policy.score(self.inputs, episodes, first, count)
            taught = tf.transpose(by_turn[first : first + count]) * scores.log_prob
            return -tf.reduce_sum(taught + weight * scores.entropy) / tf.cast(tf.size(advantage), tf.float32)

        return summed_gradients(loss, variables, int(self.inputs.visited.shape[0]), count)

    def _between(self, start: float, end: float, updates: int) -> tf.Tensor:
        """Interpolation from one number to the other over that many updates."""
        share = tf.minimum(tf.cast(self.updates, tf.float32) / max(updates, 1), 1.0)
        return start + (end - start) * share


SPEC = MethodSpec(
    name="placeto",
    kind=Kind.LEARNED,
    summary="Placeto: a device for one group after the other, by message passing (Addanki et al. 2019).",
    build=PlacetoLearner,
    config=PlacetoConfig,
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions={"network": 1, "features": FEATURES_VERSION},
)
