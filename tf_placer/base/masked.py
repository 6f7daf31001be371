"""Masked categorical distributions, as pure functions of logits."""

from __future__ import annotations

import tensorflow as tf

# The logit of a choice that is not there. Its probability is exactly 0 in float32, whatever noise is added, as with
# -inf; and 0 times it is 0 in an entropy and in every gradient, where -inf gives NaN.
ILLEGAL = -1e9
_LEAST = 1e-30  # probability of a legal choice: its logarithm is a number


def masked(logits: tf.Tensor, legal: tf.Tensor) -> tf.Tensor:
    """Logits [..., C] of a distribution over the choices that are ``legal`` [..., C] alone; at least one must be."""
    return tf.where(legal, logits, ILLEGAL)


def gumbel(shape: list[int], seed: tf.Tensor) -> tf.Tensor:
    """Noise whose sum with logits is largest at choice c as often as softmax says."""
    # Here, as most of what imports this module draws nothing, and the import compares versions by distutils, which
    # Python 3.12 and later have from setuptools alone.
    import tensorflow_probability as tfp

    return tfp.distributions.Gumbel(0.0, 1.0).sample(shape, seed=seed)


def draw(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """[...] int32 choices, one draw from each distribution [..., C]."""
    return largest(logits + gumbel(logits.shape, seed))


def draw_each(logits: tf.Tensor, count: int, seed: tf.Tensor) -> tf.Tensor:
    """[count, U] int32 choices, so many draws from each distribution [U, C]: cheaper than noise for each of them."""
    below = tf.cumsum(tf.nn.softmax(logits), axis=1)
    # A little less than what rounding may have left of the sum.
    uniform = (1.0 - 1e-6) * tf.random.stateless_uniform([logits.shape[0], count], seed) * below[:, -1:]
    return tf.transpose(tf.searchsorted(below, uniform, side="right"))


def largest(logits: tf.Tensor) -> tf.Tensor:
    """[...] int32 the choice of the largest logit."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def log_prob(logits: tf.Tensor, choices: tf.Tensor) -> tf.Tensor:
    """[...] log-probability of ``choices`` [...] under logits [..., C]; about ``ILLEGAL`` of illegal ones."""
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=choices, logits=logits)


def scored(logits: tf.Tensor, choices: tf.Tensor) -> tf.Tensor:
    """[B, ...] log-probability of B ``choices`` [B, ...] each under the same logits [..., C]."""
    shape = tf.concat([tf.shape(choices), tf.shape(logits)[-1:]], axis=0)
    return log_prob(tf.broadcast_to(logits, shape), choices)


def mixed(logits: tf.Tensor, legal: tf.Tensor, share: float) -> tf.Tensor:
    """Logits of (1 - e) p + e / (number of legal choices), e the ``share``, p of masked ``logits`` [..., C]."""
    count = tf.reduce_sum(tf.cast(legal, tf.float32), axis=-1, keepdims=True)
    uniform = tf.cast(legal, tf.float32) / count
    probability = (1.0 - share) * tf.nn.softmax(logits) + share * uniform
    return masked(tf.math.log(tf.where(legal, tf.maximum(probability, _LEAST), 1.0)), legal)


def entropy(logits: tf.Tensor) -> tf.Tensor:
    """[...] -sum_c p_c log p_c of logits [..., C], in nats; 0 where one choice is left."""
    log_p = tf.nn.log_softmax(logits)
    return -tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1)


def divergence(logits: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """[...] sum_c p_c log(p_c / q_c) in nats, p of logits [..., C] and q of ``other``, both over the same choices."""
    log_p, log_q = tf.nn.log_softmax(logits), tf.nn.log_softmax(other)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)
