"""What the encoder learns from one graph it knows of another."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.graph_inputs import graph_inputs
from tf_placer.agents.mars import MarsConfig, MarsPolicy, Pretraining

CONFIG = MarsConfig(encoder_width=16, hidden=4)
TYPES = ("Relu", "MatMul", "BiasAdd")  # by the place in a branch


def graph_of(branches, length):
    """Branches of Relu, MatMul, BiasAdd, Relu ...: what stands beside what is no matter of chance."""
    problem = branches_problem(branches, length)
    place = (np.arange(problem.num_units) + branches - 1) // branches
    return graph_inputs(
        dataclasses.replace(problem, op_types=tuple(TYPES[number % 3] for number in place)), 0, 0
    )


def pretraining_of(seed=0):
    return Pretraining(MarsPolicy(CONFIG, seed).encoder, 1e-2, seed)


@pytest.fixture(scope="module")
def taught():
    pretraining = pretraining_of()
    pretraining.run([graph_of(6, 20)], 150)
    return pretraining


def test_a_graph_that_was_held_out_is_told_from_itself_mixed_up(taught):
    held_out = graph_of(9, 31)
    # 281 units, twice: by chance 0.5, give or take 0.02.
    assert float(pretraining_of().accuracy(held_out)) == pytest.approx(0.5, abs=0.15)
    assert float(taught.accuracy(held_out)) > 0.8
    assert int(taught.iterations) == 150


@pytest.fixture
def eagerly():
    """Without graphs, whose tracing takes longer than the few steps of a test."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def test_the_seed_says_what_is_learned(eagerly):
    graph = graph_of(2, 5)
    weights = []
    for seed in (1, 1, 2):
        policy = MarsPolicy(CONFIG, 0)
        Pretraining(policy.encoder, 1e-2, seed).run([graph], 2)
        weights.append(np.concatenate([v.numpy().ravel() for v in policy.trainable_variables]))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_only_the_encoder_is_changed(eagerly):
    policy, graph = MarsPolicy(CONFIG, 0), graph_of(2, 5)
    before = [v.numpy() for v in policy.placer.trainable_variables]
    types = tf.identity(policy.encoder.trainable_variables[-1])
    Pretraining(policy.encoder, 1e-2, 0).run([graph], 1)
    for variable, old in zip(policy.placer.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)
    assert np.abs(policy.encoder.trainable_variables[-1] - types).max() > 0
