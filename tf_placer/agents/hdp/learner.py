"""REINFORCE for the Hierarchical planner."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.agents.baselines import (
    MovingAverageBaseline,
    above_quantile,
    elites,
    standardized_advantage,
)
from tf_placer.agents.descent import adam, descend
from tf_placer.agents.entropy import EntropySteering
from tf_placer.agents.features import FEATURES_VERSION
from tf_placer.agents.hdp.changes import Changes, Executed
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.elite_rows import shift_to_elites
from tf_placer.agents.hdp.incumbent import Incumbent
from tf_placer.agents.hdp.inputs import HdpInputs, hdp_inputs, hdp_start
from tf_placer.agents.hdp.objective import Lesson, grouping_loss, placer_loss, regrouping_loss
from tf_placer.agents.hdp.policy import HdpPolicy, Noise, Scores
from tf_placer.agents.hdp.regrouping import Regrouping, exchanged
from tf_placer.agents.learner import Beginning, PolicyLearner, Proposal, executed_times
from tf_placer.agents.placement_bytes import (
    crossing_share,
    excess_share,
    placement_bytes,
)
from tf_placer.agents.rewards import penalized_reward
from tf_placer.errors import InputError
from tf_placer.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem


class HdpLearner(PolicyLearner):
    """Trains an ``HdpPolicy`` on one problem (Mirhoseini et al. 2018, section 3.2).

    gradient_groups  = 1/m sum_i grad log p(g_i) 1/k sum_j A_ij
    gradient_devices = 1/m sum_i 1/k sum_j grad log p(d_j | g_i) A_ij,   A = R - moving average of R

    Departures: each network's gradient is clipped by a norm of its own, because the Grouper's loss is a sum over
    thousands of units and one norm for both starved the Placer; noise is one draw for all samples of a
    grouping, and fades to 0 instead of stopping. With ``standardize`` A is standardized by batch (of one grouping
    alone the Grouper then learns nothing by REINFORCE).

    With ``incumbent`` as many samples as one grouping has change the best plan so far: they put groups on other
    devices, and after ``regroup_after`` updates most move units between its groups (``Regrouping``). The gradient of
    the log-probability of those moves, times what they gain, is then the Grouper's. What it leans to follows the
    groups of the best plan, and with ``cross_entropy`` the Placer imitates its devices.
    """

    def __init__(
        self,
        problem: Problem,
        config: HdpConfig,
        beginning: Beginning,
        seed: int,
        policy: HdpPolicy | None = None,
    ):
        """Builds and warm-starts the policy.

        Args:
          problem: what to place.
          config: settings.
          beginning: plans, of which the one that is best as groups is leaned to, and what rewards are relative to.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones.

        Raises:
          InputError: the policy has too few groups for the problem.
        """
        start = hdp_start(problem, config, beginning.plans, beginning.simulate)
        inputs = hdp_inputs(problem, config, start, seed)
        groups = start.groups.count
        if policy is None:
            # A problem of more kinds of units than groups has more groups.
            policy = HdpPolicy(config, seed, max(config.num_groups, groups))
            policy.imitate(inputs, start.group_of_unit)
        elif policy.num_groups < groups:
            raise InputError(
                f"policy has {policy.num_groups} groups and problem {problem.name!r} needs {groups}; give a policy "
                "with at least as many"
            )
        penalizes = config.excess_penalty > 0 or config.crossing_penalty > 0
        super().__init__(
            "hdp_learner",
            policy,
            config,
            beginning,
            [seed, 0x4D5],
            inputs=inputs,
            bytes=placement_bytes(problem) if penalizes else None,
            first_group=tf.constant(start.group_of_unit),
        )
        self.start = start
        placer = policy.placer
        trained = [
            (placer.network_variables, config.learning_rate),
            (policy.grouper.trainable_variables, config.grouper_learning_rate),
        ]
        self._rows_follow = config.loss == "cross_entropy" and config.row_rate > 0 and config.row_step > 0
        if config.row_rate and not self._rows_follow:
            trained.append((placer.row_variables, config.row_rate))
        self._steps = [(variables, adam(rate, variables)) for variables, rate in trained]
        self.incumbent = Incumbent(start.group_of_unit, start.device_of_group)
        regrouping = Regrouping(problem) if config.incumbent else None
        self._of_problem.changes = Changes(self.incumbent, regrouping, inputs.choices.legal, config)
        self.baseline = MovingAverageBaseline(config.baseline_decay, config.normalize_advantage)
        self.steering = EntropySteering(config.entropy_rate)

    @property
    def samples_per_update(self) -> int:
        """B = (m + 1) k where a part of the samples changes the incumbent, else m k."""
        return (self._config.groupings + self._config.incumbent) * self._config.placements

    def _draw(self, seed: tf.Tensor) -> Proposal:
        inputs = self._inputs()
        noise, seeds = self._noise(seed)
        drawn, scores = self.policy.sample(inputs, noise, seeds[0])
        changes = self._of_problem.changes
        actions = changes.execute(drawn, scores.network_logits, self.updates, seeds[1])
        return Proposal(actions, changes.placements(self.policy, inputs, actions))

    def _update(self, actions: Executed, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        noise, _ = self._noise(self._now())
        inputs, drawn = self._inputs(), actions.drawn
        lesson = self._lesson(self._less_penalties(reward, valid, actions), runtime_s, valid, actions)
        epochs: list[Scores] = []  # the first is of the policy that drew

        def loss() -> tf.Tensor:
            epochs.append(self.policy.score(inputs, drawn, noise))
            return self._loss(epochs[-1], lesson, tf.stop_gradient(epochs[0].decision_log_prob), actions)

        for _ in range(self._config.epochs):
            descend(loss, self._steps, self._config.gradient_clip)
        if self._rows_follow:
            shape = [self.samples_per_update, *inputs.choices.legal.shape]
            shift = shift_to_elites(
                tf.reshape(epochs[0].decision_logits, shape),
                tf.reshape(drawn.device_of_group, shape[:2]),
                lesson.elite,
                self._config.row_step,
            )
            self.policy.placer.shift_rows(shift, inputs.choices.number)
        times = executed_times(runtime_s, valid)
        best = tf.argmin(times, output_type=tf.int32)
        self.incumbent.take(self._of_problem.changes.decided(actions, best), times[best])

    @tf.function(autograph=False)
    def entropy(self) -> tf.Tensor:
        """Mean entropy of a group's device in nats, by the policy as it is."""
        noise, seeds = self._noise(self._now())
        _, scores = self.policy.sample(self._inputs(), noise, seeds[0])
        return tf.reduce_mean(scores.device_entropy)

    def _inputs(self) -> HdpInputs:
        """The problem, with a Grouper that leans to the groups of the incumbent where that is changed."""
        inputs, of_problem = self.inputs, self._of_problem
        if not of_problem.changes.any:
            return inputs
        leaning = exchanged(inputs.group_leaning, of_problem.first_group, self.incumbent.group_of_unit)
        return inputs.leaning_to(leaning)

    def _less_penalties(self, reward: tf.Tensor, valid: tf.Tensor, actions: Executed) -> tf.Tensor:
        """[B] rewards less what the configuration takes for bytes, if it takes anything."""
        config, of_bytes = self._config, self._of_problem.bytes
        if of_bytes is None:
            return reward
        placements = self._of_problem.changes.placements(self.policy, self.inputs, actions)
        return penalized_reward(
            reward,
            valid,
            excess_share(placements, of_bytes),
            crossing_share(placements, of_bytes),
            config.excess_penalty,
            config.crossing_penalty,
        )

    def _noise(self, seed: tf.Tensor) -> tuple[Noise, tf.Tensor]:
        """An update's exploration noise, and two seeds of its samples."""
        config = self._config
        seeds = tf.random.split(seed, 3)
        amplitude = config.noise_amplitude * self._fade(config.noise_updates)
        return self.policy.draw_noise(self.inputs, amplitude, seeds[0]), seeds[1:]

    def _lesson(self, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor, actions: Executed) -> Lesson:
        """What a batch says; an invalid sample teaches, networks and baseline, only in the first updates."""
        config, changes, samples = self._config, self._of_problem.changes, self.samples_per_update
        drawn = tf.cast(tf.range(samples) < changes.own, tf.float32)
        runs = drawn * tf.cast(valid, tf.float32)
        may_teach = tf.where(self.updates < config.valid_only_after, drawn, runs)
        best = max(1, min(round(config.elites * changes.own), changes.own - 1))
        elite, of_tries = elites(reward, runs, best), tf.zeros([0])
        if changes.any:
            own = changes.own
            of_tries = changes.advantage(actions.tries, runtime_s[own:], valid[own:], self._reference_s)
            # The first sample of its grouping stands for the incumbent.
            known = tf.cast(tf.math.is_finite(self.incumbent.runtime_s), tf.float32)
            elite += known * tf.one_hot(own, samples)
        return Lesson(
            advantage=standardized_advantage(reward, may_teach)
            if config.standardize
            else self.baseline.advantage(reward, may_teach),
            may_teach=may_teach,
            elite=elite,
            above=above_quantile(reward, runs, best) if changes.own > 1 else tf.zeros([samples]),
            of_tries=of_tries,
        )

    def _loss(self, scores: Scores, lesson: Lesson, old_log_prob: tf.Tensor, actions: Executed) -> tf.Tensor:
        """Both networks' losses."""
        config, changes = self._config, self._of_problem.changes
        loss = placer_loss(config, scores, lesson, old_log_prob)
        if changes.any and config.regroup_after:
            loss += regrouping_loss(changes.log_prob(scores.network_logits, actions.tries), lesson)
        else:
            loss += grouping_loss(scores, lesson)
        if config.entropy_start:
            loss -= self.steering.bonus(tf.reduce_mean(scores.device_entropy), self._entropy_target())
        return loss


SPEC = MethodSpec(
    name="hdp",
    kind=Kind.LEARNED,
    summary="Hierarchical planner: Grouper and Placer trained with REINFORCE (Mirhoseini et al. 2018).",
    build=HdpLearner,
    config=HdpConfig,
    ignores=("what does not fit in its groups",),
    uses_start=True,
    versions={"network": 4, "features": FEATURES_VERSION},
)
