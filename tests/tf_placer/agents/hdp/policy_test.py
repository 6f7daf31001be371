"""The policy scores exactly the placements that are executed."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.policy import Actions, HdpPolicy, Noise
from tf_placer.agents.hdp.start import HdpStart
from tf_placer.agents.losses import reinforce_loss

CONFIG = HdpConfig(
    num_groups=6, placer_hidden=8, grouper_hidden=8, landmarks=4, imitation_steps=0, groupings=2, placements=3
)
SEED = tf.constant([11, 12])


@pytest.fixture(scope="module")
def problem():
    return branches_problem(3, 4)


@pytest.fixture(scope="module")
def policy(problem):
    return HdpPolicy(problem, CONFIG, HdpStart.on_device(problem, CONFIG, 0), seed=5)


@pytest.fixture(scope="module")
def noise(policy):
    return policy.draw_noise(tf.constant(0.1), tf.constant([1, 2]))


def test_m_groupings_of_k_placements_each(policy, noise, problem):
    actions, scores = policy.sample(noise, SEED)
    assert actions.group_of_unit.shape == (2, problem.num_units)
    assert actions.device_of_group.shape == (2, 3, 6)
    assert scores.group_log_prob.shape == (2,) and scores.device_log_prob.shape == (2, 3)
    assert policy.placements(actions).shape == (6, problem.num_units)


def test_teacher_forcing_gives_the_log_probabilities_of_the_sample(policy, noise):
    for seed in range(5):
        actions, scores = policy.sample(noise, tf.constant([seed, 0]))
        again = policy.score(actions, noise)
        for name, forced, sampled in zip(scores._fields, again, scores, strict=True):
            np.testing.assert_allclose(forced, sampled, rtol=1e-5, atol=1e-6, err_msg=f"{name}, seed {seed}")


def test_other_actions_have_other_log_probabilities(policy, noise):
    actions, scores = policy.sample(noise, SEED)
    devices = policy.score(actions._replace(device_of_group=1 - actions.device_of_group), noise)
    assert (np.abs(devices.device_log_prob - scores.device_log_prob) > 1e-4).all()
    np.testing.assert_allclose(devices.group_log_prob, scores.group_log_prob, rtol=1e-5)
    groups = policy.score(actions._replace(group_of_unit=(actions.group_of_unit + 1) % 6), noise)
    assert (np.abs(groups.group_log_prob - scores.group_log_prob) > 1e-4).all()


def test_grouper_log_probability_is_that_of_its_own_logits(policy, noise):
    actions, scores = policy.sample(noise, SEED)
    log_p = tf.nn.log_softmax(policy.group_logits() + noise.group).numpy()
    for m in range(2):
        chosen = log_p[m][np.arange(policy.num_units), actions.group_of_unit[m]]
        assert float(scores.group_log_prob[m]) == pytest.approx(chosen.sum(), rel=1e-5)


def test_a_unit_goes_where_its_group_goes(policy, noise):
    actions, _ = policy.sample(noise, SEED)
    placements = policy.placements(actions).numpy().reshape(2, 3, -1)
    for m in range(2):
        for k in range(3):
            expected = actions.device_of_group.numpy()[m, k][actions.group_of_unit.numpy()[m]]
            np.testing.assert_array_equal(placements[m, k], expected)


def test_every_placement_is_legal():
    allowed = np.array([[True, True, True], [False, True, True], [False, False, True], [True, False, False]])
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 100, cluster=small_cluster(3), allowed=allowed)
    config = dataclasses.replace(CONFIG, placements=16)
    policy = HdpPolicy(problem, config, HdpStart.on_device(problem, config, 0), seed=0)
    actions, _ = policy.sample(policy.draw_noise(tf.constant(3.0), SEED), SEED)
    for placement in policy.placements(actions).numpy():
        problem.check_legal(placement)
    everywhere = Actions(tf.constant([[0, 1, 2, 3]]), tf.constant([[[d] * 4 for d in range(3)]]))
    # What is allowed is done; else the first legal device.
    assert policy.placements(everywhere).numpy().tolist() == [[0, 1, 2, 0], [1, 1, 2, 0], [2, 2, 2, 0]]


def test_draws_are_a_matter_of_the_seed(problem, policy, noise):
    same = HdpPolicy(problem, CONFIG, HdpStart.on_device(problem, CONFIG, 0), seed=5)
    other = HdpPolicy(problem, CONFIG, HdpStart.on_device(problem, CONFIG, 0), seed=6)
    first = policy.sample(noise, SEED)[0]
    for a, b in zip(first, same.sample(noise, SEED)[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).numpy().any() for a, b in zip(first, other.sample(noise, SEED)[0], strict=True))
    assert any((a != b).numpy().any() for a, b in zip(first, policy.sample(noise, SEED + 1)[0], strict=True))


def test_an_untrained_policy_is_unsure(problem, policy, noise):
    _, scores = policy.sample(noise, SEED)
    # Features are at most about 2 and Sonnet's weights keep activations near 1, so no group is near certain:
    # half of the uniform entropy is a floor with much room. (The old file's summed log-probability was -0.3.)
    assert float(tf.reduce_mean(scores.group_entropy)) > 0.5 * math.log(6)
    assert float(tf.reduce_max(scores.group_log_prob)) < -0.5 * problem.num_units
    # Starting at 0.9 for a device, log-odds move by at most about 1.4 (see the Placer's tests).
    p = 1 / (1 + math.exp(-(math.log(9) + 1.4)))
    assert float(tf.reduce_mean(scores.device_entropy)) > -(p * math.log(p) + (1 - p) * math.log(1 - p))


def test_unbiased_devices_start_near_even(problem, noise):
    config = dataclasses.replace(CONFIG, start_probability=0.0)
    policy = HdpPolicy(problem, config, HdpStart.on_device(problem, config, 0), seed=5)
    _, scores = policy.sample(noise, SEED)
    p = 1 / (1 + math.exp(-1.4))
    assert float(tf.reduce_mean(scores.device_entropy)) > -(p * math.log(p) + (1 - p) * math.log(1 - p))


def test_imitation_puts_a_thick_pair_in_one_group(problem):
    config = dataclasses.replace(CONFIG, num_groups=3, imitation_steps=200)
    group = (
        HdpPolicy(problem, config, HdpStart.on_device(problem, config, 0), seed=5)
        .greedy()
        .group_of_unit[0]
        .numpy()
    )
    # Unit 1 + i * 3 + b is op i of branch b; three groups for three branches.
    branches = [{int(g) for g in group[1 + b : 13 : 3]} for b in range(3)]
    assert all(len(b) == 1 for b in branches) and len(set.union(*branches)) == 3


def test_reinforce_gradient_against_finite_differences(policy, noise):
    actions, _ = policy.sample(noise, SEED)
    generator = np.random.default_rng(0)
    advantage = tf.constant(generator.normal(size=6), tf.float32)

    def loss_of():
        scores = policy.score(actions, noise)
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


def test_noise_has_the_amplitude_asked_for(policy):
    noise = policy.draw_noise(tf.constant(0.1), SEED)
    for part in noise:
        assert 0.05 < float(tf.reduce_max(tf.abs(part))) <= 0.1
    assert isinstance(noise, Noise)
    assert all(float(tf.reduce_max(tf.abs(part))) == 0 for part in policy.draw_noise(tf.constant(0.0), SEED))
