"""Mars' encoder as a student: it needs no plans, learns, and its weights begin a search."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import warm_start_on
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.mars import MarsConfig, MarsLearner, MarsStudent
from tf_placer.agents.weights import weights_bytes
from tf_placer.base.arguments import InputError
from tf_placer.training.teach import lesson_of

# The encoder has its own width: of one 8 wide, the ReLUs of three layers may die in the first steps.
CONFIG = MarsConfig(num_groups=4, hidden=4, placements=4, minibatches=1, pretrain_iterations=3)
PROBLEM = branches_problem(3, 10)


@pytest.fixture(scope="module")
def student():
    student = MarsStudent(CONFIG, seed=0)
    lesson, plans = lesson_of(student, PROBLEM, 1, 10, folder=None)  # nothing is searched, so nothing is kept
    assert plans is None
    before = float(student.loss_of(lesson))
    losses = [float(student.learn(lesson, tf.constant(1.0))) for _ in range(60)]
    assert losses[0] == pytest.approx(before, abs=0.1)  # the same graph, mixed up in another way
    assert float(student.loss_of(lesson)) < before - 0.02
    return student


def test_a_step_of_no_length_changes_nothing(student):
    lesson = student.meets(PROBLEM)
    before = [variable.numpy() for variable in student.policy.trainable_variables]
    student.learn(lesson, tf.constant(0.0))
    for value, variable in zip(before, student.policy.trainable_variables, strict=True):
        np.testing.assert_array_equal(value, variable)


def test_another_graph_is_met_by_the_same_weights(student):
    assert 0 <= float(student.accuracy(student.meets(branches_problem(5, 3)))) <= 1


def test_a_search_begins_with_its_encoder_and_does_not_pre_train_one(student, tmp_path):
    path = tmp_path / "mars.npz"
    path.write_bytes(weights_bytes(student.kind, student.policy, {}))
    warm_start = warm_start_on(0, PROBLEM)
    learner = MarsLearner(PROBLEM, dataclasses.replace(CONFIG, weights=str(path)), warm_start, seed=7)
    for ours, theirs in zip(
        learner.policy.encoder.trainable_variables, student.policy.trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    other = dataclasses.replace(CONFIG, encoder_width=8, weights=str(path))
    with pytest.raises(InputError, match="encoder_width=32"):
        MarsLearner(PROBLEM, other, warm_start, seed=7)
