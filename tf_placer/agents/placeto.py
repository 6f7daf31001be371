"""Placeto (Addanki et al. 2019): whole episodes are drawn, evaluated together, and taught by REINFORCE."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import FEATURES_VERSION
from tf_placer.agents.learner import (
    Best,
    PolicyLearner,
    Proposal,
    WarmStart,
    apply_gradients,
    summed_gradients,
)
from tf_placer.agents.losses import TurnBaseline, discounted_returns
from tf_placer.agents.placeto_policy import (
    Actions,
    PlacetoConfig,
    PlacetoPolicy,
    episode_states,
    group_graph,
    placeto_inputs,
)
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem


class Proposed(NamedTuple):
    """Episodes that ``propose`` drew, and their rows."""

    episodes: Actions
    # [B, S] int32, number of the proposed placement for each evaluated state of an episode
    row: np.ndarray


class PlacetoLearner(PolicyLearner):
    """Trains a ``PlacetoPolicy`` on one problem (Addanki et al. 2019, section 3.3).

    gradient = 1/(B T) sum_b sum_t grad log p(a_bt | s_bt) A_bt,   A_bt = return from t on - its mean in episodes before

    No step of an episode depends on a time, so all steps are drawn first, and all placements of B
    episodes, including intermediate ones, are evaluated as one batch, each distinct placement once.
    """

    def __init__(
        self,
        problem: Problem,
        config: PlacetoConfig,
        warm_start: WarmStart,
        seed: int,
        policy: PlacetoPolicy | None = None,
    ):
        graph = group_graph(problem, config.parts)
        plan = graph.groups.best_of(warm_start.plans, warm_start.simulate)
        inputs = placeto_inputs(problem, config, graph, seed)
        policy = PlacetoPolicy(config, seed) if policy is None else policy
        super().__init__("placeto_learner", policy, config, warm_start, [seed, 0x91ACE], inputs=inputs)
        self._rate = tf.Variable(config.learning_rate, trainable=False, name="rate")
        self._trains((policy.trainable_variables, self._rate), clip=config.gradient_clip)
        self.best = Best(plan)
        self.begin = self.best.decisions[0]  # [G] devices where episodes begin
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
        """This update's episodes, and their evaluated states [B, S, G]."""
        config = self._config
        begin = tf.tile(self.begin[tf.newaxis], [config.episodes, 1])
        episodes, _ = self.policy.sample(self.inputs, begin, tf.random.split(self._now(), 2)[1])
        states = episode_states(self.inputs, episodes)
        return episodes, states if config.reward == "drop" else states[:, -1:]

    @tf.function(autograph=False)
    def _step(self, episodes: Actions, value: tf.Tensor) -> None:
        """One step; ``value`` [B, S] is the reward of each evaluated state."""
        config = self._config
        if config.begin == "best":
            states = episode_states(self.inputs, episodes)[:, -value.shape[1] :]
            best = tf.argmax(tf.reshape(value, [-1]))
            state = tf.gather(tf.reshape(states, [-1, states.shape[2]]), best)
            # Rewards fall as times rise, failing placements included: their negative ranks like a
            # time.
            self.best.take([state], -tf.reduce_max(value))
        gradients = self._gradients(episodes, self._advantage(value), self.policy.trainable_variables)
        self._rate.assign(self._between(config.learning_rate, config.learning_rate_end))
        apply_gradients([gradients], self._optimizers, self._clip)

    def _advantage(self, value: tf.Tensor) -> tf.Tensor:
        """[B, T] of the values of the evaluated states [B, S]."""
        config = self._config
        if config.reward == "drop":
            rewards = value[:, 1:] - value[:, :-1]  # drops of the time (Addanki et al. 2019)
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
        weight = self._between(self._config.entropy, self._config.entropy_end)
        by_turn = tf.transpose(tf.stop_gradient(advantage))

        def loss(first: tf.Tensor) -> tf.Tensor:
            scores = self.policy.score(self.inputs, episodes, first, count)
            taught = tf.transpose(by_turn[first : first + count]) * scores.log_prob
            return -tf.reduce_sum(taught + weight * scores.entropy) / tf.cast(tf.size(advantage), tf.float32)

        return summed_gradients(loss, variables, int(self.inputs.visited.shape[0]), count)

    def _between(self, start: float, end: float) -> tf.Tensor:
        """Interpolation from one number to the other over ``decay_updates``."""
        share = tf.minimum(tf.cast(self.updates, tf.float32) / max(self._config.decay_updates, 1), 1.0)
        return start + (end - start) * share


SPEC = MethodSpec(
    name="placeto",
    kind=Kind.LEARNED,
    summary="Placeto: a device for one group after the other, by message passing (Addanki et al. 2019).",
    build=PlacetoLearner,
    config=PlacetoConfig,
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions={"network": 2, "features": FEATURES_VERSION},
)
