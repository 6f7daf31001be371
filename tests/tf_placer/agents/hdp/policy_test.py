"""Inputs and policy of the Hierarchical planner: groups in numbers, and what an untrained policy draws."""

import dataclasses
import itertools
import math
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.planners.chains import mixed_problem
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.features import NUM_TYPES, graph_inputs, type_numbers
from tf_placer.agents.hdp_policy import (
    Actions,
    HdpConfig,
    HdpPolicy,
    group_embeddings,
    group_prior_logits,
    hdp_inputs,
    hdp_start,
)
from tf_placer.agents.learner import reinforce_loss
from tf_placer.base import masked
from tf_placer.grouper.groups import unit_groups

CONFIG = HdpConfig(
    groups="min_cut", num_groups=6, group_probability=0.0, placer_hidden=8, groups_per_step=1, landmarks=4,
    start_probability=0.9, placements=6, incumbent=False, row_step=0.0,
)  # fmt: skip
SEED = tf.constant([11, 12])
PROBLEM = branches_problem(3, 4)


def inputs_of(problem, config=CONFIG):
    """With every group on its first legal device."""
    groups = unit_groups(problem, config.num_groups, config.groups)
    return hdp_inputs(problem, config, groups, groups.legal.argmax(axis=1), seed=5)


@pytest.fixture(scope="module")
def inputs():
    return inputs_of(PROBLEM)


@pytest.fixture(scope="module")
def policy():
    return HdpPolicy(CONFIG, seed=5)


@pytest.fixture(scope="module")
def noise(policy, inputs):
    return policy.draw_noise(inputs, tf.constant(0.1), tf.constant([1, 2]))


@pytest.fixture(scope="module")
def drawn(policy, inputs, noise):
    return policy.sample(inputs, noise, SEED)


def test_other_actions_have_other_log_probabilities(policy, inputs, noise, drawn):
    actions, scores = drawn
    assert actions.group_of_unit.shape == (1, PROBLEM.num_units)
    assert actions.device_of_group.shape == (1, 6, 6) and scores.device_log_prob.shape == (1, 6)
    devices = policy.score(inputs, actions._replace(device_of_group=1 - actions.device_of_group), noise)
    assert (np.abs(devices.device_log_prob - scores.device_log_prob) > 1e-4).all()
    np.testing.assert_allclose(devices.group_log_prob, scores.group_log_prob, rtol=1e-5)
    groups = policy.score(inputs, actions._replace(group_of_unit=(actions.group_of_unit + 1) % 6), noise)
    assert (np.abs(groups.group_log_prob - scores.group_log_prob) > 1e-4).all()


def test_grouper_log_probability_is_that_of_its_own_logits(inputs, noise, drawn):
    actions, scores = drawn
    log_p = tf.nn.log_softmax(scores.network_logits + inputs.group_prior_logits + noise.group).numpy()
    chosen = log_p[np.arange(PROBLEM.num_units), actions.group_of_unit[0]]
    assert float(scores.group_log_prob[0]) == pytest.approx(chosen.sum(), rel=1e-5)


def test_a_unit_goes_where_its_group_goes(policy, inputs, drawn):
    actions, _ = drawn
    expected = actions.device_of_group.numpy()[0][:, actions.group_of_unit.numpy()[0]]
    np.testing.assert_array_equal(policy.placements(inputs, actions), expected)


def four_kinds(units):
    """A chain of units that may run anywhere, on devices 1 and 2, on device 2 alone, and on devices 0 and 1."""
    rows = [[True] * 3, [False, True, True], [False, False, True], [True, True, False]]
    allowed, edges = np.array([rows[u % 4] for u in range(units)]), [(u, u + 1) for u in range(units - 1)]
    return problem_of([1] * units, edges, 100, cluster=small_cluster(3), allowed=allowed)


def test_all_legal_devices_of_a_grouping_are_certain_together():
    config = dataclasses.replace(CONFIG, num_groups=3)
    inputs, policy = inputs_of(four_kinds(4), config), HdpPolicy(config, seed=1)
    noise = policy.draw_noise(inputs, tf.constant(0.0), SEED)
    # Three classes of one unit each, and a unit without a choice: one grouping, and 3 * 2 * 2 triples of devices.
    groups = policy.sample(inputs, noise, SEED)[0].group_of_unit
    legal = inputs.choices.legal.numpy()
    devices = [d for d in itertools.product(range(3), repeat=3) if legal[np.arange(3), list(d)].all()]
    actions = Actions(groups, tf.constant([devices], tf.int32))
    scores = policy.score(inputs, actions, noise)
    assert len(np.unique(policy.placements(inputs, actions), axis=0)) == 12
    assert float(scores.group_log_prob[0]) == pytest.approx(0, abs=1e-6)
    assert float(tf.reduce_sum(tf.exp(scores.device_log_prob))) == pytest.approx(1, rel=1e-5)


