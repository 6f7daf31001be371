"""The one place where a time becomes a reward, and what follows from the rewards of an episode."""

from __future__ import annotations

import tensorflow as tf


def square_root_reward(
    runtime_s: tf.Tensor, valid: tf.Tensor, reference_s: float, failing_reward: float
) -> tf.Tensor:
    """R = -sqrt(r / r_ref), or the failing reward (Mirhoseini et al. 2018, section 3).

    Departure: relative to a named reference time (the best single device), so that rewards and
    learning rates mean the same on every graph and machine. The papers use seconds.

    Args:
      runtime_s: [B] step times, of any float type.
      valid: [B] bool, False where the placement does not run.
      reference_s: r_ref.
      failing_reward: R of a placement that does not run.

    Returns:
      [B] float32, higher is better; -1 is the reference itself.
    """
    return tf.where(valid, -tf.sqrt(tf.cast(runtime_s / reference_s, tf.float32)), failing_reward)


def penalized_reward(
    reward: tf.Tensor,
    valid: tf.Tensor,
    excess: tf.Tensor,
    crossing: tf.Tensor,
    excess_penalty: float,
    crossing_penalty: float,
) -> tf.Tensor:
    """R - w_c crossing, and where the placement does not run R - w_c crossing - w_e excess.

    Departure from the papers, whose failing reward is the same however far a placement is from fitting: with a slope,
    samples of which none fits say where less is too much.

    Args:
      reward: [B] R, of the time alone.
      valid: [B] bool, False where the placement does not run.
      excess: [B] share of the bytes that devices cannot hold.
      crossing: [B] share of the bytes that cross.
      excess_penalty: w_e >= 0.
      crossing_penalty: w_c >= 0.

    Returns:
      [B] float32.
    """
    return reward - crossing_penalty * crossing - tf.where(valid, 0.0, excess_penalty * excess)


def gains(values: tf.Tensor) -> tf.Tensor:
    """r_t = v_{t+1} - v_t: the drop of the time at each step, where values rise as times fall (Addanki et al. 2019).

    Args:
      values: [B, T + 1] of the states of an episode, higher is better.

    Returns:
      [B, T].
    """
    return values[:, 1:] - values[:, :-1]


def discounted_returns(rewards: tf.Tensor, discount: float) -> tf.Tensor:
    """R_t = r_t + discount R_{t+1}.

    Args:
      rewards: [B, T].
      discount: in [0, 1].

    Returns:
      [B, T].
    """
    summed = tf.scan(
        lambda later, reward: reward + discount * later,
        tf.transpose(rewards),
        initializer=tf.zeros_like(rewards[:, 0]),
        reverse=True,
    )
    return tf.transpose(summed)
