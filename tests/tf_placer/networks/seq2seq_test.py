"""Placers of sequences: they score what they did, remember what they chose, and start undecided; and their parts."""

import math
from typing import Any

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import draw_weights
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, DeviceScorer, ProjectedLstm, Seq2SeqPlacer

M, K, G, D, F, WIDTH, ROWS = 2, 3, 5, 4, 6, 3, 9
NO_NOISE = tf.zeros([1, 1, 1, 1])
NOISE = tf.random.stateless_uniform([M, 1, G, D], [3, 4], -0.5, 0.5)
GROUPS = tf.random.stateless_normal([M, G, F], seed=[1, 2])
ACTIONS = tf.random.stateless_uniform([M, K, G], [5, 5], 0, D, tf.int32)
SEED = tf.constant([5, 6])


def choices_of(devices=D, groups=G, legal=None):
    """Devices that differ, of which every group may choose any."""
    return DeviceChoices(
        tf.random.stateless_normal([devices, WIDTH], seed=[8, 9]),
        tf.range(devices),
        tf.ones([groups, devices], tf.bool) if legal is None else tf.constant(legal),
        tf.zeros([groups, devices]),
    )


CHOICES = choices_of()


def placer_of(width=8, tanh_constant=5.0, temperature=10.0, seed=0, **more: Any):
    """One of segments if ``segment`` is given."""
    placer = Seq2SeqPlacer(ROWS, width, tanh_constant, temperature, **more)
    placer.score(tf.zeros([1, 2, F]), choices_of(groups=2), tf.zeros([1, 1, 2], tf.int32), NO_NOISE)
    draw_weights(placer, seed)
    return placer


@pytest.fixture(scope="module")
def placer():
    return placer_of()


@pytest.fixture(scope="module")
def in_twos():
    return placer_of(segment=2)  # steps 0 1, 2 3, and 4 alone


def change(placer, groups=GROUPS, actions=ACTIONS):
    """[M, G] the largest difference that other groups or actions make to the logits of each group."""
    first = placer.score(GROUPS, CHOICES, ACTIONS, NO_NOISE).logits
    return np.abs(placer.score(groups, CHOICES, actions, NO_NOISE).logits - first).max(axis=(1, 3))


def with_another_device(group):
    """Actions of which the first sample has another one for a group."""
    return tf.tensor_scatter_nd_update(ACTIONS, [[0, 0, group]], [(ACTIONS[0, 0, group] + 1) % D])


def with_another_embedding(group):
    return tf.tensor_scatter_nd_add(GROUPS, [[0, group]], [[1.0] * F])


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"groups_per_step": 2, "group_rows": 9},
        *(
            pytest.param({"segment": segment, "groups_per_step": step}, marks=pytest.mark.medium)
            for segment, step in [(1, 1), (2, 1), (3, 2), (4, 2), (9, 1)]
        ),
    ],
    ids=str,
)
def test_teacher_forcing_gives_the_log_probabilities_of_the_sample(more):
    placer = placer_of(**more)
    sampled = placer.sample(GROUPS, CHOICES, K, NOISE, SEED)
    assert sampled.actions.shape == (M, K, G) and sampled.logits.shape == (M, K, G, D)
    scored = placer.score(GROUPS, CHOICES, sampled.actions, NOISE)
    np.testing.assert_allclose(scored.logits, sampled.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scored.log_prob(), sampled.log_prob(), rtol=1e-5)
    others = placer.score(GROUPS, CHOICES, (sampled.actions + 1) % D, NOISE)
    assert (np.abs(others.log_prob() - sampled.log_prob()) > 1e-4).all()


def test_later_decisions_see_earlier_ones_and_early_ones_later_groups(placer):
    # Group 2's other device is seen from group 3 on, and in the first grouping only.
    moved = change(placer, actions=with_another_device(2))
    assert (moved[0, :3] < 1e-6).all() and (moved[0, 3:] > 1e-6).all() and (moved[1] < 1e-6).all()
    moved = change(placer, with_another_embedding(G - 1))
    assert moved[0, 0] > 1e-6 and moved[1].max() < 1e-6


def test_groups_of_one_step_do_not_see_each_other_and_those_after_do():
    # 5 groups in steps of 2, 2 and 1.
    moved = change(placer_of(groups_per_step=2), actions=with_another_device(2))
    assert (moved[0, :4] < 1e-6).all() and moved[0, 4] > 1e-6 and (moved[1] < 1e-6).all()


@pytest.mark.parametrize("segment", [G, G + 3])
def test_one_segment_is_the_whole_sequence(placer, segment):
    placers = (placer_of(segment=segment), placer)
    segmented, whole = (each.score(GROUPS, CHOICES, ACTIONS, NO_NOISE).logits for each in placers)
    np.testing.assert_allclose(segmented, whole, rtol=1e-5, atol=1e-6)


