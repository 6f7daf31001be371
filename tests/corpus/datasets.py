"""Datasets and iterators: as arguments, as captures, and with placed functions inside."""

from typing import Any

import tensorflow as tf

from tests.corpus.program import Make


def batches() -> tf.data.Dataset:
    """Four batches of pairs."""
    x = tf.reshape(tf.range(16.0), [8, 2])
    return tf.data.Dataset.from_tensor_slices((x, x[:, 0])).batch(2)


def an_iterator_as_argument(make: Make) -> Any:
    """The step takes its batch from an iterator, as Keras' own does."""
    w = tf.Variable([[0.5], [0.25]])

    @make.traced
    def step(iterator):
        x, y = next(iterator)
        w.assign_sub(0.01 * tf.matmul(x, x @ w - y[:, tf.newaxis], transpose_a=True))
        return tf.reduce_sum(y)

    iterator = iter(batches())
    return [step(iterator) for _ in range(4)], w.numpy()


def an_iterator_that_ends(make: Make) -> Any:
    """The end of the data is the same error."""
    step = make.traced(lambda iterator: next(iterator)[0] * 2.0)
    iterator, seen = iter(batches()), []
    try:
        while True:
            seen.append(step(iterator))
    except tf.errors.OutOfRangeError:
        seen.append("end")
    return seen


def a_loop_over_a_dataset(make: Make) -> Any:
    """A whole epoch inside the function."""
    w = tf.Variable(1.0)

    @make.traced
    def epoch(dataset):
        total = 0.0
        for x, y in dataset:
            w.assign_add(tf.reduce_sum(x))
            total += tf.reduce_mean(y)
        return total * w

    return epoch(batches()), epoch(batches()), w.numpy()


def a_captured_dataset(make: Make) -> Any:
    """The dataset is a closure's, and is reduced."""
    dataset = batches()
    f = make.traced(lambda start: dataset.reduce(start, lambda total, pair: total + tf.reduce_sum(pair[0])))
    return f(tf.constant(0.0)), f(tf.constant(5.0))


def inside_map(make: Make) -> Any:
    """A dataset maps a placed function."""
    f = make.traced(lambda x: tf.tanh(x) * 2.0 + 1.0)
    dataset = tf.data.Dataset.from_tensor_slices(tf.range(6.0)).map(f, num_parallel_calls=2).batch(3)
    return [batch.numpy() for batch in dataset]


def inside_map_with_a_generator(make: Make) -> Any:
    """Elements come from Python, and a placed function filters them."""
    keep = make.traced(lambda x: x % 2 == 0)
    spec = tf.TensorSpec([], tf.int32)
    dataset = tf.data.Dataset.from_generator(lambda: iter(range(6)), output_signature=spec).filter(keep)
    return [element.numpy() for element in dataset]
