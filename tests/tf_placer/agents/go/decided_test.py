"""A pass sees where each node is, where its neighbors are, and what each device holds."""

import numpy as np
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import INPUTS
from tf_placer.agents.go.policy import DECIDED_WIDTH, decided


def test_neighbors_are_where_they_are():
    seen = decided(INPUTS, tf.constant([[0, 1, 0]]))
    np.testing.assert_array_equal(seen.here[0], [[1, 0], [0, 1], [1, 0]])
    np.testing.assert_allclose(seen.reads[0], [[0, 0], [1, 0], [0.1, 0.9]], atol=1e-4)
    np.testing.assert_allclose(seen.gives[0], [[0.25, 0.75], [1, 0], [0, 0]], atol=1e-4)


def test_a_device_holds_what_others_have_there():
    of_devices = decided(INPUTS, tf.constant([[0, 1, 0], [1, 1, 1]])).of_devices(INPUTS).numpy()
    assert of_devices.shape == (2, 3, 2, DECIDED_WIDTH)
    # Of node 0: node 2 is there too, with 0.6 of the work; node 1 is on the other device.
    np.testing.assert_allclose(of_devices[0, 0, :, 3], [0.6, 0.3], rtol=1e-6)
    # With all on device 1, where node 2 takes 6: of each the other two.
    np.testing.assert_allclose(of_devices[1, :, 1, 3], [6.3, 6.1, 0.4], rtol=1e-5)
    np.testing.assert_allclose(of_devices[1, :, 0, 3], 0, atol=1e-6)
    np.testing.assert_array_equal(of_devices[1, :, :, 5], INPUTS.load[:, :, 0])
    np.testing.assert_array_equal(of_devices[0, :, :, 7], INPUTS.slowness)


def test_nothing_is_seen_of_what_is_not_decided():
    seen = decided(INPUTS, tf.constant([[-1, 1, -1]]))
    assert seen.here[0, 0].numpy().tolist() == [0, 0]
    np.testing.assert_allclose(seen.reads[0], [[0, 0], [0, 0], [0, 0.9]], atol=1e-4)
    np.testing.assert_allclose(seen.of_devices(INPUTS)[0, 2, :, 3], [0, 0.3], rtol=1e-6)
