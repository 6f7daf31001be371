"""Keras layers of every kind, recurrent ones too, called on a batch, with the gradients of what they learn."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.corpus.program import Make


def data(*shape: int) -> tf.Tensor:
    """The same numbers in every process."""
    return tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)


def called_and_differentiated(make: Make, stack: list[layers.Layer], x: tf.Tensor) -> Any:
    """Outputs, loss and gradients of a stack of layers, as one step."""
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=x.dtype), *stack])

    @make.traced
    def step(x):
        with tf.GradientTape() as tape:
            y = model(x, training=True)
            loss = tf.reduce_mean(tf.square(tf.cast(y, tf.float32)))
        return y, loss, tape.gradient(loss, model.trainable_variables)

    first = step(x)
    return first, step(x), [variable.numpy() for variable in model.variables]


def dense_and_activations(make: Make) -> Any:
    """Dense layers with activations that have weights, too."""
    stack = [layers.Dense(8, "gelu"), layers.PReLU(), layers.Dense(4), layers.Softmax()]
    return called_and_differentiated(make, stack, data(6, 5))


def convolutions_and_pooling(make: Make) -> Any:
    """Convolutions, strided, dilated, depthwise and transposed, and pooling."""
    stack = [
        layers.Conv2D(4, 3, padding="same", activation="relu"),
        layers.DepthwiseConv2D(3, dilation_rate=2),
    ]
    stack += [layers.MaxPooling2D(), layers.Conv2DTranspose(2, 3, strides=2)]
    stack += [layers.AveragePooling2D(2), layers.GlobalAveragePooling2D()]
    return called_and_differentiated(make, stack, data(2, 12, 12, 3))


def normalization_in_training(make: Make) -> Any:
    """Batch, layer, group and unit normalization; batch normalization updates its moving means."""
    stack = [layers.BatchNormalization(momentum=0.5), layers.LayerNormalization()]
    stack += [layers.GroupNormalization(2), layers.UnitNormalization()]
    return called_and_differentiated(make, stack, data(4, 5, 8))


def dropout_with_a_seed(make: Make) -> Any:
    """Dropout draws the same masks, step after step."""
    stack = [layers.Dense(16), layers.Dropout(0.5, seed=3), layers.GaussianNoise(0.1, seed=4)]
    return called_and_differentiated(make, stack, data(4, 8))


def embedding_and_attention(make: Make) -> Any:
    """Tokens, embedded, attend to each other."""
    tokens = keras.Input((7,), dtype="int32")
    x = layers.Embedding(11, 8, mask_zero=True)(tokens)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    model = keras.Model(tokens, layers.Dense(3)(layers.GlobalMaxPooling1D()(x)))

    @make.traced
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch) ** 2)
        return loss, tape.gradient(loss, model.trainable_variables)

    batch = np.random.default_rng(1).integers(0, 11, (3, 7)).astype(np.int32)
    loss, gradients = step(batch)
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


def preprocessing_inside_a_model(make: Make) -> Any:
    """Rescaling, resizing, flips with a seed and one-hot encoding are part of the program."""
    stack = [layers.Rescaling(1 / 255.0), layers.Resizing(6, 6), layers.RandomFlip(seed=5)]
    stack += [layers.Conv2D(2, 3)]
    return called_and_differentiated(make, stack, tf.abs(data(2, 9, 9, 3)) * 100)


def merging_layers(make: Make) -> Any:
    """Several inputs and outputs, shared weights, merges of every kind."""
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    shared = layers.Dense(6, "tanh")
    a, b = shared(left), shared(right)
    merged = layers.concatenate([layers.add([a, b]), layers.multiply([a, b])])
    model = keras.Model(
        {"left": left, "right": right}, {"sum": layers.Dense(2)(merged), "dot": layers.dot([a, b], 1)}
    )
    f = make(model)
    return f({"left": data(3, 6), "right": data(3, 6) + 1.0})


def a_layer_of_ones_own(make: Make) -> Any:
    """A layer with state that its call updates and a loss that it adds."""

    class Counting(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, x):
            self.count.assign_add(tf.reduce_sum(x))
            self.add_loss(tf.reduce_mean(x))
            return x * self.count

    layer = Counting()
    layer.build((3,))

    @make.traced
    def f(x):
        y = layer(x)
        return y, layer.losses[0]

    return f(data(2, 3)), f(data(2, 3) + 1.0), layer.count.numpy()


def three_dimensional_and_separable(make: Make) -> Any:
    """Convolutions in one and three dimensions, separable ones, cropping, padding, permutation and reshapes."""
    stack = [
        layers.Conv3D(3, 2), layers.Cropping3D(1), layers.Reshape((-1, 3)), layers.ZeroPadding1D(1),
        layers.SeparableConv1D(4, 3), layers.Permute((2, 1)), layers.Flatten(), layers.Dense(2),
    ]  # fmt: skip
    return called_and_differentiated(make, stack, data(2, 6, 6, 6, 2))


def mixed_precision(make: Make) -> Any:
    """Layers that compute in bfloat16 and keep their weights in float32."""
    stack = [layers.Dense(8, "relu", dtype="mixed_bfloat16"), layers.Dense(2, dtype="float32")]
    return called_and_differentiated(make, stack, data(4, 6))


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
