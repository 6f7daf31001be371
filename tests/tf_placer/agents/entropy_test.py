"""The entropy bonus is steered towards its target."""

import math

import pytest
import tensorflow as tf

from tf_placer.agents.losses import MAX_WEIGHT, MIN_WEIGHT, EntropySteering


def test_weight_by_hand():
    steering = EntropySteering(rate=0.1)
    # Ten times the target counts as twice: error 1, so the weight becomes exp(-0.1).
    bonus = steering.bonus(tf.constant(4.0), tf.constant(0.4))
    assert float(steering.weight) == pytest.approx(math.exp(-0.1))
    assert float(bonus) == pytest.approx(4.0 * math.exp(-0.1))
    # Half of the target: error -0.5.
    steering.bonus(tf.constant(0.2), tf.constant(0.4))
    assert float(steering.weight) == pytest.approx(math.exp(-0.1 + 0.05))


def test_on_target_the_weight_stays_and_it_never_runs_away():
    steering = EntropySteering(rate=5.0)
    steering.bonus(tf.constant(0.3), tf.constant(0.3))
    assert float(steering.weight) == 1.0
    for entropy, bound in ((0.0, MAX_WEIGHT), (9.0, MIN_WEIGHT)):
        for _ in range(10):
            steering.bonus(tf.constant(entropy), tf.constant(0.3))
        assert float(steering.weight) == pytest.approx(bound)


def test_the_bonus_teaches_the_entropy_with_the_weight():
    steering = EntropySteering(rate=0.0)
    entropy = tf.Variable(0.2)
    with tf.GradientTape() as tape:
        bonus = 3.0 * steering.bonus(entropy, tf.constant(0.4))
    assert float(tape.gradient(bonus, entropy)) == pytest.approx(3.0)
