"""Teaching the prior of rules: it needs no plans, and what it learns is of use on a program that it was not taught."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.learned_list.small_lists import CONFIG
from tests.tf_placer.problem.small_problems import branches_problem, random_problem
from tf_placer.agents.learned_list.learned_list import LearnedListStudent
from tf_placer.training.teach import lesson_of

TAUGHT = [
    branches_problem(4, 6),
    branches_problem(3, 5, num_devices=3),
    branches_problem(8, 3, num_devices=4),
]


@pytest.fixture(scope="module")
def student():
    student = LearnedListStudent(CONFIG, seed=0)
    # A rule that puts everything where the node before went.
    student.policy.mean.assign(np.zeros(student.policy.mean.shape))
    lessons = []
    for problem in TAUGHT:
        lesson, plans = lesson_of(
            student, problem, 1, 10, folder=None
        )  # nothing is searched, so nothing is kept
        assert plans is None
        lessons.append(lesson)
    for _ in range(10):
        for lesson in lessons:
            student.learn(lesson, tf.constant(1.0))
    return student


def test_what_was_taught_is_of_use_elsewhere(student):
    untaught = LearnedListStudent(CONFIG, seed=0)
    untaught.policy.mean.assign(np.zeros(untaught.policy.mean.shape))
    for problem in (branches_problem(5, 4), branches_problem(6, 6, num_devices=5)):
        lesson = student.meets(problem)
        assert float(student.loss_of(lesson)) < float(untaught.loss_of(lesson)) - 0.1
        assert float(student.loss_of(lesson)) < 0, "faster than one device"


def test_the_loss_of_a_lesson_is_that_before_its_step(student):
    lesson = student.meets(TAUGHT[0])
    before = float(student.loss_of(lesson))
    mean = student.policy.mean.numpy()
    assert float(student.learn(lesson, tf.constant(0.0))) == pytest.approx(before)
    np.testing.assert_array_equal(student.policy.mean, mean)


def test_a_problem_of_another_kind_is_met(student):
    loss = float(student.loss_of(student.meets(random_problem(np.random.default_rng(0), 12, 3))))
    assert np.isfinite(loss)
