"""The cell is Sonnet's LSTM once its inputs are multiplied."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.networks.seq2seq import ProjectedLstm

B, F, H, STEPS = 3, 4, 5, 6


def test_it_computes_what_sonnets_lstm_does():
    inputs = tf.random.stateless_normal([STEPS, B, F], [1, 2])
    sonnets = snt.LSTM(H, forget_bias=1.0)
    expected, state = snt.dynamic_unroll(sonnets, inputs, sonnets.initial_state(B))
    ours = ProjectedLstm(H)
    ours(tf.zeros([B, 4 * H]), ours.initial_state(B))
    weights = next(v for v in ours.trainable_variables if v.shape.rank == 2)
    weights.assign(sonnets.hidden_to_hidden)
    # Sonnet has gates in the order i, f, g, o too, and adds 1 to the forget gate's own bias.
    bias = np.zeros(4 * H, np.float32)
    np.testing.assert_array_equal(sonnets.b[H : 2 * H], 1 + bias[:H])
    projected = tf.tensordot(inputs, sonnets.input_to_hidden, 1)
    found, last = snt.dynamic_unroll(ours, projected, ours.initial_state(B))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last.cell, state.cell, rtol=1e-5, atol=1e-6)