def test_several_groups_a_step_and_rows_of_each_are_scored_as_drawn():
    config = dataclasses.replace(CONFIG, num_groups=7, groups_per_step=3, row_step=0.3, placements=50)
    problem = four_kinds(12)
    inputs, policy = inputs_of(problem, config), HdpPolicy(config, seed=0)
    noise = policy.draw_noise(inputs, tf.constant(1.0), SEED)
    actions, scores = policy.sample(inputs, noise, SEED)
    for row in policy.placements(inputs, actions).numpy():
        problem.check_legal(row)
    for forced, sampled in zip(policy.score(inputs, actions, noise), scores, strict=True):
        np.testing.assert_allclose(forced, sampled, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("devices", [1, 3])
def test_a_problem_without_a_choice_has_one_placement(devices):
    allowed = np.eye(devices, dtype=bool)[np.arange(3) % devices]
    problem = problem_of([1] * 3, [(0, 1)], cluster=small_cluster(devices), allowed=allowed)
    inputs, policy = inputs_of(problem), HdpPolicy(CONFIG, seed=0)
    actions, scores = policy.sample(inputs, policy.draw_noise(inputs, tf.constant(0.1), SEED), SEED)
    assert policy.placements(inputs, actions).numpy().tolist() == [(np.arange(3) % devices).tolist()] * 6
    assert scores.group_log_prob.numpy().tolist() == [0]
    assert np.isfinite(scores.device_log_prob).all()


def test_the_order_of_units_does_not_matter_to_the_grouper(policy, inputs, noise):
    order = np.random.default_rng(0).permutation(PROBLEM.num_units)
    moved = inputs._replace(
        dense=tf.gather(inputs.dense, order),
        graph=inputs.graph._replace(type_of_unit=tf.gather(inputs.graph.type_of_unit, order)),
    )
    ours, theirs = (policy._group_logits(each, noise)[0].numpy() for each in (moved, inputs))
    np.testing.assert_allclose(ours, theirs[order], rtol=1e-4, atol=1e-5)


def test_devices_that_change_places_change_probabilities_with_them(policy):
    inputs = inputs_of(branches_problem(3, 2, num_devices=3))
    order = np.array([2, 0, 1])  # device order[d] becomes device d
    choices = inputs.choices
    moved = inputs._replace(
        choices=choices._replace(
            features=tf.gather(choices.features, order),
            number=tf.gather(choices.number, order),
            prior_logits=tf.gather(choices.prior_logits, order, axis=1),
        )
    )
    noise = policy.draw_noise(inputs, tf.constant(0.0), SEED)
    actions, scores = policy.sample(inputs, noise, SEED)
    devices = tf.gather(np.argsort(order).astype(np.int32), actions.device_of_group)
    np.testing.assert_allclose(
        policy.score(moved, actions._replace(device_of_group=devices), noise).device_log_prob,
        scores.device_log_prob,
        rtol=1e-4,
    )


def test_an_untrained_policy_is_unsure(policy, inputs, noise, drawn):
    _, scores = drawn
    # Features are at most about 2 and Sonnet's weights keep activations near 1, so no group is near certain:
    # half of the uniform entropy is a floor with much room. (The old file's summed log-probability was -0.3.)
    assert float(tf.reduce_mean(masked.entropy(policy._group_logits(inputs, noise)[1]))) > 0.5 * math.log(6)
    assert float(scores.group_log_prob[0]) < -0.5 * PROBLEM.num_units
    # Log-odds of a device move by at most about 1.4 from where they begin (see the Placer's tests).
    unbiased = inputs_of(PROBLEM, dataclasses.replace(CONFIG, start_probability=0.0))
    for log_odds, devices in ((math.log(9), scores), (0.0, policy.sample(unbiased, noise, SEED)[1])):
        p = 1 / (1 + math.exp(-(log_odds + 1.4)))
        assert float(tf.reduce_mean(devices.device_entropy)) > -(p * math.log(p) + (1 - p) * math.log(1 - p))


def test_the_start_device_is_preferred_about_as_asked(drawn):
    share = float(tf.reduce_mean(tf.cast(drawn[0].device_of_group == 0, tf.float32)))
    # 36 decisions at 0.9, whose log-odds move by up to about 1.4: at least 0.69 less three deviations.
    assert 0.69 - 3 * math.sqrt(0.69 * 0.31 / 36) < share


def test_an_untrained_grouper_that_leans_keeps_most_units_where_they_begin():
    config = dataclasses.replace(CONFIG, num_groups=3, group_probability=0.8)
    groups = unit_groups(PROBLEM, 3, "min_cut").group_of_unit
    inputs, policy = inputs_of(PROBLEM, config), HdpPolicy(config, seed=5)
    for variable in policy.grouper.logits.trainable_variables:
        variable.assign(0.1 * variable)
    noise = policy.draw_noise(inputs, tf.constant(0.0), SEED)
    draws = [policy.sample(inputs, noise, tf.constant([n, 1]))[0].group_of_unit for n in range(99)]
    # 1400 draws: units with neighbors in other groups at 0.8, the others at 0.8 / (0.8 + 0.02), whose log-odds the
    # network moves by a tenth of what it says.
    assert 0.75 < (np.concatenate(draws) == groups).mean() < 0.98
    np.testing.assert_array_equal(masked.largest(policy._group_logits(inputs, noise)[1]), groups)


def test_noise_has_the_amplitude_asked_for(policy, inputs):
    for part in policy.draw_noise(inputs, tf.constant(0.1), SEED):
        assert 0.05 < float(tf.reduce_max(tf.abs(part))) <= 0.1
    for part in policy.draw_noise(inputs, tf.constant(0.0), SEED):
        assert float(tf.reduce_max(tf.abs(part))) == 0


def test_reinforce_gradient_against_finite_differences(policy, inputs, noise, drawn):
    actions, _ = drawn
    advantage = tf.constant(np.random.default_rng(0).normal(size=6), tf.float32)

    def loss_of():
        scores = policy.score(inputs, actions, noise)
        devices = reinforce_loss(tf.reshape(scores.device_log_prob, [-1]), advantage, tf.ones(6))
        return devices + reinforce_loss(scores.group_log_prob, tf.constant([0.7]), tf.ones(1))

    with tf.GradientTape() as tape:
        loss = loss_of()
    variables = policy.trainable_variables
    gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
    for variable, gradient in zip(variables, gradients, strict=True):
        # Along the gradient itself, the loss changes by |gradient| a unit of length. In float32 a loss of
        # about 10 is off by 1e-6, which over a step of 1e-2 is 1e-4; curvature adds about step^2 of the norm.
        norm = float(tf.norm(gradient))
        if norm < 1e-2:
            continue
        value, step, loss_at = variable.numpy(), 5e-3, {}
        for sign in (1, -1):
            variable.assign(value + sign * step * gradient / norm)
            loss_at[sign] = float(loss_of())
        variable.assign(value)
        by_steps = (loss_at[1] - loss_at[-1]) / (2 * step)
        assert by_steps == pytest.approx(norm, rel=0.02, abs=5e-4), variable.name
    assert sum(float(tf.norm(g)) >= 1e-2 for g in gradients) >= 5


def test_dense_columns_have_mean_0_and_deviation_1(inputs):
    dense, raw = inputs.dense.numpy(), inputs.graph.unit_features.numpy()
    varies = raw.std(axis=0) > 0
    assert varies.sum() > 10 and (np.abs(dense[:, ~varies]) < 1e-3).all()
    np.testing.assert_allclose(dense[:, varies].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(dense[:, varies].std(axis=0), 1, rtol=1e-2)
    # One of U standardized numbers is at most sqrt(U - 1).
    assert np.abs(dense).max() <= np.sqrt(PROBLEM.num_units - 1) + 1e-3


def test_a_unit_that_leaves_its_group_goes_to_its_neighbors():
    # Unit 0 in group 0, units 1 and 2 in group 1, unit 3 in group 2; 0 - 1 - 2 - 3 and 0 - 3.
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], 9)
    groups = dataclasses.replace(unit_groups(problem, 3), group_of_unit=np.array([0, 1, 1, 2], np.int32))
    rows = np.exp(group_prior_logits(problem, groups, 0.8))
    # 0.2 of which 9 parts go by edges (1 and 3 are one each) and 1 part evenly.
    np.testing.assert_allclose(rows[0], [0.8, 0.1, 0.1], rtol=1e-5)
    # Unit 1: one edge to group 0, none to 2.
    np.testing.assert_allclose(rows[1], [0.18 + 0.01, 0.8, 0.01], rtol=1e-5)
    assert not group_prior_logits(problem, groups, 0.0).any()


