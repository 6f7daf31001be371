"""Teaching GO on many problems: what is missing is learned, of any problem, and numbers of devices mean nothing."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import OF_GROUPS, plans_of
from tests.tf_placer.agents.small_learners import OTHER, PROBLEM
from tests.tf_placer.problem.small_problems import branches_optimum_ns, branches_problem
from tf_placer.agents.go.learner import GoStudent, with_drawn_numbers
from tf_placer.agents.go.policy import GoConfig, committed
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.training.teach import kept_plans


def halves(problem):
    """[1, U], the first half of the nodes' units on device 0."""
    return (np.arange(problem.num_units) * 2 // problem.num_units)[np.newaxis].astype(np.int32)


@pytest.fixture(scope="module")
def student():
    return GoStudent(OF_GROUPS, seed=0)


@pytest.fixture(scope="module")
def lesson(student):
    return student.meets(PROBLEM, plans_of(halves(PROBLEM)))


@pytest.mark.medium
def test_plans_are_of_nodes_and_come_back_as_units(student, lesson):
    groups = student.groups_of(PROBLEM)
    first = np.array([np.flatnonzero(groups == node)[0] for node in range(groups.max() + 1)])
    np.testing.assert_array_equal(lesson.plans, halves(PROBLEM)[:, first])
    units = lesson.inputs.placements(lesson.plans).numpy()
    np.testing.assert_array_equal(units[:, first], halves(PROBLEM)[:, first])


@pytest.mark.medium
def test_a_step_says_the_loss_before_it_and_brings_it_down(lesson):
    student = GoStudent(OF_GROUPS, seed=1)
    before = float(student.loss_of(lesson))
    assert before == float(student.loss_of(lesson))  # the same parts are missing
    for _ in range(40):
        student.learn(lesson, tf.constant(1.0))
    assert int(student.updates) == 40
    assert float(student.loss_of(lesson)) < before


@pytest.mark.slow
def test_one_student_meets_problems_of_other_sizes(student, lesson):
    other = student.meets(OTHER, plans_of(halves(OTHER)))
    assert other.inputs.legal.shape[1] == 3
    for one in (other, lesson, other):
        assert np.isfinite(float(student.learn(one, tf.constant(1.0))))


@pytest.mark.medium
def test_drawn_numbers_are_distinct_and_of_the_same_type(lesson):
    seen = set()
    for number in range(4):
        numbers = with_drawn_numbers(lesson.inputs, tf.constant([number, 0])).graph.device_numbers.numpy()
        assert len(set(numbers)) == len(numbers)
        np.testing.assert_array_equal(numbers // 64, lesson.inputs.graph.device_numbers.numpy() // 64)
        seen.add(tuple(numbers))
    assert len(seen) > 1


@pytest.mark.slow
def test_what_was_taught_on_small_graphs_places_larger_ones(tmp_path):
    """Taught on branches, it finds the optimum of graphs with more and longer ones, without a single reward.

    A policy of random weights finds it in none of as many draws: all but 2 of 2^20 ways to cut branches cost a message.
    """
    config = GoConfig(
        num_groups=40, width=16, graph_width=16, inner_width=32, head_width=8, learning_rate=5e-3
    )
    taught, untaught = GoStudent(config, seed=0), GoStudent(config, seed=0)
    lessons = []
    for branches, length in [(2, 2), (4, 2), (4, 3), (2, 4), (6, 2), (2, 3), (8, 2)]:
        problem = branches_problem(branches, length)
        plans = kept_plans(problem, taught.groups_of(problem), 2, 400, tmp_path)
        lessons.append(taught.meets(problem, plans))
    order = np.random.default_rng(0)
    for _ in range(400):
        for place in order.permutation(len(lessons)):
            taught.learn(lessons[place], tf.constant(1.0))

    def of_optimum(student, branches, length):
        problem = branches_problem(branches, length)
        inputs = student.meets(problem, plans_of(problem.everything_on(0)[np.newaxis])).inputs
        devices = committed(student.policy, inputs, 32, 16, tf.constant(0.3), tf.constant([0, 1]))
        runtime_s = SimulatedEvaluator(problem).evaluate(inputs.placements(devices).numpy()).runtime_s
        return np.array(runtime_s) * 1e9 / branches_optimum_ns(branches, length)

    for branches, length in [(4, 4), (6, 3)]:
        assert of_optimum(taught, branches, length).min() == pytest.approx(1.0)
        assert np.median(of_optimum(taught, branches, length)) < of_optimum(untaught, branches, length).min()
