"""Baselines of controllers, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.colocrl.controllers import ControllerBaselines


def advantage(baselines, reward, controller, weight=None):
    weight = np.ones(len(reward)) if weight is None else np.array(weight)
    reward, weight = (tf.constant(one, tf.float32) for one in (reward, weight))
    return baselines.advantage(reward, weight, tf.constant(controller)).numpy()


def test_each_controller_has_its_own():
    baselines = ControllerBaselines(2, 0.5, None)
    np.testing.assert_allclose(
        advantage(baselines, [-1.0, -3.0], 0), [1, -1]
    )  # the first mean is the baseline
    np.testing.assert_allclose(advantage(baselines, [-8.0, -10.0], 1), [1, -1])
    np.testing.assert_allclose(advantage(baselines, [-1.0, -1.0], 0), [1, 1])  # of -2
    np.testing.assert_allclose(baselines.average, [-1.5, -9])  # (-2 - 1) / 2


def test_it_may_begin_at_the_failing_signal():
    baselines = ControllerBaselines(2, 0.9, -10.0)
    np.testing.assert_allclose(advantage(baselines, [-1.0, -10.0], 1), [9, 0])
    assert baselines.average.numpy() == pytest.approx([-10, 0.9 * -10 + 0.1 * -5.5])


def test_what_may_not_teach_leaves_it_alone():
    baselines = ControllerBaselines(1, 0.5, None)
    advantage(baselines, [-10.0, -10.0], 0, [0, 0])
    np.testing.assert_allclose(advantage(baselines, [-2.0, -9.0], 0, [1, 0]), [0, -7])
    np.testing.assert_allclose(advantage(baselines, [-4.0, -9.0], 0, [1, 0]), [-2, -7])
    np.testing.assert_allclose(baselines.average, [-3])


def test_it_is_traced_with_the_controller_as_a_tensor():
    baselines = ControllerBaselines(3, 0.5, 0.0)
    step = tf.function(lambda controller: baselines.advantage(tf.constant([2.0]), tf.ones([1]), controller))
    for controller in (0, 2, 2):
        step(tf.constant(controller))
    np.testing.assert_allclose(baselines.average, [1, 0, 1.5])
    assert step.experimental_get_tracing_count() == 1
