"""The policy scores exactly the placements that are executed, on whatever problem it is called with."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.hdp_policy import Actions, HdpConfig, HdpPolicy, HdpStart, Noise, hdp_inputs
from tf_placer.agents.losses import reinforce_loss
from tf_placer.grouper.groups import unit_groups

CONFIG = HdpConfig(
    groups="min_cut",
    num_groups=6,
    group_probability=0.0,
    placer_hidden=8,
    groups_per_step=1,
    grouper_sharpness=5.0,
    landmarks=4,
    start_probability=0.9,
    groupings=2,
    placements=3,
    incumbent=False,
    row_step=0.0,
)
SEED = tf.constant([11, 12])


def on_first(problem, config):
    """Every group on its first legal device."""
    groups = unit_groups(problem, config.num_groups, config.groups)
    return HdpStart(groups, groups.legal.argmax(axis=1))


def inputs_of(problem, config=CONFIG):
    return hdp_inputs(problem, config, on_first(problem, config), seed=5)


def mixed_problem(units=4, devices=3):
    """Units that may run anywhere, on devices 1 and 2, on device 2 alone, and on devices 0 and 1."""
    rows = [[True] * 3, [False, True, True], [False, False, True], [True, True, False]]
    allowed = np.array([rows[u % 4] for u in range(units)])[:, :devices]
    edges = [(u, u + 1) for u in range(units - 1)]
    return problem_of([1] * units, edges, 100, cluster=small_cluster(devices), allowed=allowed)


@pytest.fixture(scope="module")
def problem():
    return branches_problem(3, 4)


@pytest.fixture(scope="module")
def inputs(problem):
    return inputs_of(problem)


@pytest.fixture(scope="module")
def policy():
    return HdpPolicy(CONFIG, seed=5)


@pytest.fixture(scope="module")
def noise(policy, inputs):
    return policy.draw_noise(inputs, tf.constant(0.1), tf.constant([1, 2]))


def test_m_groupings_of_k_placements_each(policy, inputs, noise, problem):
    actions, scores = policy.sample(inputs, noise, SEED)
    assert actions.group_of_unit.shape == (2, problem.num_units)
    assert actions.device_of_group.shape == (2, 3, 6)
    assert scores.group_log_prob.shape == (2,) and scores.device_log_prob.shape == (2, 3)
    assert policy.placements(inputs, actions).shape == (6, problem.num_units)


def test_other_actions_have_other_log_probabilities(policy, inputs, noise):
    actions, scores = policy.sample(inputs, noise, SEED)
    devices = policy.score(inputs, actions._replace(device_of_group=1 - actions.device_of_group), noise)
    assert (np.abs(devices.device_log_prob - scores.device_log_prob) > 1e-4).all()
    np.testing.assert_allclose(devices.group_log_prob, scores.group_log_prob, rtol=1e-5)
    groups = policy.score(inputs, actions._replace(group_of_unit=(actions.group_of_unit + 1) % 6), noise)
    assert (np.abs(groups.group_log_prob - scores.group_log_prob) > 1e-4).all()


def test_grouper_log_probability_is_that_of_its_own_logits(policy, inputs, noise):
    actions, scores = policy.sample(inputs, noise, SEED)
    log_p = tf.nn.log_softmax(policy.network_logits(inputs) + inputs.group_prior_logits + noise.group).numpy()
    for m in range(2):
        chosen = log_p[np.arange(inputs.dense.shape[0]), actions.group_of_unit[m]]
        assert float(scores.group_log_prob[m]) == pytest.approx(chosen.sum(), rel=1e-5)


def test_a_unit_goes_where_its_group_goes(policy, inputs, noise):
    actions, _ = policy.sample(inputs, noise, SEED)
    placements = policy.placements(inputs, actions).numpy().reshape(2, 3, -1)
    for m in range(2):
        for k in range(3):
            expected = actions.device_of_group.numpy()[m, k][actions.group_of_unit.numpy()[m]]
            np.testing.assert_array_equal(placements[m, k], expected)


def test_every_placement_is_legal():
    problem = mixed_problem(units=12)
    inputs = inputs_of(problem)
    policy = HdpPolicy(dataclasses.replace(CONFIG, placements=50), seed=0)
    noise = policy.draw_noise(inputs, tf.constant(3.0), SEED)
    actions, scores = policy.sample(inputs, noise, SEED)
    placements = policy.placements(inputs, actions).numpy()
    for placement in placements:
        problem.check_legal(placement)
    assert len(np.unique(placements, axis=0)) > 10
    for name, sampled, forced in zip(
        scores._fields, scores, policy.score(inputs, actions, noise), strict=True
    ):
        assert np.isfinite(sampled).all()
        np.testing.assert_allclose(forced, sampled, rtol=1e-4, atol=1e-5, err_msg=name)
    problem.check_legal(policy.placements(inputs, policy.greedy(inputs))[0].numpy())


def test_the_decisions_that_are_legal_are_certain_together():
    problem = mixed_problem()
    inputs = inputs_of(problem, dataclasses.replace(CONFIG, num_groups=3))
    policy = HdpPolicy(dataclasses.replace(CONFIG, num_groups=3), seed=1)
    # One unit for each of three classes and one without a choice, so there is one grouping; 3 * 2 * 2 device triples.
    legal = inputs.choices.legal.numpy()
    devices = [d for d in itertools.product(range(3), repeat=3) if all(legal[g][x] for g, x in enumerate(d))]
    assert len(devices) == 12
    noise = Noise(tf.zeros([1, 1]), tf.zeros([1, 1, 1, 1]))
    groups = policy.greedy(inputs).group_of_unit
    assert sorted(groups.numpy()[0][[0, 1, 3]]) == [0, 1, 2] and groups.numpy()[0][2] == 3
    actions = Actions(groups, tf.constant([devices], tf.int32))
    scores = policy.score(inputs, actions, noise)
    assert float(scores.group_log_prob[0]) == pytest.approx(0, abs=1e-6)
    assert float(tf.reduce_sum(tf.exp(scores.device_log_prob))) == pytest.approx(1, rel=1e-5)
    placements = policy.placements(inputs, actions).numpy()
    assert len(np.unique(placements, axis=0)) == 12 and (placements[:, 2] == 2).all()


def test_all_groupings_are_certain_together():
    problem = branches_problem(2, 1)  # 4 units
    config = dataclasses.replace(CONFIG, num_groups=2, groupings=16)
    inputs, policy = inputs_of(problem, config), HdpPolicy(config, seed=1)
    groupings = tf.constant(list(itertools.product(range(2), repeat=4)), tf.int32)
    actions = Actions(groupings, tf.zeros([16, 1, 2], tf.int32))
    noise = policy.draw_noise(inputs, tf.constant(0.0), SEED)
    scores = policy.score(inputs, actions, noise)
    assert float(tf.reduce_sum(tf.exp(scores.group_log_prob))) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("devices", [1, 3])
def test_a_problem_without_a_choice_has_one_placement(devices):
    allowed = np.eye(devices, dtype=bool)[np.arange(3) % devices]
    problem = problem_of([1] * 3, [(0, 1)], cluster=small_cluster(devices), allowed=allowed)
    inputs, policy = inputs_of(problem), HdpPolicy(CONFIG, seed=0)
    noise = policy.draw_noise(inputs, tf.constant(0.1), SEED)
    actions, scores = policy.sample(inputs, noise, SEED)
    expected = (np.arange(3) % devices).tolist()
    assert policy.placements(inputs, actions).numpy().tolist() == [expected] * 6
    assert scores.group_log_prob.numpy().tolist() == scores.group_entropy.numpy().tolist() == [0, 0]
    assert np.isfinite(scores.device_log_prob).all()


def test_one_set_of_weights_serves_problems_of_every_size(policy):
    for problem in (
        branches_problem(3, 4),
        branches_problem(1, 1),
        branches_problem(5, 3, 4),
        mixed_problem(9),
    ):
        inputs = inputs_of(problem)
        noise = policy.draw_noise(inputs, tf.constant(0.1), SEED)
        actions, scores = policy.sample(inputs, noise, SEED)
        for placement in policy.placements(inputs, actions).numpy():
            problem.check_legal(placement)
        for forced, sampled in zip(policy.score(inputs, actions, noise), scores, strict=True):
            np.testing.assert_allclose(forced, sampled, rtol=1e-4, atol=1e-5)


def test_weights_have_no_size_of_a_problem(policy, problem):
    sizes = {
        problem.num_units,
        len(problem.op_names),
        10**6,
    }  # 14 units; 2 devices are the size of other things
    assert not sizes & {int(n) for variable in policy.variables for n in variable.shape}


def test_the_order_of_units_does_not_matter_to_the_grouper(policy, inputs):
    order = np.random.default_rng(0).permutation(inputs.dense.shape[0])
    moved = inputs._replace(
        dense=tf.gather(inputs.dense, order),
        graph=inputs.graph._replace(type_of_unit=tf.gather(inputs.graph.type_of_unit, order)),
    )
    np.testing.assert_allclose(
        policy.network_logits(moved), policy.network_logits(inputs).numpy()[order], rtol=1e-4, atol=1e-5
    )


def test_devices_that_change_places_change_probabilities_with_them(policy):
    problem = branches_problem(3, 2, num_devices=3)
    inputs = inputs_of(problem)
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
    renamed = actions._replace(device_of_group=tf.gather(np.argsort(order), actions.device_of_group))
    renamed = renamed._replace(device_of_group=tf.cast(renamed.device_of_group, tf.int32))
    np.testing.assert_allclose(
        policy.score(moved, renamed, noise).device_log_prob, scores.device_log_prob, rtol=1e-4
    )


def test_an_untrained_policy_is_unsure(problem, inputs, policy, noise):
    _, scores = policy.sample(inputs, noise, SEED)
    # Features are at most about 2 and Sonnet's weights keep activations near 1, so no group is near certain:
    # half of the uniform entropy is a floor with much room. (The old file's summed log-probability was -0.3.)
    assert float(tf.reduce_mean(scores.group_entropy)) > 0.5 * math.log(6)
    assert float(tf.reduce_max(scores.group_log_prob)) < -0.5 * problem.num_units
    # Starting at 0.9 for a device, log-odds move by at most about 1.4 (see the Placer's tests).
    p = 1 / (1 + math.exp(-(math.log(9) + 1.4)))
    assert float(tf.reduce_mean(scores.device_entropy)) > -(p * math.log(p) + (1 - p) * math.log(1 - p))


def test_unbiased_devices_start_near_even(problem, policy, noise):
    config = dataclasses.replace(CONFIG, start_probability=0.0)
    _, scores = policy.sample(inputs_of(problem, config), noise, SEED)
    p = 1 / (1 + math.exp(-1.4))
    assert float(tf.reduce_mean(scores.device_entropy)) > -(p * math.log(p) + (1 - p) * math.log(1 - p))


def test_the_start_device_is_preferred_about_as_asked(inputs, policy, noise):
    actions, _ = policy.sample(inputs, noise, SEED)
    share = float(tf.reduce_mean(tf.cast(actions.device_of_group == 0, tf.float32)))
    # 36 decisions at 0.9, whose log-odds move by up to about 1.4: at least 0.69 less three deviations.
    assert 0.69 - 3 * math.sqrt(0.69 * 0.31 / 36) < share


def test_reinforce_gradient_against_finite_differences(policy, inputs, noise):
    actions, _ = policy.sample(inputs, noise, SEED)
    generator = np.random.default_rng(0)
    advantage = tf.constant(generator.normal(size=6), tf.float32)

    def loss_of():
        scores = policy.score(inputs, actions, noise)
        devices = reinforce_loss(tf.reshape(scores.device_log_prob, [-1]), advantage, tf.ones(6))
        return devices + reinforce_loss(scores.group_log_prob, tf.constant([0.7, -0.4]), tf.ones(2))

    with tf.GradientTape() as tape:
        loss = loss_of()
    variables = policy.trainable_variables
    gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
    for variable, gradient in zip(variables, gradients, strict=True):
        # Along the gradient itself, the loss changes by |gradient| a unit of length. In float32 a loss of
        # about 10 is off by 1e-6, which over a step of 2e-2 is 1e-4; curvature adds about step^2 of the norm.
        norm = float(tf.norm(gradient))
        if norm < 1e-2:
            continue
        value, step, loss_at = variable.numpy(), 1e-2, {}
        for sign in (1, -1):
            variable.assign(value + sign * step * gradient / norm)
            loss_at[sign] = float(loss_of())
        variable.assign(value)
        assert (loss_at[1] - loss_at[-1]) / (2 * step) == pytest.approx(norm, rel=0.02, abs=5e-4), (
            variable.name
        )
    assert sum(float(tf.norm(g)) >= 1e-2 for g in gradients) >= 5


def test_noise_has_the_amplitude_asked_for(policy, inputs):
    noise = policy.draw_noise(inputs, tf.constant(0.1), SEED)
    for part in noise:
        assert 0.05 < float(tf.reduce_max(tf.abs(part))) <= 0.1
    assert isinstance(noise, Noise)
    assert all(
        float(tf.reduce_max(tf.abs(part))) == 0 for part in policy.draw_noise(inputs, tf.constant(0.0), SEED)
    )


def test_an_untrained_grouper_that_leans_keeps_most_units_where_they_begin(problem):
    config = dataclasses.replace(
        CONFIG, num_groups=3, group_probability=0.8, grouper_sharpness=0.1, groupings=99
    )
    start = on_first(problem, config)
    inputs, policy = hdp_inputs(problem, config, start, seed=5), HdpPolicy(config, seed=5)
    policy.grouper.sharpen(config.grouper_sharpness)
    actions, _ = policy.sample(inputs, policy.draw_noise(inputs, tf.constant(0.0), SEED), SEED)
    stay = (actions.group_of_unit.numpy() == start.groups.group_of_unit).mean()
    # 1400 draws: units with neighbors in other groups at 0.8, the others at 0.8 / (0.8 + 0.02), whose log-odds the
    # network moves by a tenth of what it says.
    assert 0.75 < stay < 0.98
    assert (policy.greedy(inputs).group_of_unit[0].numpy() == start.groups.group_of_unit).all()


def test_several_groups_a_step_and_rows_of_each_are_scored_as_drawn():
    problem = mixed_problem(units=12)
    config = dataclasses.replace(CONFIG, num_groups=7, groups_per_step=3, row_step=0.3, placements=50)
    inputs, policy = inputs_of(problem, config), HdpPolicy(config, seed=0)
    noise = policy.draw_noise(inputs, tf.constant(1.0), SEED)
    actions, scores = policy.sample(inputs, noise, SEED)
    for placement in policy.placements(inputs, actions).numpy():
        problem.check_legal(placement)
    for forced, sampled in zip(policy.score(inputs, actions, noise), scores, strict=True):
        np.testing.assert_allclose(forced, sampled, rtol=1e-4, atol=1e-5)
