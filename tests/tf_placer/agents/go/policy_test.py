"""Inputs and policy of GO: what is told of a problem and seen of decisions, by hand; passes, and what is drawn."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import INPUTS
from tests.tf_placer.agents.go.small_go import OF_UNITS as CONFIG
from tests.tf_placer.problem.small_problems import branches_problem, problem_of
from tf_placer.agents.go.policy import DECIDED_WIDTH, NOWHERE, GoPolicy, decided, go_inputs
from tf_placer.grouper.groups import ordered_groups

SEED = tf.constant([11, 12])
SMALL = branches_problem(2, 2)
WIDE = dataclasses.replace(
    branches_problem(3, 3, num_devices=5), op_types=("Conv3D", "NeverSeenBefore") * 5 + ("X",)
)


def inputs_of(problem, config=CONFIG):
    return go_inputs(ordered_groups(problem, config.most_nodes))


def nothing(inputs):
    return tf.fill([inputs.legal.shape[0]], NOWHERE)


@pytest.fixture(scope="module")
def policy():
    return GoPolicy(CONFIG, seed=5)


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


def test_shares_of_work_and_bytes():
    # Work 100 + 300 + 600 on the fastest devices, and 500 bytes that stay; roots.
    np.testing.assert_allclose(INPUTS.node_numbers[:, 0], np.sqrt([0.1, 0.3, 0.6]), rtol=1e-6)
    np.testing.assert_allclose(INPUTS.node_numbers[:, 1], np.sqrt([0, 0.5, 0.5]), rtol=1e-6)


def test_what_flows_is_a_share_of_what_a_node_reads_or_gives():
    assert INPUTS.reads.pairs.numpy().tolist() == [[1, 0], [2, 0], [2, 1]]
    np.testing.assert_allclose(INPUTS.reads.weight, [1, 0.1, 0.9], atol=1e-4)
    assert INPUTS.gives.pairs.numpy().tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(INPUTS.gives.weight, [0.75, 0.25, 1], atol=1e-4)


def test_what_a_node_is_to_each_device():
    np.testing.assert_allclose(INPUTS.load[:, :, 0], [[0.1, 0.1], [0.3, 0.3], [0.6, 6]], rtol=1e-6)
    np.testing.assert_allclose(INPUTS.slowness, [[0, 0], [0, 0], [0, np.log10(6001 / 601)]], atol=1e-6)
    assert INPUTS.load[1, 0, 1] >= 0.25  # of 1,000 bytes


def test_a_placement_is_of_units():
    # Nodes are units here, in the order of use, which is theirs.
    assert INPUTS.placements(np.array([[0, 1, 1]])).numpy().tolist() == [[0, 1, 1]]


def test_neighbors_are_where_they_are():
    seen = decided(INPUTS, tf.constant([[0, 1, 0]]))
    np.testing.assert_array_equal(seen.here[0], [[1, 0], [0, 1], [1, 0]])
    np.testing.assert_allclose(seen.reads[0], [[0, 0], [1, 0], [0.1, 0.9]], atol=1e-4)
    np.testing.assert_allclose(seen.gives[0], [[0.25, 0.75], [1, 0], [0, 0]], atol=1e-4)


def test_a_device_holds_what_others_have_there():
    of_devices = decided(INPUTS, tf.constant([[0, 1, 0], [1, 1, 1]])).of_devices(INPUTS).numpy()
    assert of_devices.shape == (2, 3, 2, DECIDED_WIDTH)
    # Of node 0: node 2 is there too, with 0.6 of the work; node 1 is on the other device.
    np.testing.assert_allclose(of_devices[0, 0, :, 3], [0.6, 0.3], rtol=1e-6)
    # With all on device 1, where node 2 takes 6: of each the other two.
    np.testing.assert_allclose(of_devices[1, :, 1, 3], [6.3, 6.1, 0.4], rtol=1e-5)
    np.testing.assert_allclose(of_devices[1, :, 0, 3], 0, atol=1e-6)
    np.testing.assert_array_equal(of_devices[1, :, :, 5], INPUTS.load[:, :, 0])
    np.testing.assert_array_equal(of_devices[0, :, :, 7], INPUTS.slowness)


def test_nothing_is_seen_of_what_is_not_decided():
    seen = decided(INPUTS, tf.constant([[-1, 1, -1]]))
    assert seen.here[0, 0].numpy().tolist() == [0, 0]
    np.testing.assert_allclose(seen.reads[0], [[0, 0], [0, 0], [0, 0.9]], atol=1e-4)
    np.testing.assert_allclose(seen.of_devices(INPUTS)[0, 2, :, 3], [0, 0.3], rtol=1e-6)
