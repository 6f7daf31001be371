"""Mars' encoder as a student: what it learns from one graph it knows of another, and it needs no plans."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import moved, weights
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.mars import MarsConfig, MarsPolicy, MarsStudent
from tf_placer.training.teach import lesson_of

CONFIG = MarsConfig(encoder_width=16, hidden=4)
TYPES = ("Relu", "MatMul", "BiasAdd")  # by the place in a branch
ONE = tf.constant(1.0)


def graph_of(student, branches, length):
    """Branches of Relu, MatMul, BiasAdd, Relu ...: what stands beside what is no matter of chance."""
    problem = branches_problem(branches, length)
    place = (np.arange(problem.num_units) + branches - 1) // branches
    problem = dataclasses.replace(problem, op_types=tuple(TYPES[number % 3] for number in place))
    lesson, plans = lesson_of(student, problem, 1, 10, folder=None)  # nothing is searched, so nothing is kept
    assert plans is None
    return lesson


@pytest.fixture
def rate(monkeypatch):
    monkeypatch.setattr(MarsConfig, "pretrain_rate", 1e-2)


def accuracy(student, graph):
    """Share of the units that are told from an untaught shuffle."""
    original, shuffled = student.logits(graph, tf.constant([5, 6])).numpy()
    return (np.mean(original > 0) + np.mean(shuffled <= 0)) / 2


@pytest.mark.medium
def test_a_graph_that_was_held_out_is_told_from_itself_mixed_up(rate):
    student, untaught = MarsStudent(CONFIG, seed=0), MarsStudent(CONFIG, seed=0)
    lesson, held_out = graph_of(student, 6, 20), graph_of(student, 9, 31)
    before = float(student.loss_of(lesson))
    losses = [float(student.learn(lesson, ONE)) for _ in range(150)]
    assert losses[0] == pytest.approx(before, abs=0.1)  # the same graph, mixed up in another way
    assert float(student.loss_of(lesson)) < before - 0.02 and int(student.iterations) == 150
    # 281 units, twice: by chance 0.5, give or take 0.02.
    assert accuracy(untaught, held_out) == pytest.approx(0.5, abs=0.15)
    assert accuracy(student, held_out) > 0.8


@pytest.fixture
def eagerly():
    """Without graphs, whose tracing takes longer than the few steps of a test."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def test_the_seed_says_what_is_learned_and_only_the_encoder_is_changed(eagerly, rate):
    results = []
    for seed in (1, 1, 2):
        policy = MarsPolicy(CONFIG, 0)
        encoder, placer = weights(policy.encoder), weights(policy.placer)
        student = MarsStudent(CONFIG, seed, policy.encoder)
        graph = graph_of(student, 2, 5)
        student.learn(graph, tf.constant(0.0))
        assert not moved(policy.encoder, encoder), "a step of no length"
        student.learn(graph, ONE)
        assert moved(policy.encoder, encoder) and not moved(policy.placer, placer)
        results.append(np.concatenate([value.ravel() for value in weights(policy)]))
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
