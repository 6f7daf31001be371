"""Losses by hand; REINFORCE also against finite differences and the exact gradient of a bandit."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.losses import cross_entropy_loss, ppo_loss, quantile_loss, reinforce_loss


def test_by_hand():
    loss = reinforce_loss(tf.constant([-1.0, -2.0]), tf.constant([3.0, 5.0]), tf.constant([1.0, 0.0]))
    # -(1 * 3 * -1 + 0 * 5 * -2) / 2
    assert float(loss) == 1.5


def test_only_the_log_probability_is_differentiated():
    log_prob, advantage, weight = tf.constant([-1.0, -2.0]), tf.constant([3.0, 5.0]), tf.constant([1.0, 0.5])
    with tf.GradientTape() as tape:
        tape.watch([log_prob, advantage, weight])
        loss = reinforce_loss(log_prob, advantage, weight)
    gradients = tape.gradient(loss, [log_prob, advantage, weight])
    # d loss / d log p_b = -w_b A_b / B
    np.testing.assert_allclose(gradients[0], [-1.5, -1.25])
    assert gradients[1] is None and gradients[2] is None


def test_gradient_against_finite_differences():
    generator = np.random.default_rng(3)
    inputs = tf.constant(generator.normal(size=[6, 4]))
    actions = generator.integers(0, 3, 6)
    advantage, weight = generator.normal(size=6), np.array([1.0, 1, 0, 1, 1, 0])
    theta = tf.constant(generator.normal(size=[4, 3]))  # float64

    def loss_of(theta):
        log_p = tf.nn.log_softmax(tf.tanh(inputs @ theta))
        return reinforce_loss(tf.gather(log_p, actions, batch_dims=1), advantage, weight)

    with tf.GradientTape() as tape:
        tape.watch(theta)
        loss = loss_of(theta)
    gradient = tape.gradient(loss, theta).numpy()
    step = 1e-6
    for position in np.ndindex(4, 3):
        bump = np.zeros([4, 3])
        bump[position] = step
        numeric = float(loss_of(theta + bump) - loss_of(theta - bump)) / (2 * step)
        # Central differences err by O(step^2) and by 1e-16 / step = 1e-10 of rounding.
        assert gradient[position] == pytest.approx(numeric, abs=1e-8), position


@pytest.mark.parametrize("baseline", [0.0, -1.5])
def test_the_expected_gradient_of_a_bandit_is_exact_whatever_the_baseline(baseline):
    # Device 1 with p = sigmoid(theta); rewards -2 and -1. dE[R] / dtheta = p (1 - p) (R_1 - R_0).
    theta = tf.constant(0.3, tf.float64)
    reward = np.array([-2.0, -1.0])
    p = 1 / (1 + np.exp(-0.3))
    expected = 0.0
    for action, probability in ((0, 1 - p), (1, p)):
        with tf.GradientTape() as tape:
            tape.watch(theta)
            log_prob = tf.math.log_sigmoid(theta if action else -theta)[tf.newaxis]
            loss = reinforce_loss(log_prob, reward[[action]] - baseline, np.ones(1))
        expected += probability * float(tape.gradient(loss, theta))
    assert expected == pytest.approx(-p * (1 - p) * (reward[1] - reward[0]), rel=1e-12)


def test_ppo_by_hand():
    # Ratios 2, 2, 1/2, 1/2 with clip 0.2: min(2, 1.2) = 1.2; min(-2, -1.2) = -2; min(0.5, 0.8); min(-0.5, -0.8).
    log_prob = tf.math.log([0.8, 0.8, 0.2, 0.2])
    advantage = tf.constant([1.0, -1.0, 1.0, -1.0])
    loss = ppo_loss(log_prob, tf.math.log([0.4] * 4), advantage, tf.ones(4))
    assert float(loss) == pytest.approx(-(1.2 - 2.0 + 0.5 - 0.8) / 4, rel=1e-6)


def test_what_has_left_the_clip_teaches_no_more():
    log_prob = tf.math.log([0.8, 0.8, 0.2, 0.2])
    with tf.GradientTape() as tape:
        tape.watch(log_prob)
        loss = ppo_loss(log_prob, tf.math.log([0.4] * 4), tf.constant([1.0, -1.0, 1.0, -1.0]), tf.ones(4))
    # d ratio / d log p = ratio; where the clipped term is the smaller one, 0.
    np.testing.assert_allclose(tape.gradient(loss, log_prob), [0.0, 2 / 4, -0.5 / 4, 0.0], rtol=1e-6)


def test_the_first_epoch_of_ppo_is_reinforce():
    log_prob = tf.constant([[-1.0, -0.2], [-2.0, -0.3]])
    advantage, weight = tf.constant([3.0, -5.0]), tf.constant([1.0, 0.5])
    gradients = []
    for loss_of in (
        lambda: ppo_loss(log_prob, log_prob, advantage[:, tf.newaxis], weight[:, tf.newaxis]),
        lambda: reinforce_loss(tf.reduce_sum(log_prob, axis=1), advantage, weight),
    ):
        with tf.GradientTape() as tape:
            tape.watch(log_prob)
            loss = loss_of()
        gradients.append(tape.gradient(loss, log_prob))
    np.testing.assert_allclose(*gradients)


def test_cross_entropy_of_the_elites_by_hand():
    # (1 + 3) / 2
    assert float(cross_entropy_loss(tf.constant([-1.0, -2.0, -3.0]), tf.constant([1.0, 0.0, 1.0]))) == 2.0
    assert float(cross_entropy_loss(tf.constant([-1.0]), tf.constant([0.0]))) == 0.0


def test_the_cross_entropy_of_a_table_is_least_at_the_elites_frequencies():
    # Device 1 in three of four elites: the gradient in its logit is p - 3/4.
    theta = tf.constant(0.3)
    elite, chosen = tf.constant([1.0, 1.0, 1.0, 1.0, 0.0]), [1, 1, 0, 1, 0]
    with tf.GradientTape() as tape:
        tape.watch(theta)
        loss = cross_entropy_loss(
            tf.stack([tf.math.log_sigmoid(theta if one else -theta) for one in chosen]), elite
        )
    assert float(tape.gradient(loss, theta)) == pytest.approx(1 / (1 + np.exp(-0.3)) - 0.75, abs=1e-6)


def test_the_quantile_loss_by_hand():
    # (0.5 * 1 + 2 * 3) / 2
    assert float(quantile_loss(tf.constant([-1.0, -2.0, -3.0]), tf.constant([0.5, 0.0, 2.0]))) == 3.25
    assert float(quantile_loss(tf.constant([-1.0]), tf.constant([0.0]))) == 0.0
