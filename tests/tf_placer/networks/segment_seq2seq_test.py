"""Segments: encoded and attended to by themselves, decoded one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.graph_inputs import draw_weights
from tf_placer.networks.seq2seq import DeviceChoices, SegmentSeq2SeqPlacer, Seq2SeqPlacer

M, K, G, D, F, ROWS = 2, 3, 5, 4, 6, 8
NO_NOISE = tf.zeros([1, 1, 1, 1])


def choices_of(groups, devices=D):
    return DeviceChoices(
        tf.random.stateless_normal([devices, 3], seed=[8, 9]),
        tf.range(devices),
        tf.ones([groups, devices], tf.bool),
        tf.zeros([groups, devices]),
    )


CHOICES = choices_of(G)
GROUPS = tf.random.stateless_normal([M, G, F], seed=[1, 2])
ACTIONS = tf.random.stateless_uniform([M, K, G], [5, 5], 0, D, tf.int32)


def make(segment, each=1, kind=SegmentSeq2SeqPlacer):
    more = {} if kind is Seq2SeqPlacer else {"segment": segment}
    placer = kind(ROWS, 8, 5.0, 10.0, groups_per_step=each, **more)
    placer.greedy(tf.zeros([1, 2, F]), choices_of(2))
    draw_weights(placer, 0)
    return placer


@pytest.fixture(scope="module")
def in_twos():
    return make(2)  # steps 0 1, 2 3, and 4 alone


@pytest.mark.medium
@pytest.mark.parametrize("segment, each", [(1, 1), (2, 1), (3, 2), (4, 2), (9, 1)])
def test_what_is_drawn_is_scored_as_what_it_is(segment, each):
    placer = make(segment, each)
    noise = tf.random.stateless_uniform([M, 1, G, D], [3, 4], -0.5, 0.5)
    sampled = placer.sample(GROUPS, CHOICES, K, noise, tf.constant([5, 6]))
    scored = placer.score(GROUPS, CHOICES, sampled.actions, noise)
    assert sampled.actions.shape == (M, K, G) and scored.logits.shape == (M, K, G, D)
    np.testing.assert_allclose(scored.logits, sampled.logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("segment", [G, G + 3])
def test_one_segment_is_the_whole_sequence(segment):
    whole, one = make(0, kind=Seq2SeqPlacer), make(segment)
    np.testing.assert_allclose(
        one.score(GROUPS, CHOICES, ACTIONS, NO_NOISE).logits,
        whole.score(GROUPS, CHOICES, ACTIONS, NO_NOISE).logits,
        rtol=1e-5,
        atol=1e-6,
    )


def moved(placer, groups=GROUPS, actions=ACTIONS):
    """[G] how far the logits of each group are from those of GROUPS and ACTIONS."""
    first = placer.score(GROUPS, CHOICES, ACTIONS, NO_NOISE).logits
    return np.abs(placer.score(groups, CHOICES, actions, NO_NOISE).logits - first).max(axis=(0, 1, 3))


def test_later_groups_are_seen_within_the_segment_alone(in_twos):
    last_of_the_second = tf.tensor_scatter_nd_add(GROUPS, [[0, 3]], [[1.0] * F])
    change = moved(in_twos, last_of_the_second)
    # Segment 0 and 1 | 2 and 3 | 4: nothing before it, and by the decoder's state all that follows.
    assert (change[:2] == 0).all() and (change[2:] > 1e-6).all()


def test_the_decoders_state_goes_on(in_twos):
    changed = tf.tensor_scatter_nd_update(ACTIONS, [[0, 0, 0]], [(ACTIONS[0, 0, 0] + 1) % D])
    change = moved(in_twos, actions=changed)
    assert change[0] == 0 and (change[1:] > 1e-6).all()


def test_the_memory_of_a_segment_does_not_depend_on_what_follows(in_twos):
    # Padding is no step: the last segment alone is what it is as the whole of a sequence, up to the decoder's state.
    sequence = tf.random.stateless_normal([5, 1, 8], [4, 4])
    memory, _ = in_twos._remember(sequence)
    for begin, end in ((0, 2), (2, 4), (4, 5)):
        alone, _ = in_twos._remember(sequence[begin:end])
        np.testing.assert_allclose(memory[:, begin:end], alone, rtol=1e-5, atol=1e-6)


def test_one_set_of_weights_places_on_any_number_of_devices(in_twos):
    for devices, steps in ((1, 2), (3, 7), (6, 1)):
        groups = tf.random.stateless_normal([1, steps, F], seed=[1, 2])
        sampled = in_twos.sample(groups, choices_of(steps, devices), K, NO_NOISE, tf.constant([5, 6]))
        assert sampled.logits.shape == (1, K, steps, devices)
