"""Convolutional workloads: fused kernels are right, and wrong depths are told."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.workloads.convolutional import FusedBatchNormalization, resnet, with_fused_batch_normalization


@pytest.mark.parametrize("depth", [34, "50", None])
def test_another_depth_is_told(depth):
    with pytest.raises(InputError, match=r"depth is .*; give 50, 101 or 152"):
        resnet(depth)


@pytest.mark.parametrize("settings", [{}, {"scale": False}, {"center": False}, {"momentum": 0.5}])
@pytest.mark.parametrize("training", [True, False])
def test_results_and_moving_averages_are_those_of_keras(settings, training):
    x = tf.random.stateless_normal([16, 5, 5, 3], [0, 1], mean=1.0, stddev=3.0)
    ours, theirs = FusedBatchNormalization(**settings), keras.layers.BatchNormalization(**settings)
    np.testing.assert_allclose(ours(x, training=training), theirs(x, training=training), atol=2e-5)
    assert [one.shape for one in ours.weights] == [one.shape for one in theirs.weights]
    for one, other in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=3e-3)  # of 400 values: Bessel's 400 / 399


def test_a_step_has_one_kernel_each_way():
    layer = FusedBatchNormalization()
    layer.build((2, 4, 4, 3))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, training=True) ** 2)
        return tape.gradient(loss, x)

    types = [op.type for op in step.get_concrete_function(tf.zeros([2, 4, 4, 3])).graph.get_operations()]
    assert types.count("FusedBatchNormV3") == types.count("FusedBatchNormGradV3") == 1
    assert "Rsqrt" not in types


def test_only_normalizations_of_a_model_change():
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization(name="norm")]
    )
    fused = with_fused_batch_normalization(model)
    assert [type(one) for one in fused.layers] == [layers.Conv2D, FusedBatchNormalization]
    assert [one.name for one in fused.layers] == ["conv", "norm"]
    assert fused.count_params() == model.count_params()


def test_what_is_no_image_is_refused():
    with pytest.raises(ValueError, match="channels-last images"):
        FusedBatchNormalization()(tf.zeros([2, 3]))