THREE = HdpConfig(groups="min_cut", num_groups=3)


def test_every_plan_is_timed_as_groups_and_the_best_is_taken():
    problem, seen = mixed_problem(), []
    # More classes than groups get a group each.
    assert unit_groups(problem, 1, "min_cut").class_of_group.tolist() == [0, 1]
    plans = np.array([problem.everything_on(d) for d in range(3)])

    def simulate(rows):
        seen.append(rows)
        return np.array([3.0, 1.0, 2.0]), np.array([True, True, True])

    _, devices = hdp_start(problem, THREE, plans, simulate)
    for row in seen[0]:
        problem.check_legal(row)
    # Plan 1 has all on device 1 but for the last unit, which is on 2.
    assert devices.tolist() == [1, 1, 1] and seen[0][1].tolist() == [1] * 9 + [2]
    # What fits is preferred.
    fits = lambda rows: (np.array([1.0, 2.0]), np.array([False, True]))  # noqa: E731
    assert hdp_start(problem, THREE, plans[:2], fits)[1].tolist() == [1, 1, 1]


def test_without_first_groups_all_groups_of_a_class_are_alike():
    plan = (np.arange(PROBLEM.num_units) % 2)[np.newaxis].astype(np.int32)
    _, devices = hdp_start(PROBLEM, CONFIG, plan, lambda rows: (np.ones(1), np.ones(1, bool)))
    assert len(set(devices)) == 1


