"""What each device holds at each step of an episode, for the group that is decided there."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.agents.placeto.inputs import PlacetoInputs

STATE_WIDTH = 6


def placement_at(inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """[B, G] devices before a turn: groups visited by then are where the episode ends, the others where it began."""
    return tf.where(inputs.turn_of_group < turn, end, begin)


def device_states(
    inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, first: tf.Tensor, count: int
) -> tf.Tensor:
    """Describes every device at some turns, as the group that is decided there finds it.

    - is the group there;
    - the shares of the bytes that it reads from, and gives to, groups there;
    - the device's work and bytes, the group's own left out, as shares of all work and of its memory;
    - how slow the device is with the group.

    What others do of all this for a whole episode at once is linear in edges, because a neighbor is where it ends if
    its turn came before, and else where it began.

    Args:
      inputs: the problem.
      begin, end: [B, G] devices; of ``end`` nothing is read that is decided at these turns or later.
      first: the first of the turns.
      count: C, how many turns.

    Returns:
      [C, B, D, 6] float32.
    """
    devices = inputs.slowness.shape[1]
    group = inputs.groups_at(first, count)
    here = tf.one_hot(tf.gather(tf.transpose(begin), group), devices)  # [C, B, D]
    flows = _flows(inputs, begin, end, first, count)
    loads = _loads(inputs, begin, end, first, count)
    loads -= here[..., tf.newaxis] * tf.gather(inputs.load, group)[:, tf.newaxis]
    slowness = tf.broadcast_to(tf.gather(inputs.slowness, group)[:, tf.newaxis], here.shape)
    return tf.concat([here[..., tf.newaxis], flows, loads, slowness[..., tf.newaxis]], axis=3)


def _flows(
    inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, first: tf.Tensor, count: int
) -> tf.Tensor:
    """[C, B, D, 2] shares of bytes that come from each device and go to it."""
    near, devices = inputs.near, inputs.slowness.shape[1]
    low, high = near.offset[first], near.offset[first + count]
    turn, group, share = near.turn[low:high], near.group[low:high], near.share[low:high]
    decided = tf.gather(inputs.turn_of_group, group) < turn
    device = tf.where(
        decided[:, tf.newaxis],
        tf.gather(tf.transpose(end), group),
        tf.gather(tf.transpose(begin), group),
    )  # [Q, B]
    flow = tf.one_hot(device, devices)[..., tf.newaxis] * share[:, tf.newaxis, tf.newaxis]
    return tf.math.unsorted_segment_sum(flow, turn - first, count)


def _loads(
    inputs: PlacetoInputs, begin: tf.Tensor, end: tf.Tensor, first: tf.Tensor, count: int
) -> tf.Tensor:
    """[C, B, D, 2] work and bytes of each device before each turn."""
    devices = inputs.slowness.shape[1]
    held = tf.one_hot(placement_at(inputs, begin, end, first), devices)  # [B, G, D]
    before = tf.einsum("bgd,gdk->bdk", held, inputs.load)
    if count == 1:
        return before[tf.newaxis]
    group = inputs.groups_at(first, count)
    moved = tf.one_hot(tf.gather(tf.transpose(end), group), devices) - tf.one_hot(
        tf.gather(tf.transpose(begin), group), devices
    )  # [C, B, D]
    change = moved[..., tf.newaxis] * tf.gather(inputs.load, group)[:, tf.newaxis]
    return before + tf.cumsum(change, axis=0, exclusive=True)
