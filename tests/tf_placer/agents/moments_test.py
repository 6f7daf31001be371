"""Moments that are made early change nothing."""

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.moments import make_moments


def test_moments_that_are_there_from_the_start_leave_no_trace():
    ready, fresh = tf.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    with_moments, without = snt.optimizers.Adam(0.1), snt.optimizers.Adam(0.1)
    make_moments(with_moments, (ready,))
    assert len(with_moments.m) == 1 and ready.numpy().tolist() == [1.0, -2.0]
    for optimizer, variable in ((with_moments, ready), (without, fresh)):
        for gradient in (tf.constant([0.5, -1.0]), tf.constant([0.1, 3.0])):
            optimizer.apply([gradient], [variable])
    np.testing.assert_array_equal(ready, fresh)
