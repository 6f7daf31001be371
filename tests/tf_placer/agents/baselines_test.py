"""Moving averages, standardized batches and their best samples, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.losses import (
    ControllerBaselines,
    MovingAverageBaseline,
    TrialAverage,
    TurnBaseline,
    elites,
    standardized_advantage,
)


def advantage(baseline, *rewards):
    """All of the rewards may teach."""
    return baseline.advantage(tf.constant(rewards), tf.ones(len(rewards)))


def test_the_first_batch_is_its_own_baseline():
    baseline = MovingAverageBaseline(decay=0.9, normalize=False)
    np.testing.assert_allclose(advantage(baseline, -1.0, -3.0), [1.0, -1.0])
    assert float(baseline.average[0]) == pytest.approx(-2.0)


def test_later_batches_are_compared_with_the_past():
    baseline = MovingAverageBaseline(decay=0.9, normalize=False)
    advantage(baseline, -2.0)
    # Against -2, not against a mean that has seen this batch already.
    np.testing.assert_allclose(advantage(baseline, -1.0, -1.0), [1.0, 1.0])
    assert float(baseline.average[0]) == pytest.approx(0.9 * -2 + 0.1 * -1)


def test_normalized_advantages_have_the_same_size_on_every_scale():
    rewards = [(-1.0, -3.0), (-2.0, -4.0)]
    small, large = MovingAverageBaseline(0.9, True), MovingAverageBaseline(0.9, True)
    for reward in rewards:
        np.testing.assert_allclose(
            advantage(small, *reward), advantage(large, *(100 * r for r in reward)), rtol=1e-4
        )


def test_equal_rewards_teach_nothing():
    baseline = MovingAverageBaseline(0.9, True)
    for _ in range(3):
        assert np.abs(advantage(baseline, -10.0, -10.0)).max() == 0


def test_what_may_not_teach_does_not_move_the_baseline():
    baseline = MovingAverageBaseline(0.9, False)
    baseline.advantage(tf.constant([-10.0, -10.0]), tf.zeros(2))
    # Nothing has been seen yet, so the first that may teach is its own baseline.
    np.testing.assert_allclose(
        baseline.advantage(tf.constant([-1.0, -10.0]), tf.constant([1.0, 0.0]))[0], 0.0
    )
    assert float(baseline.average[0]) == pytest.approx(-1.0)
    baseline.advantage(tf.constant([-10.0, -10.0]), tf.zeros(2))
    assert float(baseline.average[0]) == pytest.approx(-1.0)


def test_a_batch_is_standardized_by_those_that_may_teach():
    # Of -1 and -3: mean -2, deviation 1.
    reward, weight = tf.constant([-1.0, -3.0, -10.0]), tf.constant([1.0, 1.0, 0.0])
    np.testing.assert_allclose(standardized_advantage(reward, weight), [1.0, -1.0, 0.0])
    np.testing.assert_allclose(standardized_advantage(10 * reward, weight), [1.0, -1.0, 0.0])


def test_a_batch_of_equal_rewards_or_of_none_teaches_nothing():
    for weight in (tf.ones(2), tf.zeros(2)):
        assert standardized_advantage(tf.constant([-10.0, -10.0]), weight).numpy().tolist() == [0, 0]


def test_elites_are_the_best_that_may_teach():
    reward = tf.constant([-2.0, -1.0, -3.0, -0.5, -1.0])
    weight = tf.constant([1.0, 1.0, 1.0, 0.0, 1.0])
    assert elites(reward, weight, 1).numpy().tolist() == [0, 1, 0, 0, 0]  # the first of two that are equal
    assert elites(reward, weight, 3).numpy().tolist() == [1, 1, 0, 0, 1]
    assert elites(reward, weight, 5).numpy().tolist() == [1, 1, 1, 0, 1]


def test_a_trial_average_is_the_mean_of_all_earlier_trials():
    average = TrialAverage()
    # The first are compared with their own mean, 2; the next with it; then there were four, of mean 3.
    np.testing.assert_allclose(average.advantage(tf.constant([1.0, 3.0])), [-1, 1])
    np.testing.assert_allclose(average.advantage(tf.constant([2.0, 6.0])), [0, 4])
    np.testing.assert_allclose(average.advantage(tf.constant([3.0])), [0])
    np.testing.assert_allclose([average.average[0], average.count[0]], [3, 5])


def test_the_first_update_is_its_own_baseline_step_by_step():
    baseline = TurnBaseline(episodes=3, steps=2)
    # Means 2 and 20.
    np.testing.assert_allclose(
        baseline.advantage(tf.constant([[1.0, 10.0], [3.0, 30.0]])), [[-1, -10], [1, 10]]
    )


def test_later_ones_are_compared_with_the_episodes_before():
    baseline = TurnBaseline(episodes=3, steps=2)
    baseline.advantage(tf.constant([[1.0, 10.0], [3.0, 30.0]]))
    # Against (1 + 3) / 2 and (10 + 30) / 2, not against themselves.
    np.testing.assert_allclose(baseline.advantage(tf.constant([[5.0, 0.0], [8.0, 20.0]])), [[3, -20], [6, 0]])
    # Three are remembered: (3 + 5 + 8) / 3 = 16 / 3 and (30 + 0 + 20) / 3 = 50 / 3.
    np.testing.assert_allclose(baseline.advantage(tf.constant([[0.0, 0.0]])), [[-16 / 3, -50 / 3]], rtol=1e-6)
    assert int(baseline.count) == 3


def test_an_update_may_have_more_episodes_than_are_remembered():
    baseline = TurnBaseline(episodes=2, steps=1)
    baseline.advantage(tf.constant([[1.0], [2.0], [4.0]]))
    np.testing.assert_allclose(baseline.advantage(tf.constant([[3.0]])), [[0.0]])  # (2 + 4) / 2


def of_controller(baselines, reward, controller, weight=None):
    weight = np.ones(len(reward)) if weight is None else np.array(weight)
    reward, weight = (tf.constant(one, tf.float32) for one in (reward, weight))
    return baselines.advantage(reward, weight, tf.constant(controller)).numpy()


def test_each_controller_has_its_own():
    baselines = ControllerBaselines(2, 0.5, None)
    np.testing.assert_allclose(
        of_controller(baselines, [-1.0, -3.0], 0), [1, -1]
    )  # the first mean is the baseline
    np.testing.assert_allclose(of_controller(baselines, [-8.0, -10.0], 1), [1, -1])
    np.testing.assert_allclose(of_controller(baselines, [-1.0, -1.0], 0), [1, 1])  # of -2
    np.testing.assert_allclose(baselines.average, [-1.5, -9])  # (-2 - 1) / 2


def test_a_controllers_may_begin_at_the_failing_signal():
    baselines = ControllerBaselines(2, 0.9, -10.0)
    np.testing.assert_allclose(of_controller(baselines, [-1.0, -10.0], 1), [9, 0])
    assert baselines.average.numpy() == pytest.approx([-10, 0.9 * -10 + 0.1 * -5.5])


def test_what_may_not_teach_leaves_a_controllers_alone():
    baselines = ControllerBaselines(1, 0.5, None)
    of_controller(baselines, [-10.0, -10.0], 0, [0, 0])
    np.testing.assert_allclose(of_controller(baselines, [-2.0, -9.0], 0, [1, 0]), [0, -7])
    np.testing.assert_allclose(of_controller(baselines, [-4.0, -9.0], 0, [1, 0]), [-2, -7])
    np.testing.assert_allclose(baselines.average, [-3])


def test_they_are_traced_with_the_controller_as_a_tensor():
    baselines = ControllerBaselines(3, 0.5, 0.0)
    step = tf.function(lambda controller: baselines.advantage(tf.constant([2.0]), tf.ones([1]), controller))
    for controller in (0, 2, 2):
        step(tf.constant(controller))
    np.testing.assert_allclose(baselines.average, [1, 0, 1.5])
    assert step.experimental_get_tracing_count() == 1