@pytest.fixture(scope="module")
def graph():
    """Units 0 = {a}, 1 = {b, c}, 2 = {d}, 3 = {e}; edges 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""
    graph = graph_inputs(problem_of([1] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)], 1000), landmarks=3, seed=0)
    return graph._replace(
        type_of_op=tf.constant(type_numbers(["Relu", "Const", "MatMul", "MatMul", "Relu"])),
        unit_of_op=tf.constant([0, 1, 1, 2, 3]),
        unit_features=tf.random.stateless_uniform(graph.unit_features.shape, [1, 2], -1.0, 1.0),
    )


def embedded(graph, grouping, groups, num_groups):
    """[G', F] embeddings of one grouping [U]."""
    inputs = types.SimpleNamespace(graph=graph, class_of_group=tf.zeros([groups]))
    return group_embeddings(inputs, tf.constant([grouping]), num_groups)[0].numpy()


def test_group_embedding_by_hand(graph):
    # Units 0 and 3 in group 2, units 1 and 2 in group 0, group 1 empty; two groups more in the policy.
    embedding = embedded(graph, [2, 0, 0, 2], 3, 5)
    assert embedding.shape == (3, NUM_TYPES + 16 + 5)
    relu, const, matmul = type_numbers(["Relu", "Const", "MatMul"])
    expected = np.zeros((3, NUM_TYPES))
    expected[0, matmul], expected[0, const], expected[2, relu] = 2, 1, 2
    np.testing.assert_allclose(np.expm1(embedding[:, :NUM_TYPES]), expected, atol=1e-5)
    sizes = np.expm1(embedding[:, NUM_TYPES : NUM_TYPES + 16])
    columns = np.maximum(graph.unit_features.numpy()[:, :16], 0)  # what is absent is -1
    np.testing.assert_allclose(sizes[0], columns[1] + columns[2], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(sizes[2], columns[0] + columns[3], rtol=1e-4, atol=1e-6)
    assert (embedding[1] == 0).all()
    # All four edges run between groups 0 and 2.
    assert embedding[:, -5:].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_units_of_no_group_are_not_seen(graph):
    embedding = embedded(graph, [0, 2, 1, 2], 2, 2)
    # Of the ops, a in group 0 and d in group 1 are left; of the edges 0 -> 2.
    assert np.expm1(embedding[:, :NUM_TYPES]).sum() == 2
    assert embedding[:, -2:].tolist() == [[0, 1], [1, 0]]


def test_group_adjacency_keeps_every_edge():
    # A hub read by 30 units: the old open-source file kept one edge of them.
    problem = problem_of([1] * 31, [(0, u) for u in range(1, 31)], 1000)
    adjacency = embedded(graph_inputs(problem, 3, 0), range(31), 31, 31)[:, -31:]
    expected = np.zeros((31, 31))
    expected[0, 1:] = expected[1:, 0] = 1
    np.testing.assert_array_equal(adjacency, expected)


def test_numbers_of_units_do_not_matter(graph):
    order = np.array([2, 0, 3, 1])  # unit order[i] becomes unit i
    place = tf.constant(np.argsort(order), tf.int32)
    other = graph._replace(
        unit_features=tf.gather(graph.unit_features, order),
        unit_of_op=tf.gather(place, graph.unit_of_op),
        edges=tf.gather(place, graph.edges),
    )
    groups = np.array([2, 0, 1, 2], np.int32)
    np.testing.assert_allclose(
        embedded(graph, groups, 3, 3), embedded(other, groups[order], 3, 3), rtol=1e-5, atol=1e-6
    )
