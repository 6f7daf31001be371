"""Changes of the best plan so far, and how another takes its place."""

import numpy as np
import tensorflow as tf

from tf_placer.agents.hdp import MOST_CHANGES, Incumbent

LEGAL = np.ones((20, 3), bool)
LEGAL[1] = [True, False, True]


def test_one_to_eight_groups_change_to_other_legal_devices():
    incumbent = Incumbent(np.zeros(5, np.int32), np.zeros(20, np.int32))
    changed = incumbent.changed(tf.constant(LEGAL), 4000, tf.constant([1, 2])).numpy()
    numbers = (changed != 0).sum(axis=1)
    assert set(numbers) == set(range(1, MOST_CHANGES + 1))
    # Each number as often: 500 of 4000, five deviations of sqrt(500 * 7 / 8).
    assert np.abs(np.bincount(numbers)[1:] - 500).max() < 105
    assert set(changed[:, 1]) == {0, 2} and set(changed[:, 0]) == {0, 1, 2}


def test_where_nothing_can_change_nothing_does():
    incumbent = Incumbent(np.zeros(2, np.int32), np.zeros(1, np.int32))
    assert incumbent.changed(tf.ones([1, 1], tf.bool), 3, tf.constant([1, 2])).numpy().tolist() == [[0]] * 3


def test_what_is_faster_takes_its_place():
    incumbent = Incumbent(np.zeros(2, np.int32), np.zeros(1, np.int32))
    incumbent.take([tf.constant([1, 1]), tf.constant([3])], tf.constant(2.0))
    assert incumbent.runtime_s == 2.0
    assert incumbent.group_of_unit.numpy().tolist() == [1, 1] and incumbent.device_of_group.numpy() == [3]
    for runtime_s in (2.0, np.inf):
        incumbent.take([tf.constant([0, 1]), tf.constant([1])], tf.constant(runtime_s))
        assert incumbent.device_of_group.numpy() == [3] and incumbent.runtime_s == 2.0, "not faster"
