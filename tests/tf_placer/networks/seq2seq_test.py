"""The Placer scores what it did, remembers what it chose, and starts undecided."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.graph_inputs import draw_weights
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer

M, K, G, D, F, WIDTH, ROWS = 2, 3, 5, 4, 6, 3, 8
NO_NOISE = tf.zeros([1, 1, 1, 1])


def choices_of(devices=D, groups=G, legal=None):
    """Devices that differ, of which every group may choose any."""
    return DeviceChoices(
        tf.random.stateless_normal([devices, WIDTH], seed=[8, 9]),
        tf.range(devices),
        tf.ones([groups, devices], tf.bool) if legal is None else tf.constant(legal),
        tf.zeros([groups, devices]),
    )


CHOICES = choices_of()


def make_placer(width=8, tanh_constant=5.0, temperature=10.0, seed=0, **more):
    placer = Seq2SeqPlacer(ROWS, width, tanh_constant, temperature, **more)
    placer.greedy(tf.zeros([1, 2, F]), choices_of(groups=2))
    draw_weights(placer, seed)
    return placer


@pytest.fixture(scope="module")
def placer():
    return make_placer()


@pytest.fixture(scope="module")
def groups():
    return tf.random.stateless_normal([M, G, F], seed=[1, 2])


def test_teacher_forcing_gives_the_log_probabilities_of_the_sample(placer, groups):
    noise = tf.random.stateless_uniform([M, 1, G, D], [3, 4], -0.5, 0.5)
    sampled = placer.sample(groups, CHOICES, K, noise, tf.constant([5, 6]))
    assert sampled.actions.shape == (M, K, G) and sampled.logits.shape == (M, K, G, D)
    scored = placer.score(groups, CHOICES, sampled.actions, noise)
    np.testing.assert_allclose(scored.logits, sampled.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scored.log_prob(), sampled.log_prob(), rtol=1e-5)
    others = placer.score(groups, CHOICES, (sampled.actions + 1) % D, noise)
    assert (np.abs(others.log_prob() - sampled.log_prob()) > 1e-4).all()


def test_later_decisions_see_earlier_ones(placer, groups):
    actions = tf.zeros([M, 1, G], tf.int32)
    changed = tf.tensor_scatter_nd_update(actions, [[0, 0, 2]], [3])
    moved = np.abs(
        placer.score(groups, CHOICES, changed, NO_NOISE).logits
        - placer.score(groups, CHOICES, actions, NO_NOISE).logits
    ).max(axis=(1, 3))
    # Group 2's other device is seen from group 3 on, and in the first grouping only.
    assert (moved[0, :3] < 1e-6).all() and (moved[0, 3:] > 1e-6).all() and (moved[1] < 1e-6).all()


def test_early_decisions_see_later_groups(placer, groups):
    actions = tf.zeros([M, 1, G], tf.int32)
    changed = tf.tensor_scatter_nd_add(groups, [[0, G - 1]], [[1.0] * F])
    moved = np.abs(
        placer.score(changed, CHOICES, actions, NO_NOISE).logits
        - placer.score(groups, CHOICES, actions, NO_NOISE).logits
    )
    assert moved[0, :, 0].max() > 1e-6 and moved[1].max() < 1e-6


def test_logits_are_bounded_by_the_tanh_constant(groups):
    placer = make_placer(tanh_constant=2.0, temperature=0.01)
    logits = np.abs(placer.greedy(groups, CHOICES).logits)
    assert logits.max() <= 2.0 and logits.max() > 1.9


def test_samples_follow_the_probabilities():
    placer, choices = make_placer(), choices_of(devices=2, groups=1)
    groups = tf.random.stateless_normal([1, 1, F], seed=[1, 2])
    draws = 4000
    sampled = placer.sample(groups, choices, draws, NO_NOISE, tf.constant([7, 8]))
    p = float(tf.nn.softmax(sampled.logits[0, 0, 0])[1])
    share = float(tf.reduce_mean(tf.cast(sampled.actions, tf.float32)))
    # Five standard deviations of a binomial share.
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / draws)
    assert tf.reduce_all(
        placer.sample(groups, choices, draws, NO_NOISE, tf.constant([7, 8])).actions == sampled.actions
    )
    assert tf.reduce_any(
        placer.sample(groups, choices, draws, NO_NOISE, tf.constant([7, 9])).actions != sampled.actions
    )


def test_noise_is_part_of_the_policy(placer, groups):
    push = tf.constant([0.0, 0.0, 30.0, 0.0])[tf.newaxis, tf.newaxis, tf.newaxis]
    sampled = placer.sample(groups, CHOICES, K, push, tf.constant([5, 6]))
    assert (sampled.actions.numpy() == 2).all()
    np.testing.assert_allclose(sampled.log_prob(), np.zeros([M, K]), atol=1e-3)


def test_greedy_takes_the_likeliest(placer, groups):
    decoded = placer.greedy(groups, CHOICES)
    assert decoded.actions.shape == (M, 1, G)
    np.testing.assert_array_equal(decoded.actions, np.argmax(decoded.logits, axis=-1))


def test_log_prob_and_entropy_by_hand():
    # Two groups, two devices: probabilities (1/4, 3/4) and (1/2, 1/2); actions 1 and 0.
    logits = tf.math.log([[[[1.0, 3.0], [5.0, 5.0]]]])
    decoded = Decoded(tf.constant([[[1, 0]]]), logits)
    assert float(decoded.log_prob()[0, 0]) == pytest.approx(math.log(3 / 4 * 1 / 2), rel=1e-6)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) + math.log(2)
    assert float(decoded.entropy()[0, 0]) == pytest.approx(entropy, rel=1e-6)


def test_untrained_logits_are_not_saturated(groups):
    # States and contexts are at most 1 each and mostly below a half, 2 * width of them. Keys have a deviation of
    # 1 / sqrt(rows) and of as much by features: u has deviation <= 1, logits C u / T <= 0.5, differences <= 0.7. Two
    # deviations make p = sigmoid(1.4).
    p = 1 / (1 + math.exp(-1.4))
    least = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    for seed in range(3):
        placer = make_placer(width=32, seed=seed)
        decoded = placer.sample(100 * groups, choices_of(devices=2), K, NO_NOISE, tf.constant([5, 6]))
        assert float(tf.reduce_mean(decoded.entropy())) / G > least, f"seed {seed}"
        # At least as unsure as in the derivation, the decisions together cannot be near certain.
        assert float(tf.reduce_max(decoded.log_prob())) < -G * (1 - p) / 2, f"seed {seed}"


def test_what_is_leaned_to_is_preferred(placer, groups):
    prior_logits = tf.one_hot([0, 1, 2, 3, 0], D, 50.0, -50.0)
    decoded = placer.greedy(groups, CHOICES._replace(prior_logits=prior_logits))
    assert decoded.actions.numpy().tolist() == [[[0, 1, 2, 3, 0]]] * M


def test_what_is_illegal_is_never_chosen_and_has_no_part_in_the_probability(placer, groups):
    legal = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1]], bool)
    choices = choices_of(legal=legal)
    noise = tf.random.stateless_uniform([M, 1, G, D], [3, 4], -9.0, 9.0)
    sampled = placer.sample(groups, choices, 200, noise, tf.constant([5, 6]))
    for g in range(G):
        assert set(np.unique(sampled.actions[:, :, g])) <= set(np.flatnonzero(legal[g])), g
    scored = placer.score(groups, choices, sampled.actions, noise)
    np.testing.assert_allclose(scored.log_prob(), sampled.log_prob(), rtol=1e-4, atol=1e-5)
    p = tf.nn.softmax(scored.logits).numpy()
    assert (p[:, :, ~legal] == 0).all()
    assert np.isfinite(scored.entropy()).all()


def test_all_legal_sequences_together_are_certain(placer):
    legal = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], bool)
    choices = choices_of(devices=3, groups=3, legal=legal)
    groups = tf.random.stateless_normal([1, 3, F], seed=[1, 2])
    rows = [r for r in itertools.product(range(3), repeat=3) if all(legal[g][d] for g, d in enumerate(r))]
    log_prob = placer.score(groups, choices, tf.constant([rows], tf.int32), NO_NOISE).log_prob()
    assert len(rows) == 2 * 2 * 3 and float(tf.reduce_sum(tf.exp(log_prob))) == pytest.approx(1, rel=1e-5)


def test_one_set_of_weights_places_on_any_number_of_devices(placer):
    for devices, steps in ((1, 2), (3, 7), (6, 1)):
        choices = choices_of(devices, steps)
        groups = tf.random.stateless_normal([1, steps, F], seed=[1, 2])
        sampled = placer.sample(groups, choices, K, NO_NOISE, tf.constant([5, 6]))
        assert sampled.logits.shape == (1, K, steps, devices)


def test_every_weight_is_taught(placer, groups):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(placer.score(groups, CHOICES, tf.ones([M, K, G], tf.int32), NO_NOISE).log_prob())
    for variable, gradient in zip(
        placer.trainable_variables, tape.gradient(loss, placer.trainable_variables), strict=True
    ):
        assert gradient is not None, variable.name
        assert float(tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))) > 0, variable.name


def test_groups_of_one_step_do_not_see_each_other_and_those_after_do(groups):
    placer = make_placer(groups_per_step=2)  # 5 groups in steps of 2, 2 and 1
    actions = tf.zeros([M, 1, G], tf.int32)
    changed = tf.tensor_scatter_nd_update(actions, [[0, 0, 2]], [3])
    moved = np.abs(
        placer.score(groups, CHOICES, changed, NO_NOISE).logits
        - placer.score(groups, CHOICES, actions, NO_NOISE).logits
    ).max(axis=(1, 3))
    assert (moved[0, :4] < 1e-6).all() and moved[0, 4] > 1e-6 and (moved[1] < 1e-6).all()


def test_several_groups_a_step_are_scored_as_they_were_drawn(groups):
    placer = make_placer(groups_per_step=2, group_rows=9)
    noise = tf.random.stateless_uniform([M, 1, G, D], [3, 4], -0.5, 0.5)
    sampled = placer.sample(groups, CHOICES, K, noise, tf.constant([5, 6]))
    assert sampled.actions.shape == (M, K, G) and sampled.logits.shape == (M, K, G, D)
    scored = placer.score(groups, CHOICES, sampled.actions, noise)
    np.testing.assert_allclose(scored.logits, sampled.logits, rtol=1e-5, atol=1e-6)


def test_rows_are_logits_of_their_groups(groups):
    placer = make_placer(group_rows=9)
    (rows,) = placer.row_variables
    assert rows.shape == (9, ROWS) and len(placer.network_variables) == len(placer.trainable_variables) - 1
    actions = tf.zeros([M, 1, G], tf.int32)
    before = placer.score(groups, CHOICES, actions, NO_NOISE).logits.numpy()
    rows.assign(tf.tensor_scatter_nd_add(rows, [[3, 1]], [2.0]))
    more = placer.score(groups, CHOICES, actions, NO_NOISE).logits.numpy() - before
    np.testing.assert_allclose(more[:, :, 3, 1], 2.0, rtol=1e-5)
    more[:, :, 3, 1] = 0.0
    assert np.abs(more).max() < 1e-6


def test_rows_are_shifted_by_the_numbers_of_devices(groups):
    placer = make_placer(group_rows=9)
    choices = CHOICES._replace(number=tf.constant([3, 0, 7, 5]))
    actions = tf.zeros([M, 1, G], tf.int32)
    before = placer.score(groups, choices, actions, NO_NOISE).logits.numpy()
    shift = tf.reshape(tf.range(G * D, dtype=tf.float32), [G, D])
    placer.shift_rows(shift, choices.number)
    more = placer.score(groups, choices, actions, NO_NOISE).logits.numpy() - before
    np.testing.assert_allclose(more, np.broadcast_to(shift, more.shape), rtol=1e-4, atol=1e-4)


def test_odd_widths_are_refused():
    with pytest.raises(ValueError, match="hidden_width is 7"):
        Seq2SeqPlacer(ROWS, 7, 5.0, 10.0)
