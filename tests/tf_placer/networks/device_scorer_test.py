"""Devices are what they are like, not where they stand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.graph_inputs import draw_weights
from tf_placer.networks.seq2seq import DeviceChoices, DeviceScorer

H, S, K, ROWS = 8, 6, 5, 9
STATES = tf.random.stateless_normal([2, 3, S], [1, 2])


def choices_of(devices):
    features = tf.random.stateless_normal([ROWS, K], [3, 4])
    legal, prior_logits = tf.ones([1, len(devices)], tf.bool), tf.zeros([1, len(devices)])
    return DeviceChoices(tf.gather(features, devices), tf.constant(devices), legal, prior_logits)


@pytest.fixture(scope="module")
def scorer():
    scorer = DeviceScorer(ROWS, H, S)
    scorer.embed(choices_of([0]))
    draw_weights(scorer, 0)
    return scorer


def test_any_number_of_devices(scorer):
    for count in (1, 2, 7):
        embedded = scorer.embed(choices_of(range(count)))
        assert scorer.score(STATES, embedded).shape == (2, 3, count)
        assert embedded.embedding.shape == (count, H)


def test_devices_that_change_places_change_scores(scorer):
    scores = scorer.score(STATES, scorer.embed(choices_of([0, 1, 2, 3]))).numpy()
    order = [2, 0, 3, 1]
    np.testing.assert_allclose(
        scorer.score(STATES, scorer.embed(choices_of(order))), scores[..., order], rtol=1e-5
    )
    assert np.unique(scores[0, 0].round(5)).size == 4


def test_a_device_more_leaves_the_others_scores(scorer):
    np.testing.assert_allclose(
        scorer.score(STATES, scorer.embed(choices_of([0, 1, 2]))),
        scorer.score(STATES, scorer.embed(choices_of([0, 1, 2, 3])))[..., :3],
        rtol=1e-5,
    )


def test_devices_that_are_alike_are_told_apart_by_their_numbers(scorer):
    twins = choices_of([0, 0])
    alike = scorer.score(STATES, scorer.embed(twins)).numpy()
    np.testing.assert_array_equal(alike[..., 0], alike[..., 1])
    apart = scorer.score(STATES, scorer.embed(twins._replace(number=tf.constant([0, 1])))).numpy()
    assert (np.abs(apart[..., 0] - apart[..., 1]) > 1e-4).all()