def test_a_segment_sees_its_own_groups_and_by_the_decoders_state_all_that_was_decided(in_twos):
    moved = change(in_twos, with_another_embedding(3))[0]
    # Segment 0 and 1 | 2 and 3 | 4: nothing before it, and all that follows.
    assert (moved[:2] == 0).all() and (moved[2:] > 1e-6).all()
    moved = change(in_twos, actions=with_another_device(0))[0]
    assert moved[0] == 0 and (moved[1:] > 1e-6).all()


def test_the_memory_of_a_segment_does_not_depend_on_what_follows(in_twos):
    # Padding is no step: the last segment alone is what it is as the whole of a sequence, up to the decoder's state.
    sequence = tf.random.stateless_normal([5, 1, 8], [4, 4])
    memory, _ = in_twos._remember(sequence)
    for begin, end in ((0, 2), (2, 4), (4, 5)):
        alone, _ = in_twos._remember(sequence[begin:end])
        np.testing.assert_allclose(memory[:, begin:end], alone, rtol=1e-5, atol=1e-6)


def test_logits_are_bounded_by_the_tanh_constant():
    placer = placer_of(tanh_constant=2.0, temperature=0.01)
    logits = np.abs(placer.score(GROUPS, CHOICES, ACTIONS, NO_NOISE).logits)
    assert logits.max() <= 2.0 and logits.max() > 1.9


def test_samples_follow_the_probabilities_and_the_seed(placer):
    choices, groups, draws = choices_of(devices=2, groups=1), GROUPS[:1, :1], 4000
    sampled = placer.sample(groups, choices, draws, NO_NOISE, tf.constant([7, 8]))
    p = float(tf.nn.softmax(sampled.logits[0, 0, 0])[1])
    share = float(tf.reduce_mean(tf.cast(sampled.actions, tf.float32)))
    # Five standard deviations of a binomial share.
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / draws)
    for seed, is_same in ((8, True), (9, False)):
        again = placer.sample(groups, choices, draws, NO_NOISE, tf.constant([7, seed]))
        assert np.array_equal(again.actions, sampled.actions) == is_same


def test_noise_and_what_is_leaned_to_are_part_of_the_policy(placer):
    push = tf.constant([0.0, 0.0, 30.0, 0.0])[tf.newaxis, tf.newaxis, tf.newaxis]
    sampled = placer.sample(GROUPS, CHOICES, K, push, SEED)
    assert (sampled.actions.numpy() == 2).all()
    np.testing.assert_allclose(sampled.log_prob(), np.zeros([M, K]), atol=1e-3)
    preferred = np.array([0, 1, 2, 3, 0])
    choices = CHOICES._replace(prior_logits=tf.one_hot(preferred, D, 50.0, -50.0))
    logits = placer.score(GROUPS, choices, ACTIONS, NO_NOISE).logits.numpy()
    assert (logits.argmax(axis=-1) == preferred).all()


def test_log_prob_and_entropy_by_hand():
    # Two groups, two devices: probabilities (1/4, 3/4) and (1/2, 1/2); actions 1 and 0.
    decoded = Decoded(tf.constant([[[1, 0]]]), tf.math.log([[[[1.0, 3.0], [5.0, 5.0]]]]))
    assert float(decoded.log_prob()[0, 0]) == pytest.approx(math.log(3 / 4 * 1 / 2), rel=1e-6)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) + math.log(2)
    assert float(decoded.entropy()[0, 0]) == pytest.approx(entropy, rel=1e-6)


def test_untrained_logits_are_not_saturated():
    # States and contexts are at most 1 each and mostly below a half, 2 * width of them. Keys have a deviation of
    # 1 / sqrt(rows) and of as much by features: u has deviation <= 1, logits C u / T <= 0.5, differences <= 0.7. Two
    # deviations make p = sigmoid(1.4).
    p = 1 / (1 + math.exp(-1.4))
    least = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    for seed in range(3):
        placer = placer_of(width=32, seed=seed)
        decoded = placer.sample(100 * GROUPS, choices_of(devices=2), K, NO_NOISE, SEED)
        assert float(tf.reduce_mean(decoded.entropy())) / G > least, f"seed {seed}"
        # At least as unsure as in the derivation, the decisions together cannot be near certain.
        assert float(tf.reduce_max(decoded.log_prob())) < -G * (1 - p) / 2, f"seed {seed}"


