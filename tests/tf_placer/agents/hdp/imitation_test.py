"""The Grouper can be fitted to a partition."""

import numpy as np
import tensorflow as tf

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.policy import imitate_partition


def test_the_fitted_logits_choose_the_partition():
    partition = np.array([2, 0, 1, 1, 2], np.int32)
    logits = tf.Variable(tf.zeros([5, 3]))
    imitate_partition(
        lambda: 1.0 * logits, [logits], partition, HdpConfig(imitation_steps=100, imitation_rate=0.1)
    )
    np.testing.assert_array_equal(tf.argmax(logits, axis=1), partition)
    assert float(tf.reduce_min(tf.reduce_max(tf.nn.softmax(logits), axis=1))) > 0.9
