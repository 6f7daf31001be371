"""Convolutional workloads: their layers are those of the papers, their twins train, fused kernels are right."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.workloads import twins
from tf_placer.base.arguments import InputError
from tf_placer.workloads.convolutional import (
    AMOEBANET,
    NASNET,
    RESNET,
    WAVENET,
    FusedBatchNormalization,
    resnet,
    with_fused_batch_normalization,
)

NAME = "resnet_152_small"


def test_rows():
    twins.check_rows(RESNET, "resnet_152")


@pytest.mark.slow
def test_the_twin_trains():
    item = twins.check_training(RESNET, NAME, steps=8)  # of 152 layers the first few steps make it worse
    # 1 + 16 blocks x 3 + 4 shortcuts; each has a gradient for its weights.
    assert item.index.op_types.count("Conv2D") == 53
    assert item.index.op_types.count("Conv2DBackpropFilter") == 53


@pytest.mark.slow
def test_the_forward_pass_has_the_same_layers():
    assert twins.check_forward(RESNET, NAME).index.op_types.count("Conv2D") == 53


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


def test_rows_of_amoebanet():
    twins.check_rows(AMOEBANET, "amoebanet")


@pytest.mark.slow
def test_the_twin_of_amoebanet_trains():
    item = twins.check_training(AMOEBANET, "amoebanet_small")
    # A separable operation has two depthwise convolutions. 3 normal cells of 4 and 4 reductions of 4 operations.
    assert item.index.op_types.count("DepthwiseConv2dNative") == 2 * (3 * 4 + 4 * 4)


@pytest.mark.slow
def test_the_forward_pass_of_amoebanet_has_the_same_cells():
    # Four pools of 3 by 3 in a reduction and two in a normal cell are maxima or means; one maximum a normal cell,
    # three a reduction.
    assert twins.check_forward(AMOEBANET, "amoebanet_small").index.op_types.count("MaxPool") == 3 * 1 + 4 * 3


def test_rows_of_nasnet():
    twins.check_rows(NASNET, "nasnet")


@pytest.mark.slow
def test_the_twin_of_nasnet_trains():
    item = twins.check_training(NASNET, "nasnet_small")
    # A separable operation has two depthwise convolutions. 3 normal cells of 5 and 4 reductions of 5 operations.
    assert item.index.op_types.count("DepthwiseConv2dNative") == 2 * (3 * 5 + 4 * 5)


@pytest.mark.slow
def test_the_forward_pass_of_nasnet_has_the_same_cells():
    assert twins.check_forward(NASNET, "nasnet_small").index.op_types.count("AvgPool") > 0


def test_rows_of_wavenet():
    twins.check_rows(WAVENET, "wavenet_2x18", "wavenet_4x36")


@pytest.mark.slow
def test_the_twin_of_wavenet_trains():
    item = twins.check_training(WAVENET, "wavenet_2x18_small")
    # Filter, gate, residual and skip of 2 x 4 layers, one before and two after; nothing reads the last residual.
    forward = [op for op in item.index.names if op.endswith("/convolution")]
    assert len(forward) == 4 * 2 * 4 + 3 - 1


def test_the_forward_pass_of_more_stacks():
    item = twins.check_forward(WAVENET, "wavenet_4x36_small")
    assert item.index.op_types.count("Tanh") == item.index.op_types.count("Sigmoid") == 4 * 4
