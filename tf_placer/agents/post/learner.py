"""Post: PPO steps on every batch, and cross-entropy steps on the best of several."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.baselines import MovingAverageBaseline
from tf_placer.agents.kl_penalty import KlPenalty
from tf_placer.agents.learner import Beginning, PolicyLearner, Proposal, executed_times
from tf_placer.agents.losses import ppo_loss
from tf_placer.agents.post.config import PostConfig
from tf_placer.agents.post.policy import PostPolicy
from tf_placer.grouper.group_search import CONVERGED, GroupedPlans, table_near, toward_elites
from tf_placer.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem

_UNCLIPPED = 1e6


class PostLearner(PolicyLearner):
    """Trains a ``PostPolicy`` on one problem (Gao, Chen & Li 2018, algorithm 1).

    After each batch of K samples, several gradient steps on

        mean_b min(r_b A_b, clip(r_b) A_b) - weight KL(old || new),   r = f(d | u) / f(d | old u)

    and after every few batches the table moves to the frequencies of their elites, which solves the cross-entropy
    minimization, and is mixed with the uniform one.
    """

    def __init__(
        self,
        problem: Problem,
        config: PostConfig,
        beginning: Beginning,
        seed: int,
        policy: PostPolicy | None = None,
    ):
        """Begins with uniform distributions.

        Args:
          problem: what to place.
          config: settings.
          beginning: what rewards are relative to; the plans are not looked at.
          seed: fixes everything random.
          policy: goes on with this table, of the same groups, and changes it.
        """
        plans = GroupedPlans(problem, config.parts, config.levels, one_kind=True)
        table = PostPolicy(problem.num_devices) if policy is None else policy
        super().__init__("post_learner", table, config, beginning, [seed, 0x905], plans=plans)
        self.level = tf.Variable(0, trainable=False, name="level")
        self.best = tf.Variable(problem.everything_on(0), trainable=False, name="best")  # [U]
        self.best_s = tf.Variable(np.inf, trainable=False, name="best_s", dtype=tf.float64)
        self.baseline = MovingAverageBaseline(config.baseline_decay, config.normalize_advantage)
        self.kl_penalty = KlPenalty(config.kl_weight, config.kl_target)
        # Draws and times since the last cross-entropy step.
        batches = max(config.cross_every, 1)
        self.drawn = tf.Variable(
            tf.zeros([batches, config.samples, 0], tf.int32),
            shape=[batches, config.samples, None],
            trainable=False,
            name="drawn",
        )
        self.times = tf.Variable(
            tf.fill([batches, config.samples], tf.constant(np.inf, tf.float64)), trainable=False, name="times"
        )
        if policy is None:
            self.policy.become(table_near(self._legal, None))
        self._clear()

    def propose(self) -> Proposal:
        """Draws K placements; the same ones until ``learn`` is called."""
        actions = self._drawn(tf.constant(self._legal))
        rows = self._of_problem.plans.rows(int(self.level), actions.numpy())
        return Proposal(actions, tf.constant(rows))

    def learn(self, actions: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes PPO steps on this batch, and the cross-entropy step when it is due; see ``Learner``."""
        config, batches = self._config, self.times.shape[0]
        self._learn(actions, tf.convert_to_tensor(runtime_s), valid)
        if config.cross_every and not int(self.updates) % batches:
            self._cross_entropy_step()
            self._clear()
        if config.levels > 1 and self._probability().max(axis=1).mean() > CONVERGED:
            self._go_on()

    def _update(self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        times = executed_times(runtime_s, valid).numpy()
        self._keep_best(actions, times)
        number = int(self.updates) % self.times.shape[0]
        self.drawn[number].assign(actions)
        self.times[number].assign(times)
        if self._config.epochs:
            self._proximal_steps(tf.constant(self._legal), actions, reward)

    @property
    def _legal(self) -> np.ndarray:
        """[G, D] bool of the level."""
        return self._of_problem.plans.level(int(self.level)).legal

    def _probability(self) -> np.ndarray:
        """[G, D] float64."""
        return self.policy.probability(tf.constant(self._legal)).numpy().astype(np.float64)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.bool)])
    def _drawn(self, legal: tf.Tensor) -> tf.Tensor:
        """[K, G] of this update."""
        return self.policy.sample(legal, self._config.samples, self._now())

    def _proximal_steps(self, legal: tf.Tensor, actions: tf.Tensor, reward: tf.Tensor) -> None:
        """Some gradient steps from the policy that drew."""
        advantage = self.baseline.advantage(reward, tf.ones_like(reward))
        old = tf.identity(self.policy.logits)
        for _ in range(self._config.epochs):
            divergence = self._proximal_step(legal, actions, advantage, old)
        self.kl_penalty.adapt(divergence)

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None], tf.bool),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None, None], tf.float32),
        ],
    )
    def _proximal_step(
        self, legal: tf.Tensor, actions: tf.Tensor, advantage: tf.Tensor, old: tf.Tensor
    ) -> tf.Tensor:
        """One gradient step; how far the table is from ``old`` [G, D] after it."""
        config = self._config
        table = self.policy.logits
        with tf.GradientTape() as tape:
            log_prob = self.policy.score(legal, actions)
            old_log_prob = masked.scored(masked.masked(old, legal), actions)
            gain = advantage[:, tf.newaxis]
            if not config.decisions_apart:
                log_prob, old_log_prob = tf.reduce_sum(log_prob, axis=1), tf.reduce_sum(old_log_prob, axis=1)
                gain = advantage
            loss = ppo_loss(log_prob, old_log_prob, gain, tf.ones_like(gain), config.clip or _UNCLIPPED)
            loss += self.kl_penalty.penalty(self._divergence(legal, old))
            loss -= config.entropy_weight * tf.reduce_mean(masked.entropy(masked.masked(table, legal)))
        table.assign_sub(config.learning_rate * tape.gradient(loss, table))
        return self._divergence(legal, old)

    def _divergence(self, legal: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        """KL(old || new) of whole plans, a sum over groups."""
        return tf.reduce_sum(
            masked.divergence(masked.masked(old, legal), masked.masked(self.policy.logits, legal))
        )

    def _cross_entropy_step(self) -> None:
        """Moves the table to the elites of the last batches, and mixes the uniform one in."""
        config = self._config
        drawn = self.drawn.numpy()
        times = self.times.numpy().reshape(-1)
        probability = toward_elites(
            self._probability(),
            drawn.reshape(len(times), -1),
            times,
            max(1, round(config.elites * len(times))),
            config.smoothing,
        )
        left = max(0.0, 1.0 - int(self.updates) / max(config.exploration_updates, 1))
        share = config.exploration * left
        self.policy.become((1 - share) * probability + share * table_near(self._legal, None))

    def _keep_best(self, actions: tf.Tensor, times: np.ndarray) -> None:
        """Remembers the fastest plan of all."""
        fastest = int(np.argmin(times))
        if times[fastest] < float(self.best_s):
            rows = self._of_problem.plans.rows(int(self.level), actions.numpy())
            self.best.assign(rows[fastest])
            self.best_s.assign(times[fastest])

    def _go_on(self) -> None:
        """With finer groups near the best plan, after the finest ones anew with the coarsest."""
        self.level.assign((self.level + 1) % self._of_problem.plans.count)
        level = int(self.level)
        best = self._of_problem.plans.devices_of(level, self.best.numpy()) if level else None
        self.policy.become(table_near(self._legal, best))
        self._clear()

    def _clear(self) -> None:
        """Forgets the batches that the last cross-entropy step has seen."""
        batches, samples = self.times.shape
        self.drawn.assign(tf.zeros([batches, samples, len(self._legal)], tf.int32))
        self.times.assign(tf.fill([batches, samples], tf.constant(np.inf, tf.float64)))


SPEC = MethodSpec(
    name="post",
    kind=Kind.LEARNED,
    summary="Post: a table of probabilities, cross-entropy minimization and PPO steps (Gao, Chen & Li 2018).",
    build=PostLearner,
    config=PostConfig,
    ignores=("single units", "order"),
    versions={"table": 1},
)
