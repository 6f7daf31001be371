"""Placements from nothing: every node once, legal, as many alike as there is no temperature."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import OF_GROUPS, plans_of
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.go.learner import GoStudent
from tf_placer.agents.go.policy import NOWHERE, committed

PROBLEM = dataclasses.replace(
    branches_problem(3, 4),
    allowed=np.array([[True, True]] * 6 + [[False, True]] * 4 + [[True, False]] * 4),
)
SEED = tf.constant([5, 6])


@pytest.fixture(scope="module")
def student():
    return GoStudent(OF_GROUPS, seed=0)


@pytest.fixture(scope="module")
def inputs(student):
    return student.meets(PROBLEM, plans_of(PROBLEM.legalized(np.zeros((1, PROBLEM.num_units), int)))).inputs


@pytest.mark.parametrize("steps", [1, 3, pytest.param(100, marks=pytest.mark.slow)])
def test_all_are_legal_whatever_the_steps(student, inputs, steps):
    devices = committed(student.policy, inputs, 5, steps, tf.constant(1.0), SEED)
    for row in inputs.placements(devices).numpy():
        PROBLEM.check_legal(row)


def test_without_temperature_all_are_alike_and_with_it_they_are_not(student, inputs):
    cold = committed(student.policy, inputs, 3, 4, tf.constant(0.0), SEED).numpy()
    assert (cold == cold[0]).all()
    warm = committed(student.policy, inputs, 20, 4, tf.constant(1.0), SEED).numpy()
    assert len(np.unique(warm, axis=0)) > 1
    np.testing.assert_array_equal(warm, committed(student.policy, inputs, 20, 4, tf.constant(1.0), SEED))


def test_what_was_kept_is_seen_by_later_steps_and_stays(student, inputs, monkeypatch):
    seen = []
    logits = student.policy.logits

    def spied(inputs, device_of_node, encoded):
        seen.append(device_of_node.numpy())
        return logits(inputs, device_of_node, encoded)

    monkeypatch.setattr(student.policy, "logits", spied)
    last = committed(student.policy, inputs, 2, 3, tf.constant(1.0), SEED).numpy()
    free = inputs.legal.numpy().all(axis=1)
    assert (seen[0][:, free] == NOWHERE).all() and (seen[0][:, ~free] != NOWHERE).all()
    for before, after in zip(seen, [*seen[1:], last], strict=True):
        kept = before != NOWHERE
        assert (before[kept] == after[kept]).all() and kept.sum() < (after != NOWHERE).sum()
