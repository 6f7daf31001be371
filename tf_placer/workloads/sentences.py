"""Synthetic sentences for language models."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def sentence_batch(batch: int, length: int, vocabulary: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns int32 [batch, length] tokens and the tokens that follow them."""
    tokens = np.random.default_rng(seed).integers(vocabulary, size=(batch, length + 1), dtype=np.int32)
    return tf.constant(tokens[:, :-1]), tf.constant(tokens[:, 1:])
