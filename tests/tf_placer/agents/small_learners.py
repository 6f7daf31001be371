"""A problem, small settings of all agents, and times, that the tests of learners share."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.colocrl import ColocRlConfig
from tf_placer.agents.go.policy import GoConfig
from tf_placer.agents.hdp_policy import HdpConfig
from tf_placer.agents.learner import Proposal, WarmStart
from tf_placer.agents.mars import MarsConfig
from tf_placer.agents.placeto import PlacetoConfig
from tf_placer.agents.tables import PostConfig, TabularConfig
from tf_placer.problem.problem import Problem
from tf_placer.search import methods

PROBLEM = branches_problem(3, 4)
OTHER = branches_problem(5, 2, num_devices=3)

# By method; descriptors has what differs where a search is to find an optimum.
SMALL: dict[str, Any] = {
    "colocrl": ColocRlConfig(max_groups=8, largest_share=0.3, hidden=8, placements=6, start_probability=0.5),
    "go": GoConfig(
        num_groups=6, graph_width=4, width=4, head_width=2, inner_width=4, keep_probability=0.6,
        elite_share=0.0, rollouts=6, epochs=1,
    ),
    "hdp": HdpConfig(
        num_groups=6, placer_hidden=8, groups_per_step=4, landmarks=4, placements=8, regroup_after=2
    ),
    "mars": MarsConfig(
        num_groups=8, encoder_width=8, hidden=8, segment=4, groups_per_step=2, placements=7, minibatches=3,
        elites=2, start_probability=0.5, pretrain_iterations=2,
    ),
    "placeto": PlacetoConfig(parts=4, width=4, rounds=1, landmarks=2, episodes=5, keep_probability=0.5),
    "post": PostConfig(samples=64, parts=4, levels=2, epochs=2, learning_rate=0.5),
    "tabular": TabularConfig(num_groups=6, samples=32, learning_rate=0.2, start_probability=0.9),
}  # fmt: skip

Evaluate = Callable[[tf.Tensor], tuple[Any, Any]]
"""Step times of placements, and whether each is valid."""


def warm_start_on(device: int, problem: Problem = PROBLEM) -> WarmStart:
    """One plan, everything on one device; rewards are relative to a second."""
    plans = problem.everything_on(device)[np.newaxis]
    return WarmStart(plans, 1.0, lambda rows: (np.ones(len(rows)), np.ones(len(rows), bool)))


def small_learner(
    method: str, problem: Problem = PROBLEM, device: int = 0, seed: int = 3, **changes: Any
) -> Any:
    """A learner that begins with everything on one device; ``changes`` are of its settings."""
    config = dataclasses.replace(SMALL[method], **changes)
    return methods.find(method).build(problem, config, warm_start_on(device, problem), seed)


def weighted_devices(placements: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A time that tells placements apart, and valid where unit 0 is on device 0."""
    weight = tf.range(1, placements.shape[1] + 1, dtype=tf.float32)
    return 1.0 + tf.linalg.matvec(tf.cast(placements, tf.float32), weight), placements[:, 0] == 0


def off_device(number: int) -> Evaluate:
    """Times that are best, 1, where nothing is on a device, and 2 where everything is; all are valid."""

    def evaluate(placements: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        times = 1.0 + tf.reduce_mean(tf.cast(placements == number, tf.float32), axis=1)
        return times, tf.ones_like(times, tf.bool)

    return evaluate


def update(learner: Any, evaluate: Evaluate = weighted_devices) -> Proposal:
    """One update; what was proposed."""
    proposal = learner.propose()
    learner.learn(proposal.actions, *evaluate(proposal.placements))
    return proposal


def weights(module: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in module.trainable_variables]


def copy_weights(source: Any, target: Any) -> None:
    """Gives a module the trainable variables of another one, which may be of another problem."""
    for variable, value in zip(target.trainable_variables, weights(source), strict=True):
        variable.assign(value)


def moved(module: Any, before: list[np.ndarray]) -> bool:
    """True if a weight is another than before."""
    return any(not np.array_equal(now, then) for now, then in zip(weights(module), before, strict=True))
