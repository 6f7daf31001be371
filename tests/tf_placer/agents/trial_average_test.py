"""Each graph's trials are compared with the earlier ones of the same graph."""

import numpy as np
import tensorflow as tf

from tf_placer.agents.trial_average import TrialAverage


def test_it_is_the_mean_of_all_earlier_trials():
    average = TrialAverage()
    # The first are compared with their own mean, 2; the next with it; then there were four, of mean 3.
    np.testing.assert_allclose(average.advantage(tf.constant([1.0, 3.0])), [-1, 1])
    np.testing.assert_allclose(average.advantage(tf.constant([2.0, 6.0])), [0, 4])
    np.testing.assert_allclose(average.advantage(tf.constant([3.0])), [0])
    np.testing.assert_allclose([average.average[0], average.count[0]], [3, 5])


def test_each_problem_has_its_own():
    average = TrialAverage(problems=2)
    average.advantage(tf.constant([1.0, 3.0]), problem=0)
    np.testing.assert_allclose(average.advantage(tf.constant([-7.0, -9.0]), problem=1), [1, -1])
    np.testing.assert_allclose(average.average, [2, -8])
