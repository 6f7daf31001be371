"""REGAL: runs of a genetic algorithm, and what a policy learns from each."""

from __future__ import annotations

from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer import masked
from tf_placer.agents.baselines import MovingAverageBaseline
from tf_placer.agents.descent import adam, descend
from tf_placer.agents.features import FEATURES_VERSION
from tf_placer.agents.losses import reinforce_loss
from tf_placer.agents.regal.config import RegalConfig
from tf_placer.agents.regal.inputs import regal_inputs
from tf_placer.agents.regal.policy import Choices, RegalPolicy, draw_actions, draw_keys, score
from tf_placer.grouper.group_search import GroupedPlans, children, joined
from tf_placer.method_spec import Kind, MethodSpec
from tf_placer.problem.problem import Problem

_NO_ACTIONS = -1  # of a plan that the policy did not draw


class RegalLearner(snt.Module):
    """A policy sets the distributions of keys, a genetic algorithm draws from them (Paliwal et al. 2020, section 3).

        planner = RegalLearner(problem, RegalConfig(), None, seed)
        rows = planner.propose()
        planner.learn(rows, runtime_s)

    A key for each group and device; a group is on the legal device of its largest key. A run is so many generations:
    its mutants, and its first plans where it begins from nothing, are drawn as the policy says; elites have children as
    in ``planners.brkga``. When it ends the policy takes a step of REINFORCE. It is an ``Improving`` planner and no
    ``Learner``, because most plans are drawn by nobody's policy.
    """

    def __init__(
        self,
        problem: Problem,
        config: RegalConfig,
        start: np.ndarray | None,
        seed: int,
        policy: RegalPolicy | None = None,
    ) -> None:
        """Builds the policy.

        Args:
          problem: what to place.
          config: settings.
          start: not looked at.
          seed: fixes everything random.
          policy: goes on with these weights, of any problem, and changes them; None draws new ones.
        """
        super().__init__(name="regal_learner")
        del start
        self._config = config
        self._plans = GroupedPlans(problem, config.parts, 1, one_kind=True)
        self._legal = self._plans.level(0).legal  # [G, D]
        self._inputs = regal_inputs(problem, self._plans.level(0))
        self._generator = np.random.default_rng([seed, 0x4E6A])
        self.policy = RegalPolicy(config.hidden, config.rounds, seed) if policy is None else policy
        self.optimizer = adam(config.learning_rate, self.policy.trainable_variables)
        self.baseline = MovingAverageBaseline(config.baseline_decay, normalize=True)
        self._runs = 0  # that have ended
        self._reference_s = np.inf  # the best of runs without the policy
        self._keys, self._times = np.zeros((0, *self._legal.shape)), np.zeros(0)  # the fastest first
        self._begin()

    def _begin(self) -> None:
        """A run: of the elites, or from nothing."""
        self._generation = 0
        self._choices: Choices | None = None  # the policy's, the same all through a run
        if not self._config.keep_elites:
            self._keys, self._times = self._keys[:0], self._times[:0]
        self._offered, self._offered_actions = self._keys, self._no_actions(0)
        # What the policy drew in this run, and how it fared.
        self._actions, self._drawn_s = self._no_actions(0), np.zeros(0)

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements: the first generation of a run, or all of the next one but the elites."""
        config = self._config
        if len(self._keys) > 1:
            elites = min(config.num_elites, len(self._keys) - 1)
            mutants = round(config.mutants * config.population)
            count = config.population - config.num_elites - mutants
            born = children(self._keys, elites, count, config.bias, config.mutation, self._generator)
            drawn, actions = self._draw(mutants)
            self._offered = np.concatenate([drawn, born])
            self._offered_actions = np.concatenate([actions, self._no_actions(count)])
        else:
            self._offered, self._offered_actions = self._draw(config.population)
        return self._plans.rows(0, self._devices(self._offered))

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Joins what was proposed to the elites, and teaches the policy when the run ends."""
        del device_of_unit
        runtime_s = np.array(runtime_s, np.float64)
        by_policy = self._offered_actions[:, 0, 0, 0] != _NO_ACTIONS
        self._actions = np.concatenate([self._actions, self._offered_actions[by_policy]])
        self._drawn_s = np.concatenate([self._drawn_s, runtime_s[by_policy]])
        elites = self._config.num_elites
        self._keys, self._times = joined(
            self._keys[:elites], self._times[:elites], self._offered, runtime_s, self._config.population
        )
        self._generation += 1
        if self._generation >= self._config.generations:
            self._end()

    def _end(self) -> None:
        """What the run was worth."""
        self._runs += 1
        if self._runs <= self._config.plain_runs:
            self._reference_s = min(self._reference_s, float(self._times[0]))
        elif len(self._actions):
            self._teach()
        self._begin()

    @property
    def _uses_policy(self) -> bool:
        return self._runs >= self._config.plain_runs

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys [count, G, D] and the actions that they are of; uniform keys at first."""
        shape = (count, *self._legal.shape)
        if not self._uses_policy:
            return self._generator.random(shape), self._no_actions(count)
        if self._choices is None:
            self._choices = self.policy(self._inputs)
        if self._config.actions_apart:
            actions = draw_actions(self._choices, count, self._generator)
        elif len(self._actions):
            actions = np.repeat(self._actions[:1], count, axis=0)  # the run's own
        else:
            actions = np.repeat(draw_actions(self._choices, 1, self._generator), count, axis=0)
        return draw_keys(actions, self._generator), actions

    def _no_actions(self, count: int) -> np.ndarray:
        return np.full((count, *self._legal.shape, 2), _NO_ACTIONS, np.int32)

    def _devices(self, keys: np.ndarray) -> np.ndarray:
        """[B, G] the legal device of each group's largest key."""
        return np.where(self._legal, keys, -1.0).argmax(axis=2)

    def _teach(self) -> None:
        """A step of REINFORCE."""
        config = self._config
        if config.actions_apart:
            actions, advantage = self._actions, _standardized(self._rewards(self._drawn_s))
        else:
            # One action, and one reward: how much less the run's best takes than that of a plain run.
            actions = self._actions[:1]
            reward = tf.constant(self._rewards(self._times[:1]), tf.float32)
            advantage = self.baseline.advantage(reward, tf.ones(1)).numpy()

        def loss() -> tf.Tensor:
            choices = self.policy(self._inputs)
            log_prob = score(choices, tf.constant(actions)) / self._legal.size
            taught = reinforce_loss(log_prob, tf.constant(advantage, tf.float32), tf.ones(len(actions)))
            return taught - config.entropy_weight * sum(
                tf.reduce_mean(masked.entropy(one)) for one in choices
            )

        descend(loss, [(self.policy.trainable_variables, self.optimizer)], config.gradient_clip)

    def _rewards(self, runtime_s: np.ndarray) -> np.ndarray:
        """[S] 1 - t / t_plain; of what does not run that of a time twice as long as the slowest that does."""
        reference_s = self._reference_s if np.isfinite(self._reference_s) else 1.0
        runs = runtime_s[np.isfinite(runtime_s)]
        failing_s = 2 * max(runs.max(initial=0.0), reference_s)
        return 1 - np.where(np.isfinite(runtime_s), runtime_s, failing_s) / reference_s

    def state(self) -> dict[str, Any]:
        """The run, the weights and the optimizer's moments, and where the generator is."""
        return {
            "runs": self._runs,
            "generation": self._generation,
            "reference_s": self._reference_s,
            "keys": self._keys,
            "times": self._times,
            "actions": self._actions,
            "drawn_s": self._drawn_s,
            "generator": self._generator.bit_generator.state,
            **{f"variable.{i}": np.asarray(variable.numpy()) for i, variable in enumerate(self._kept())},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        self._runs, self._generation = int(state["runs"]), int(state["generation"])
        self._reference_s = float(state["reference_s"])
        self._keys, self._times = np.array(state["keys"], np.float64), np.array(state["times"], np.float64)
        self._actions = np.array(state["actions"], np.int32)
        self._drawn_s = np.array(state["drawn_s"], np.float64)
        self._generator.bit_generator.state = state["generator"]
        for i, variable in enumerate(self._kept()):
            variable.assign(state[f"variable.{i}"])
        self._choices = None

    def _kept(self) -> tuple[tf.Variable, ...]:
        return (*self.policy.variables, *self.optimizer.variables, *self.baseline.variables)


def _standardized(rewards: np.ndarray) -> np.ndarray:
    """With mean 0 and deviation 1; 0 where all are alike."""
    return (rewards - rewards.mean()) / (rewards.std() + 1e-9)


SPEC = MethodSpec(
    name="regal",
    kind=Kind.IMPROVING,
    summary="REGAL: a genetic algorithm whose keys are drawn as a graph network says (Paliwal et al. 2020).",
    build=RegalLearner,
    config=RegalConfig,
    ignores=("single units", "order"),
    versions={"network": 1, "features": FEATURES_VERSION},
)
