"""Keras layers of every kind, called on a batch, with the gradients of what they learn."""

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
    return called_and_differentiated(
        make, [layers.Dense(8, "gelu"), layers.PReLU(), layers.Dense(4), layers.Softmax()], data(6, 5)
    )


def convolutions_and_pooling(make: Make) -> Any:
    """Convolutions, strided, dilated, depthwise and transposed, and pooling."""
    return called_and_differentiated(
        make,
        [
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.DepthwiseConv2D(3, dilation_rate=2),
            layers.MaxPooling2D(),
            layers.Conv2DTranspose(2, 3, strides=2),
            layers.AveragePooling2D(2),
            layers.GlobalAveragePooling2D(),
        ],
        data(2, 12, 12, 3),
    )


def normalization_in_training(make: Make) -> Any:
    """Batch, layer, group and unit normalization; batch normalization updates its moving means."""
    stack = [
        layers.BatchNormalization(momentum=0.5),
        layers.LayerNormalization(),
        layers.GroupNormalization(2),
        layers.UnitNormalization(),
    ]
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
    stack = [
        layers.Rescaling(1 / 255.0),
        layers.Resizing(6, 6),
        layers.RandomFlip(seed=5),
        layers.Conv2D(2, 3),
    ]
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
