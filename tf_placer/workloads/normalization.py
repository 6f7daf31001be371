"""Batch normalization by TensorFlow's fused kernels, as the programs of the placement papers ran it.

Keras 3 computes it by a dozen element-wise ops and reductions, which makes a step of ResNet-50 a third longer on GPUs.
TensorFlow-Slim and the benchmark programs of 2016 to 2020 used ``FusedBatchNorm``: one kernel forward, one backward.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

_IMAGES = 4  # dimensions that the kernel takes: batch, rows, columns, channels


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras' layer with the same weights, names and results to rounding, of images [batch, rows, columns, channels].

    The moving variance is that of the kernel, which divides by one less than the number of values (Bessel).
    """

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None) -> Any:
        """Returns ``inputs`` normalized; in training also moves the means and variances."""
        if mask is not None or len(inputs.shape) != _IMAGES or self.axis not in (-1, _IMAGES - 1):
            raise ValueError(
                f"the fused kernel takes channels-last images without a mask, not {inputs.shape}"
            )
        is_training = bool(training and self.trainable)
        channels = inputs.shape[-1]
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            inputs,
            self.gamma if self.scale else tf.ones([channels]),
            self.beta if self.center else tf.zeros([channels]),
            mean=None if is_training else self.moving_mean,
            variance=None if is_training else self.moving_variance,
            epsilon=self.epsilon,
            is_training=is_training,
        )
        if is_training:
            for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
                moving.assign(moving * self.momentum + value * (1 - self.momentum))
        return y


def with_fused_batch_normalization(model: keras.Model) -> keras.Model:
    """Returns a model of new layers of the same names, whose batch normalizations are fused."""

    def clone(layer: keras.layers.Layer) -> keras.layers.Layer:
        made = FusedBatchNormalization if type(layer) is keras.layers.BatchNormalization else type(layer)
        return made.from_config(layer.get_config())

    return keras.models.clone_model(model, clone_function=clone)
