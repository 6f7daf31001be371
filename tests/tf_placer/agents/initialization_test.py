"""Initial weights come from our seed and from nowhere else."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.graph_inputs import draw_weights


def drawn(seed):
    layer = snt.nets.MLP([400, 300])
    layer(tf.zeros([1, 100]))
    draw_weights(layer, seed)
    return {v.name: v.numpy() for v in layer.trainable_variables}


def test_weights_are_a_matter_of_the_seed_alone():
    tf.random.set_seed(1)
    first = drawn(7)
    tf.random.set_seed(2)
    again, other = drawn(7), drawn(8)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert (other[name] != first[name]).any() or "/b:" in name


def test_deviation_is_one_over_the_root_of_the_fan_in_and_biases_stay():
    for name, value in drawn(3).items():
        if value.ndim == 1:
            assert (value == 0).all(), name
            continue
        # Truncation at two deviations leaves 0.88 of the deviation (sqrt(1 - 4 phi(2) / (2 Phi(2) - 1))).
        deviation = value.std() * np.sqrt(value.shape[0])
        assert abs(deviation - 0.88) < 0.02, (name, deviation)
    matrices = [v for v in drawn(3).values() if v.ndim == 2]
    assert abs(np.corrcoef(matrices[0].ravel()[:30000], matrices[1].ravel()[:30000])[0, 1]) < 0.05


def test_the_fan_in_of_a_convolution_is_its_whole_window():
    layer = snt.Conv2D(200, 5)
    layer(tf.zeros([1, 8, 8, 16]))
    layer.w.assign(tf.zeros_like(layer.w))
    draw_weights(layer, 0)
    # 5 * 5 * 16 inputs; truncated as above.
    assert abs(layer.w.numpy().std() * np.sqrt(5 * 5 * 16) - 0.88) < 0.02


def test_what_has_no_fan_in_is_refused():
    class Scaled(snt.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable(1.0, name="scale")

    with pytest.raises(ValueError, match=r"weight '.*scale:0' is a number without dimensions"):
        draw_weights(Scaled(), 0)