def test_what_is_illegal_is_never_chosen_and_has_no_part_in_the_probability(placer):
    legal = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1]], bool)
    choices, noise = choices_of(legal=legal), 18 * NOISE
    sampled = placer.sample(GROUPS, choices, 200, noise, SEED)
    for g in range(G):
        assert set(np.unique(sampled.actions[:, :, g])) <= set(np.flatnonzero(legal[g])), g
    scored = placer.score(GROUPS, choices, sampled.actions, noise)
    np.testing.assert_allclose(scored.log_prob(), sampled.log_prob(), rtol=1e-4, atol=1e-5)
    assert (tf.nn.softmax(scored.logits).numpy()[:, :, ~legal] == 0).all()
    assert np.isfinite(scored.entropy()).all()


def test_rows_are_logits_of_their_groups_by_the_numbers_of_devices():
    placer = placer_of(group_rows=9)
    rows = placer._rows.embeddings
    assert rows.shape == (9, ROWS) and len(placer.network_variables) == len(placer.trainable_variables) - 1
    choices = CHOICES._replace(number=tf.constant([3, 0, 7, 5]))

    def logits():
        return placer.score(GROUPS, choices, ACTIONS, NO_NOISE).logits.numpy()

    before = logits()
    rows.assign(tf.tensor_scatter_nd_add(rows, [[3, 0]], [2.0]))  # group 3 on device 1, whose number is 0
    more = logits() - before
    np.testing.assert_allclose(more[:, :, 3, 1], 2.0, rtol=1e-5)
    more[:, :, 3, 1] = 0.0
    assert np.abs(more).max() < 1e-6
    before, shift = logits(), tf.reshape(tf.range(G * D, dtype=tf.float32), [G, D])
    placer.shift_rows(shift, choices.number)
    np.testing.assert_allclose(logits() - before, np.broadcast_to(shift, before.shape), rtol=1e-4, atol=1e-4)


STATES = tf.random.stateless_normal([2, 3, 6], [1, 2])


def numbered(*devices):
    features = tf.random.stateless_normal([ROWS, WIDTH], [3, 4])
    legal, prior_logits = tf.ones([1, len(devices)], tf.bool), tf.zeros([1, len(devices)])
    return DeviceChoices(tf.gather(features, devices), tf.constant(devices), legal, prior_logits)


@pytest.fixture(scope="module")
def scores_of():
    """Scores [2, 3, D] of devices by one scorer."""
    scorer = DeviceScorer(ROWS, 8, 6)
    scorer.embed(numbered(0))
    draw_weights(scorer, 0)
    return lambda choices: scorer.score(STATES, scorer.embed(choices)).numpy()


def test_devices_are_scored_by_what_they_are_and_not_where_they_stand(scores_of):
    scores = scores_of(numbered(0, 1, 2, 3))
    order = [2, 0, 3, 1]
    np.testing.assert_allclose(scores_of(numbered(*order)), scores[..., order], rtol=1e-5)
    assert np.unique(scores[0, 0].round(5)).size == 4
    # A device more leaves the scores of the others.
    np.testing.assert_allclose(scores_of(numbered(0, 1, 2)), scores[..., :3], rtol=1e-5)
    assert scores_of(numbered(*range(7))).shape == (2, 3, 7)


def test_devices_that_are_alike_are_told_apart_by_their_numbers(scores_of):
    twins = numbered(0, 0)
    alike = scores_of(twins)
    np.testing.assert_array_equal(alike[..., 0], alike[..., 1])
    apart = scores_of(twins._replace(number=tf.constant([0, 1])))
    assert (np.abs(apart[..., 0] - apart[..., 1]) > 1e-4).all()


def test_the_cell_computes_what_sonnets_lstm_does_once_its_inputs_are_multiplied():
    batch, inputs_width, hidden, steps = 3, 4, 5, 6
    inputs = tf.random.stateless_normal([steps, batch, inputs_width], [1, 2])
    sonnets = snt.LSTM(hidden, forget_bias=1.0)
    expected, state = snt.dynamic_unroll(sonnets, inputs, sonnets.initial_state(batch))
    ours = ProjectedLstm(hidden)
    ours(tf.zeros([batch, 4 * hidden]), ours.initial_state(batch))
    weights = next(v for v in ours.trainable_variables if v.shape.rank == 2)
    weights.assign(sonnets.hidden_to_hidden)
    # Sonnet has gates in the order i, f, g, o too, and adds 1 to the forget gate's own bias.
    np.testing.assert_array_equal(sonnets.b[hidden : 2 * hidden], np.ones(hidden))
    projected = tf.tensordot(inputs, sonnets.input_to_hidden, 1)
    outputs, last = snt.dynamic_unroll(ours, projected, ours.initial_state(batch))
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last.cell, state.cell, rtol=1e-5, atol=1e-6)
