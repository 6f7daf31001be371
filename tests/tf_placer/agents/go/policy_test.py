"""One set of weights places any graph on any devices, and scores exactly the chain that was drawn."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import OF_UNITS as CONFIG
from tests.tf_placer.agents.go.small_go import SMALL, WIDE
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.agents.go.policy import NOWHERE, GoPolicy, go_inputs
from tf_placer.grouper.groups import ordered_groups

SEED = tf.constant([11, 12])


def inputs_of(problem, config=CONFIG):
    return go_inputs(problem, ordered_groups(problem, config.most_nodes))


def nothing(inputs):
    return tf.fill([inputs.legal.shape[0]], NOWHERE)


@pytest.fixture(scope="module")
def policy():
    return GoPolicy(CONFIG, seed=5)


def test_one_set_of_weights_serves_problems_of_any_size(policy):
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    masked = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 8, cluster=small_cluster(3), allowed=allowed)
    before = [one.numpy() for one in policy.variables]
    for problem in (SMALL, WIDE, masked, problem_of([7], [])):
        inputs = inputs_of(problem)
        chain, drawn = policy.sample(inputs, nothing(inputs), 5, SEED)
        assert chain.steps.shape == (5, 2, inputs.legal.shape[0])
        for row in inputs.placements(chain.executed).numpy():
            problem.check_legal(row)
        scored = policy.score(inputs, chain)
        np.testing.assert_allclose(scored.log_prob, drawn.log_prob, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scored.entropy, drawn.entropy, rtol=1e-4, atol=1e-5)
    for one, now in zip(before, policy.variables, strict=True):
        np.testing.assert_array_equal(one, now)


def test_one_trace_serves_problems_of_any_size(policy):
    inputs = inputs_of(SMALL)
    specs = tf.nest.map_structure(
        lambda one: tf.TensorSpec(
            [None, *one.shape[1:]] if one.shape != inputs.legal.shape else [None, None], one.dtype
        ),
        inputs,
    )
    loose = specs._replace(
        load=tf.TensorSpec([None, None, 2]),
        slowness=tf.TensorSpec([None, None]),
        legal=tf.TensorSpec([None, None], tf.bool),
        graph=specs.graph._replace(allowed=tf.TensorSpec([None, None], tf.bool)),
    )
    traced = tf.function(
        lambda inputs, begin, seed: policy.sample(inputs, begin, 3, seed),
        autograph=False,
        input_signature=[loose, tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.int32)],
    )
    for problem in (SMALL, WIDE):
        other = inputs_of(problem)
        chain, scores = traced(other, nothing(other), SEED)
        expected, by_eager = policy.sample(other, nothing(other), 3, SEED)
        np.testing.assert_array_equal(chain.steps, expected.steps)
        np.testing.assert_allclose(scores.log_prob, by_eager.log_prob, rtol=1e-3, atol=1e-4)


def test_the_likeliest_is_taken_pass_by_pass(policy):
    inputs = inputs_of(WIDE)
    begin = nothing(inputs)
    chain, _ = policy.greedy(inputs, begin)
    assert chain.steps.shape == (1, 2, 11)
    for now, then in zip((begin, *chain.steps[0]), chain.steps[0], strict=False):
        np.testing.assert_array_equal(tf.argmax(policy.logits(inputs, now[tf.newaxis])[0], axis=1), then)


def test_what_one_pass_decides_the_next_one_sees(policy):
    inputs = inputs_of(SMALL)
    one, other = (policy.logits(inputs, tf.constant([row])) for row in ([0] * 6, [0, 0, 1, 0, 0, 0]))
    moved = np.abs(one - other).max(axis=(0, 2))
    # Unit 2 is in the first segment of four, and what the fifth sees of it goes through the attention or its reads.
    assert (moved > 1e-6).all()


def test_a_node_stays_as_often_as_it_is_asked_to():
    config = dataclasses.replace(CONFIG, keep_probability=0.9, exploration=0.2)
    policy, inputs = GoPolicy(config, seed=5), inputs_of(WIDE)
    # With all other logits equal: nothing is left of the network where the weights are 0.
    for one in policy.trainable_variables:
        one.assign(tf.zeros_like(one))
    probability = tf.nn.softmax(policy.logits(inputs, tf.fill([1, 11], 3)))[0]
    # 0.8 * 0.9 + 0.2 / 5, and a fourth of the rest for each of the others.
    np.testing.assert_allclose(probability[:, 3], 0.76, rtol=1e-5)
    np.testing.assert_allclose(probability[:, 0], 0.06, rtol=1e-4)
    undecided = tf.nn.softmax(policy.logits(inputs, nothing(inputs)[tf.newaxis]))[0]
    np.testing.assert_allclose(undecided, 0.2, rtol=1e-5)


def test_nothing_names_a_node():
    # The same graph with its units in another order is placed the same, unit by unit.
    policy = GoPolicy(dataclasses.replace(CONFIG, segment=100), seed=5)
    order = np.array([0, 2, 1, 4, 3, 5])  # the two branches of two exchanged
    costs = np.array([10, 700, 900, 800, 600, 10])
    edges = np.array([(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5)])
    size = np.array([10, 20, 0, 0, 0, 0])  # the fullest moment of the step is its first in any order
    one = inputs_of(problem_of(costs, edges, size))
    other = inputs_of(problem_of(costs[order], order[edges], size))
    rows = []
    for inputs in (one, other):
        row = policy.logits(inputs, nothing(inputs)[tf.newaxis])[0]
        rows.append(tf.gather(row, inputs.node_of_unit).numpy())
    np.testing.assert_allclose(rows[1][order], rows[0], rtol=1e-4, atol=1e-5)
