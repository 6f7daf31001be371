"""What is remembered are the last inputs of the training steps before."""

import numpy as np

from tf_placer.workloads.segment_memory import SegmentMemory


def test_it_gives_what_came_before():
    memory = SegmentMemory(3)
    first, second = (np.arange(4, dtype=np.float32).reshape(1, 2, 2) + shift for shift in (1, 10))
    np.testing.assert_array_equal(memory(first, training=True), np.zeros([1, 3, 2]))
    held = np.array([[[0, 0], [1, 2], [3, 4]]], np.float32)
    np.testing.assert_array_equal(memory(second, training=False), held)
    np.testing.assert_array_equal(memory(second, training=True), held)
    np.testing.assert_array_equal(memory(first), [[[3, 4], [10, 11], [12, 13]]])
    assert memory.trainable_variables == []


def test_a_segment_longer_than_the_memory():
    memory = SegmentMemory(1)
    memory(np.array([[[1.0], [2.0]]], np.float32), training=True)
    np.testing.assert_array_equal(memory(np.zeros([1, 2, 1], np.float32)), [[[2.0]]])
