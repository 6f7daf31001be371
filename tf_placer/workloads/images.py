"""Synthetic labelled images."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def image_batch(batch: int, image_size: int, classes: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns float32 [batch, image_size, image_size, 3] in [0, 1) and int32 labels [batch]."""
    random = np.random.default_rng(seed)
    images = random.random((batch, image_size, image_size, 3), np.float32)
    labels = random.integers(classes, size=batch, dtype=np.int32)
    return tf.constant(images), tf.constant(labels)
