"""Recurrent networks: looped, unrolled, bidirectional, stateful, masked, and by hand."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.corpus.keras_layers import called_and_differentiated, data
from tests.corpus.program import Make


def looped_lstm(make: Make) -> Any:
    """An LSTM that is a loop, with gradients through time."""
    return called_and_differentiated(make, [layers.LSTM(4), layers.Dense(1)], data(3, 5, 2))


def looped_gru_with_dropout(make: Make) -> Any:
    """A GRU that returns all steps, with dropout of its inputs."""
    gru = layers.GRU(4, return_sequences=True, dropout=0.3, seed=3)
    return called_and_differentiated(make, [gru, layers.Dense(1)], data(3, 5, 2))


def unrolled_lstm(make: Make) -> Any:
    """An LSTM without a loop."""
    return called_and_differentiated(make, [layers.LSTM(4, unroll=True)], data(3, 4, 2))


def bidirectional_stack(make: Make) -> Any:
    """Both directions, stacked."""
    stack = [layers.Bidirectional(layers.LSTM(3, return_sequences=True)), layers.Bidirectional(layers.GRU(2))]
    return called_and_differentiated(make, stack, data(2, 4, 3))


def masked_sequences(make: Make) -> Any:
    """Steps of zeros are skipped."""
    stack = [layers.Masking(), layers.SimpleRNN(3), layers.Dense(1)]
    x = data(3, 5, 2).numpy()
    x[0, 3:] = 0.0
    return called_and_differentiated(make, stack, tf.constant(x))


def stateful_across_calls(make: Make) -> Any:
    """State is kept from call to call, and reset."""
    model = keras.Sequential([keras.Input(batch_shape=(2, 3, 2)), layers.LSTM(4, stateful=True)])
    f = make.traced(lambda x: model(x))
    x = data(2, 3, 2)
    before = [f(x), f(x)]
    model.layers[0].reset_state()
    return before, f(x)


def a_cell_in_a_python_loop(make: Make) -> Any:
    """A cell, called step by step with its state."""
    cell = layers.LSTMCell(3)
    cell.build((2, 4))

    @make.traced
    def f(x):
        state = cell.get_initial_state(2)
        for t in range(3):
            y, state = cell(x[:, t], state)
        return y, state

    return f(data(2, 3, 4))


def a_sequence_of_unknown_length(make: Make) -> Any:
    """One traced function for sequences of any length."""
    cell = layers.GRUCell(3)
    cell.build((None, 2))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 2])])
    def f(x):
        h = tf.zeros([tf.shape(x)[0], 3])
        for t in tf.range(tf.shape(x)[1]):
            h, _ = cell(x[:, t], [h])
        return h

    f = make(f)
    return f(data(2, 3, 2)), f(data(4, 6, 2))


def sequence_to_sequence_with_attention(make: Make) -> Any:
    """An encoder, a decoder and dot-product attention, trained for two steps."""
    source, target = keras.Input((5,), dtype="int32"), keras.Input((4,), dtype="int32")
    embedding = layers.Embedding(9, 6)
    encoded = layers.LSTM(6, return_sequences=True)(embedding(source))
    decoded = layers.LSTM(6, return_sequences=True)(embedding(target))
    attended = layers.Attention()([decoded, encoded])
    model = keras.Model([source, target], layers.Dense(9)(layers.concatenate([decoded, attended])))
    optimizer = keras.optimizers.SGD(0.1)

    @make.traced
    def step(source, target):
        with tf.GradientTape() as tape:
            logits = model([source, target])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    tokens = np.random.default_rng(2).integers(0, 9, (3, 9)).astype(np.int32)
    return [step(tokens[:, :5], tokens[:, 5:]) for _ in range(2)], model.get_weights()
