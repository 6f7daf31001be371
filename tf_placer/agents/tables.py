"""Tables of logits as policies, without a network: REINFORCE or cross-entropy, and Post (Gao, Chen & Li 2018)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents import learner
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.grouper.group_search import CONVERGED, GroupedPlans, table_near, toward_elites
from tf_placer.grouper.groups import DEVICES, TASKS, Groups, JointPlans, expanded, ordered_groups, unit_groups
from tf_placer.problem.problem import Problem


class TabularInputs(NamedTuple):
    """Groups, and their legal devices or levels."""

    group_of_unit: tf.Tensor  # [U] int32; G' where there is nothing to decide
    only_device: tf.Tensor  # [U] int32, the device of such a unit
    legal: tf.Tensor  # [G', D] bool
    prior_logits: tf.Tensor  # [G', D] float32, log-probabilities of an untaught table


def tabular_inputs(groups: Groups, device_of_group: np.ndarray, start_probability: float) -> TabularInputs:
    """Describes groups, and how often an untaught table chooses the devices [G'] of a plan (0: uniform)."""
    legal = groups.legal
    chosen = device_of_group[:, np.newaxis] == np.arange(legal.shape[1])
    alternatives = legal & ~chosen
    share = alternatives / np.maximum(alternatives.sum(axis=1, keepdims=True), 1)
    probability = np.where(chosen, start_probability, (1 - start_probability) * share)
    if not start_probability:
        probability = legal / legal.sum(axis=1, keepdims=True)
    return TabularInputs(
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        legal=tf.constant(legal),
        prior_logits=tf.constant(np.log(np.maximum(probability, 1e-9)), tf.float32),
    )


class TabularPolicy(snt.Module):
    """p(devices) = prod_g p_g(device_g);  p_g = softmax(prior_g + logits_g), by a table [G', D] of one problem."""

    def __init__(self, groups: int, devices: int):
        super().__init__(name="tabular_policy")
        self.logits = tf.Variable(tf.zeros([groups, devices]), name="logits")

    def probability(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D]."""
        return tf.nn.softmax(masked.masked(inputs.prior_logits + self.logits, inputs.legal))

    def log_probabilities(self, inputs: TabularInputs) -> tf.Tensor:
        """[G', D]; ``masked.ILLEGAL`` for illegal devices."""
        probability = self.probability(inputs)
        return masked.masked(tf.math.log(tf.maximum(probability, 1e-30)), inputs.legal)

    def sample(self, inputs: TabularInputs, samples: int, seed: tf.Tensor) -> tf.Tensor:
        """[B, G'] int32 devices."""
        logits = self.log_probabilities(inputs)
        return masked.draw(tf.broadcast_to(logits, [samples, *logits.shape]), seed)

    def score(self, inputs: TabularInputs, device_of_group: tf.Tensor) -> tf.Tensor:
        """[B] log-probabilities of devices [B, G']."""
        logits = self.log_probabilities(inputs)
        repeated = tf.broadcast_to(logits, [*device_of_group.shape, logits.shape[1]])
        return tf.reduce_sum(masked.log_prob(repeated, device_of_group), axis=1)


@dataclasses.dataclass(frozen=True)
class TabularConfig(Settings):
    """A device for each group from one row of logits, without a network; with further tasks a level of each, too."""

    # Decisions to make, one of ``TASKS``; others stay as in the starting plan, without order or clusters.
    tasks: str = setting(DEVICES, words=TASKS)
    levels: int = setting(8, least=2)  # K, of priorities and fusion priorities
    # ``reinforce``, with advantages standardized by batch and Adam; or ``cross_entropy``, which
    # moves the probabilities to the frequencies among the best samples (Post: Gao et al. 2018,
    # without its proximal steps).
    loss: str = setting("reinforce", words=("reinforce", "cross_entropy"))
    num_groups: int = setting(160, least=1)  # most groups, min-cut parts split by slack
    samples: int = setting(64, least=2)  # placements drawn per update
    learning_rate: float = setting(0.05, least=0)  # Adam's, of ``reinforce``
    elites: float = setting(0.1, above=0, most=1)  # share of the samples that ``cross_entropy`` moves to
    smoothing: float = setting(0.2, least=0, most=1)  # how far it moves, 1 all the way
    # How often an untaught table chooses a group's device of the starting plan, or the neutral level.
    start_probability: float = setting(0.0, least=0, below=1)

    failing_reward: ClassVar[float] = -10.0


@method(
    "tabular",
    Kind.LEARNED,
    config=TabularConfig,
    ignores=("single units", "order"),
    uses_start=True,
    versions={"table": 1},
)
class TabularLearner(learner.PolicyLearner):
    """A table of logits over groups of units, without a network: REINFORCE (Williams 1992) or CEM."""

    def __init__(self, problem: Problem, config: TabularConfig, warm_start: learner.WarmStart, seed: int):
        is_joint = config.tasks != DEVICES
        groups = (ordered_groups if is_joint else unit_groups)(problem, config.num_groups)
        start = groups.best_of(warm_start.plans, warm_start.simulate)
        device_inputs = tabular_inputs(groups, start, config.start_probability)
        joint = JointPlans(groups, tuple(config.tasks.split(",")), config.levels)
        inputs = [device_inputs] if DEVICES in joint.tasks else []
        for legal, neutral in zip(joint.legal, joint.neutral, strict=True):
            leveled = dataclasses.replace(groups, legal=legal)
            inputs.append(tabular_inputs(leveled, neutral, config.start_probability))
        tables = [TabularPolicy(groups.count, table_inputs.legal.shape[1]) for table_inputs in inputs]
        policy: Any = tables[0]
        if is_joint:  # a table for devices, if they are decided, and one for each further task
            policy = snt.Module(name="tables")
            policy.tables = tables
        of_problem = {"inputs": device_inputs, "all_inputs": inputs, "joint": joint, "start": start}
        super().__init__("tabular_learner", policy, config, warm_start, [seed, 0x7AB], **of_problem)
        self._tables = tables
        self._trains((policy.trainable_variables, config.learning_rate))

    def propose(self) -> learner.Proposal:
        """Draws B plans; the same ones until ``learn`` is called."""
        proposal, joint = super().propose(), self._of_problem.joint
        if not joint.leveled:
            return proposal
        levels = proposal.actions[:, -len(joint.leveled) :]
        return learner.Proposal(
            proposal.actions, joint.decisions(proposal.placements.numpy(), levels.numpy())
        )

    def _draw(self, seed: tf.Tensor) -> learner.Proposal:
        count, joint, tables = self._config.samples, self._of_problem.joint, self._tables
        if not joint.leveled:
            actions = devices = self.policy.sample(self.inputs, count, seed)  # [B, G']
        else:
            seeds = tf.unstack(tf.random.split(seed, len(tables)))
            by_table = zip(tables, self._of_problem.all_inputs, seeds, strict=True)
            actions = tf.stack(
                [table.sample(inputs, count, seed) for table, inputs, seed in by_table], axis=1
            )
            start = tf.tile(self._of_problem.start[np.newaxis], [count, 1])
            devices = actions[:, 0] if DEVICES in joint.tasks else start
        placements = expanded(devices, self.inputs.group_of_unit, self.inputs.only_device)
        return learner.Proposal(actions, placements)

    def _by_table(self, actions: tf.Tensor) -> list[tuple[TabularPolicy, TabularInputs, tf.Tensor]]:
        """Each table with its inputs and actions [B, G']."""
        parts = tf.unstack(actions, axis=1) if self._of_problem.joint.leveled else [actions]
        return list(zip(self._tables, self._of_problem.all_inputs, parts, strict=True))

    def _update(self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        if self._config.loss == "reinforce":
            super()._update(actions, reward, runtime_s, valid)
            return
        # p <- (1 - a) p + a frequency among the elites, where there are any.
        config = self._config
        count = max(1, round(config.elites * config.samples))
        elite = learner.elites(reward, tf.cast(valid, tf.float32), count)
        weight = elite / tf.maximum(tf.reduce_sum(elite), 1.0)
        for table, inputs, part in self._by_table(actions):
            frequency = tf.einsum("b,bgd->gd", weight, tf.one_hot(part, inputs.legal.shape[1]))
            probability = table.probability(inputs)
            moved = probability + config.smoothing * tf.reduce_sum(weight) * (frequency - probability)
            logits = tf.math.log(tf.maximum(moved, 1e-9)) - inputs.prior_logits
            table.logits.assign(tf.where(inputs.legal, logits, 0.0))

    def _update_gradients(
        self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor
    ) -> Any:
        weight, parts = tf.ones_like(reward), self._by_table(actions)
        advantage = learner.standardized_advantage(reward, weight)
        return self._gradients_of(
            lambda: learner.reinforce_loss(
                tf.add_n([table.score(*part) for table, *part in parts]), advantage, weight
            )
        )


_LEAST = 1e-6  # least probability of a legal device in a new table; 0 could never grow
_UNCLIPPED = 1e6
_BASELINE_DECAY = 0.9
_EXPLORATION_UPDATES = 500  # batches over which exploration fades to 0
_LEGAL, _ACTIONS = tf.TensorSpec([None, None], tf.bool), tf.TensorSpec([None, None], tf.int32)
_ADVANTAGE, _LOGITS = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None, None], tf.float32)


class PostPolicy(snt.Module):
    """Independent distributions f(d | u), one for each of G groups, which may change (Gao et al. 2018, section 3)."""

    def __init__(self, devices: int):
        """Begins with no group at all, see ``become``."""
        super().__init__(name="post_policy")
        self.logits = tf.Variable(
            tf.zeros([0, devices]), shape=tf.TensorShape([None, devices]), trainable=True, name="logits"
        )  # [G, D]

    def become(self, probability: np.ndarray) -> None:
        """Takes a table [G, D] of probabilities; illegal devices may have any."""
        self.logits.assign(np.log(np.maximum(probability, _LEAST)).astype(np.float32))

    def probability(self, legal: tf.Tensor) -> tf.Tensor:
        """[G, D], 0 where not ``legal`` [G, D]."""
        return tf.nn.softmax(masked.masked(self.logits, legal))

    def sample(self, legal: tf.Tensor, count: int, seed: tf.Tensor) -> tf.Tensor:
        """[count, G] int32 legal devices."""
        logits = masked.masked(self.logits, legal)
        shape = tf.concat([[count], tf.shape(logits)], axis=0)
        return masked.largest(logits + masked.gumbel(shape, seed))

    def score(self, legal: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """[B, G] log-probability of each decision in ``actions`` [B, G]; a row's sum is the plan's."""
        return masked.scored(masked.masked(self.logits, legal), actions)


@dataclasses.dataclass(frozen=True)
class PostConfig(Settings):
    """Gao, Chen & Li 2018, "Post: Device Placement with Cross-Entropy Minimization and Proximal Policy Optimization".

    ``preset="paper"`` gives the paper's values, ``paper=`` below; we could not check them against its text. With
    all of them a search of 20,000 evaluations ended where it began (docs/results/agent_probes.md).

    The preset also decides: in the paper's, PPO's ratio is of a whole plan, where ours is of each group's decision; a
    penalty is adapted to a divergence of 0.03 from the policy that drew; and a tenth of the uniform distribution is
    mixed in after each cross-entropy step, which fades to 0. Our advantages are divided by a moving estimate of their
    spread.

    Not settings: groups are min-cut parts split by slack and by legality, where the paper has others; rewards are
    square roots of relative times; units are moved off full devices (``GroupedPlans``).
    """

    # K, plans of a batch, each followed by PPO steps: five elites of fifty soon agree.
    samples: int = setting(128, paper=10, least=2, most=2**20)
    parts: int = setting(64, least=1, most=2**20)  # of the min cut at the coarsest level, each split by slack
    # Of coarseness; each has twice the parts of the one before. A converged table is continued with
    # finer groups near the best plan; with one level the table stays.
    levels: int = setting(4, paper=1, least=1, most=16)
    # PPO steps on each batch; 0 leaves cross-entropy alone.
    epochs: int = setting(3, paper=10, least=0, most=2**20)
    learning_rate: float = setting(0.1, paper=1.0, least=0)  # of the plain gradient steps
    clip: float = setting(0.2, paper=0.0, least=0)  # of the ratios; 0 for none
    # Batches between cross-entropy steps, which look at all of them; 0 for none.
    cross_every: int = setting(1, paper=5, least=0, most=2**20)
    smoothing: float = setting(0.15, paper=1.0, least=0, most=1)  # how far the table moves to the elites
    preset: str = setting("ours", words=("ours", "paper"))  # values of the fields that are not given

    elites: ClassVar[float] = 0.1  # share of the samples that the table moves to, in every preset
    failing_reward: ClassVar[float] = -10.0
    kl_target: ClassVar[float] = 0.03  # of the paper's preset
    exploration: ClassVar[float] = 0.1  # of the paper's preset, at first


@method("post", Kind.LEARNED, config=PostConfig, ignores=("single units", "order"), versions={"table": 3})
class PostLearner(learner.PolicyLearner):
    """Post: a table of probabilities, cross-entropy minimization and PPO steps (Gao, Chen & Li 2018).

    After each batch of K samples, several gradient steps on

        mean_b min(r_b A_b, clip(r_b) A_b) - weight KL(old || new),   r = f(d | u) / f(d | old u)

    and after every few batches the table moves to the frequencies of their elites (cross-entropy minimization). It
    begins with uniform distributions, whatever the warm start.
    """

    def __init__(self, problem: Problem, config: PostConfig, warm_start: learner.WarmStart, seed: int):
        plans = GroupedPlans(problem, config.parts, config.levels, one_kind=True)
        table = PostPolicy(problem.num_devices)
        super().__init__("post_learner", table, config, warm_start, [seed, 0x905], plans=plans)
        self.level = tf.Variable(0, trainable=False, name="level")
        self._is_paper = config.preset == "paper"
        self.best = learner.Best(problem.everything_on(0))
        self.baseline = learner.MovingAverageBaseline(_BASELINE_DECAY, normalize=not self._is_paper)
        self.kl_weight = tf.Variable(1.0 if self._is_paper else 0.0, trainable=False, name="kl_weight")
        # Draws and times since the last cross-entropy step.
        batches = max(config.cross_every, 1)
        self.drawn = tf.Variable(
            tf.zeros([batches, config.samples, 0], tf.int32),
            shape=[batches, config.samples, None],
            trainable=False,
            name="drawn",
        )
        self.times = tf.Variable(np.zeros([batches, config.samples]), trainable=False, name="times")
        self.policy.become(table_near(self._legal, None))
        self._clear()

    def propose(self) -> learner.Proposal:
        """Draws K placements; the same ones until ``learn`` is called."""
        actions = self._drawn(tf.constant(self._legal))
        rows = self._of_problem.plans.rows(int(self.level), actions.numpy())
        return learner.Proposal(actions, tf.constant(rows))

    def learn(self, actions: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes PPO steps on this batch, and the cross-entropy step when due."""
        config, batches = self._config, self.times.shape[0]
        learner.PolicyLearner.learn.python_function(self, actions, tf.convert_to_tensor(runtime_s), valid)
        if config.cross_every and not int(self.updates) % batches:
            # The table moves to the elites of the last batches, and the uniform one is mixed in.
            times = self.times.numpy().reshape(-1)
            drawn, elites = self.drawn.numpy().reshape(len(times), -1), round(config.elites * len(times))
            probability = toward_elites(self._probability(), drawn, times, max(1, elites), config.smoothing)
            share = 0.0
            if self._is_paper:
                share = config.exploration * max(0.0, 1.0 - int(self.updates) / _EXPLORATION_UPDATES)
            self.policy.become((1 - share) * probability + share * table_near(self._legal, None))
            self._clear()
        if config.levels > 1 and self._probability().max(axis=1).mean() > CONVERGED:
            # Finer groups near the best plan; after the finest ones anew with the coarsest.
            plans = self._of_problem.plans
            self.level.assign((self.level + 1) % plans.count)
            level = int(self.level)
            best = plans.devices_of(level, self.best.fastest[0].numpy()) if level else None
            self.policy.become(table_near(self._legal, best))
            self._clear()

    def _update(self, actions: tf.Tensor, reward: tf.Tensor, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        times = learner.executed_times(runtime_s, valid).numpy()
        if times.min() < float(self.best.runtime_s[0]):
            rows = self._of_problem.plans.rows(int(self.level), actions.numpy())
            self.best.take([tf.constant(rows)], tf.constant(times))
        number = int(self.updates) % self.times.shape[0]
        self.drawn[number].assign(actions)
        self.times[number].assign(times)
        if self._config.epochs:
            advantage = self.baseline.advantage(reward, tf.ones_like(reward))
            legal, old = tf.constant(self._legal), tf.identity(self.policy.logits)
            for _ in range(self._config.epochs):
                divergence = self._proximal_step(legal, actions, advantage, old)
            if self._is_paper:
                self.kl_weight.assign(
                    learner.adapted_penalty(self.kl_weight, divergence, self._config.kl_target)
                )

    @property
    def _legal(self) -> np.ndarray:
        """[G, D] bool of the level."""
        return self._of_problem.plans.level(int(self.level)).legal

    def _probability(self) -> np.ndarray:
        """[G, D] float64."""
        return self.policy.probability(tf.constant(self._legal)).numpy().astype(np.float64)

    @tf.function(autograph=False, input_signature=[_LEGAL])
    def _drawn(self, legal: tf.Tensor) -> tf.Tensor:
        """[K, G] of this update."""
        return self.policy.sample(legal, self._config.samples, self._now())

    @tf.function(autograph=False, input_signature=[_LEGAL, _ACTIONS, _ADVANTAGE, _LOGITS])
    def _proximal_step(
        self, legal: tf.Tensor, actions: tf.Tensor, advantage: tf.Tensor, old: tf.Tensor
    ) -> tf.Tensor:
        """One gradient step; returns the new table's divergence from ``old`` [G, D]."""
        config = self._config
        table = self.policy.logits
        with tf.GradientTape() as tape:
            log_prob = self.policy.score(legal, actions)
            old_log_prob = masked.scored(masked.masked(old, legal), actions)
            gain = advantage[:, tf.newaxis]
            if self._is_paper:
                log_prob, old_log_prob = tf.reduce_sum(log_prob, axis=1), tf.reduce_sum(old_log_prob, axis=1)
                gain = advantage
            loss = learner.ppo_loss(
                log_prob, old_log_prob, gain, tf.ones_like(gain), config.clip or _UNCLIPPED
            )
            loss += self.kl_weight * self._divergence(legal, old)
        table.assign_sub(config.learning_rate * tape.gradient(loss, table))
        return self._divergence(legal, old)

    def _divergence(self, legal: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        """KL(old || new) of whole plans, a sum over groups."""
        return tf.reduce_sum(
            masked.divergence(masked.masked(old, legal), masked.masked(self.policy.logits, legal))
        )

    def _clear(self) -> None:
        """Forgets the batches of the last cross-entropy step."""
        batches, samples = self.times.shape
        self.drawn.assign(tf.zeros([batches, samples, len(self._legal)], tf.int32))
        self.times.assign(np.full([batches, samples], np.inf))
