"""A problem, times and checks that the tests of all learners share."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.learner import Proposal, WarmStart
from tf_placer.problem.problem import Problem

PROBLEM = branches_problem(3, 4)
OTHER = branches_problem(5, 2, num_devices=3)

Evaluate = Callable[[tf.Tensor], tuple[Any, Any]]
"""Step times of placements, and whether each is valid."""


def warm_start_on(device: int, problem: Problem = PROBLEM) -> WarmStart:
    """One plan, everything on one device; rewards are relative to a second."""
    plans = problem.everything_on(device)[np.newaxis]
    return WarmStart(plans, 1.0, lambda rows: (np.ones(len(rows)), np.ones(len(rows), bool)))


def weighted_devices(placements: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A time that tells placements apart, and valid where unit 0 is on device 0."""
    weight = tf.range(1, placements.shape[1] + 1, dtype=tf.float32)
    return 1.0 + tf.linalg.matvec(tf.cast(placements, tf.float32), weight), placements[:, 0] == 0


def off_device_1(placements: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Best where nothing is on device 1; all are valid."""
    times = 1.0 + tf.reduce_mean(tf.cast(placements == 1, tf.float32), axis=1)
    return times, tf.ones_like(times, tf.bool)


def update(learner: Any, evaluate: Evaluate = weighted_devices) -> Proposal:
    """One update; what was proposed."""
    proposal = learner.propose()
    learner.learn(proposal.actions, *evaluate(proposal.placements))
    return proposal


def check_a_proposal_stays(learner: Any, samples: int, evaluate: Evaluate = weighted_devices) -> None:
    """A proposal is the same until it is learned from, and learning changes weights, count and proposal."""
    first, again = learner.propose(), learner.propose()
    assert first.placements.shape == (samples, PROBLEM.num_units)
    for ours, theirs in zip(tf.nest.flatten(again), tf.nest.flatten(first), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before, updates = [v.numpy() for v in learner.policy.trainable_variables], int(learner.updates)
    update(learner, evaluate)
    after = [v.numpy() for v in learner.policy.trainable_variables]
    assert any((a != b).any() for a, b in zip(after, before, strict=True))
    assert int(learner.updates) == updates + 1
    assert (learner.propose().placements != first.placements).numpy().any()


def check_it_is_its_variables(
    make: Callable[[], Any], folder: pathlib.Path, evaluate: Evaluate = weighted_devices
) -> Any:
    """Another learner does what the first one goes on to do, once it has its variables; returns the first."""
    first, second = make(), make()
    for _ in range(3):
        update(first, evaluate)
    tf.train.Checkpoint(learner=first).write(str(folder / "learner"))
    expected = [update(first, evaluate) for _ in range(3)]
    for variable in second.variables:
        variable.assign(tf.zeros_like(variable))
    tf.train.Checkpoint(learner=second).read(str(folder / "learner")).assert_consumed()
    for proposal in expected:
        np.testing.assert_array_equal(update(second, evaluate).placements, proposal.placements)
    for ours, theirs in zip(second.variables, first.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.name)
    return first
