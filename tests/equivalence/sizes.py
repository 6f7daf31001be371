"""Random functions of a batch that use its size as programs do: to clip, to count, to choose, to number, to divide."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

WIDTH = 4  # of the rows that a step takes and gives
MOST_BATCH = 1_000

_Step = Callable[[tf.Tensor, int], tf.Tensor]


def _weights(number: int, *shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(number).normal(size=shape) / np.sqrt(shape[0]), tf.float64)


def _rows(x: tf.Tensor) -> tf.Tensor:
    return tf.shape(x)[0]


def _as_float(size: tf.Tensor) -> tf.Tensor:
    return tf.cast(size, tf.float64)


@tf.function
def _size_of(x):
    return tf.shape(x)[0]


def _class_of(x: tf.Tensor) -> tf.Tensor:
    """Classes that do not hang on the order of sums."""
    return tf.argmax(tf.round(x * 1e6), 1)


def _chunks(x: tf.Tensor, number: int) -> tf.Tensor:
    """A loop whose trips are bounded, and follow from the size."""
    total = tf.zeros([WIDTH], tf.float64)
    for i in tf.range(tf.minimum(_rows(x), 3 + number % 4)):
        total += tf.nn.tanh(x[i]) * 0.1
    return x + total


def _as_long_as_examples_last(x: tf.Tensor, number: int) -> tf.Tensor:
    trips, total = tf.constant(0), tf.zeros([WIDTH], tf.float64)
    while trips < 4 and trips < _rows(x) - number % 3:
        trips, total = trips + 1, total + tf.reduce_mean(tf.tanh(x), 0)
    return x - total


def _chosen(x: tf.Tensor, number: int) -> tf.Tensor:
    return tf.cond(_rows(x) > 20 + number, lambda: x * 2.0, lambda: tf.tanh(x))


def _chosen_rows(x: tf.Tensor, number: int) -> tf.Tensor:
    return tf.cond(_rows(x) > 40 + number, lambda: x[: 40 + number], lambda: x)


def _summed_over_a_chosen_axis(x: tf.Tensor, number: int) -> tf.Tensor:
    axis = tf.where(_rows(x) > 40 + number, 0, 1)
    return x + tf.reduce_sum(tf.tanh(x), axis)[0]


def _of_gradients(x: tf.Tensor, number: int) -> tf.Tensor:
    weight = _weights(number, WIDTH, WIDTH)
    with tf.GradientTape() as tape:
        tape.watch([x, weight])
        loss = tf.reduce_mean((x @ weight - tf.reduce_mean(x, 0)) ** 2)
    by_x, by_weight = tape.gradient(loss, [x, weight])
    return x - by_x - tf.reduce_sum(by_weight, 0)


def _list_of_clipped_length(x: tf.Tensor, number: int) -> tf.Tensor:
    rows = tf.TensorArray(tf.float64, tf.minimum(_rows(x), 5 + number % 3), element_shape=[WIDTH])
    return x + tf.reduce_mean(rows.write(0, x[0]).stack(), 0)


PLAIN: Mapping[str, _Step] = {
    "dense": lambda x, k: tf.nn.relu(x @ _weights(k, WIDTH, WIDTH)),
    "centered": lambda x, k: x - tf.reduce_mean(x, 0),
    "normalized": lambda x, k: tf.nn.softmax(x),
    "reshaped": lambda x, k: tf.reshape(tf.tanh(tf.reshape(x, [-1, 2])), [_rows(x), WIDTH]),
    "numbers_of_classes": lambda x, k: x + tf.one_hot(_class_of(x), WIDTH, dtype=tf.float64),
    "mean_loss": lambda x, k: x * tf.reduce_sum(x * x) / _as_float(_rows(x)),
}
"""Steps that hold for every batch, by their rules."""

USES: Mapping[str, _Step] = {
    "first_rows": lambda x, k: x[: 50 + k],
    "all_but_the_last": lambda x, k: x[: -1 - k % 3],
    "rows_from": lambda x, k: tf.concat([x[k % 7 :], x[: k % 7]], 0),
    "every_second": lambda x, k: x[::2],
    "clipped_below": lambda x, k: x[: tf.maximum(_rows(x), 1 + k)],
    "minimum_of_rows": lambda x, k: x[: tf.minimum(_rows(x), 30 + k)],
    "minimum_scales": lambda x, k: x * _as_float(tf.minimum(_rows(x), 30 + k)),
    "root_of_size": lambda x, k: x / tf.sqrt(_as_float(_rows(x))),
    "one_over_size": lambda x, k: x * (1.0 / _as_float(_rows(x) + k)),
    "remainder": lambda x, k: x + _as_float(_rows(x) % (2 + k % 9)),
    "remainder_of_rows": lambda x, k: x[: _rows(x) - _rows(x) % (1 + k % 9)],
    "half": lambda x, k: x[: (_rows(x) + 1) // 2],
    "range": lambda x, k: x + _as_float(tf.range(_rows(x)))[:, tf.newaxis] * 0.01,
    "eye": lambda x, k: (tf.eye(_rows(x), dtype=tf.float64) * 0.5 + 0.1) @ x,
    "band_part": lambda x, k: tf.linalg.band_part(tf.matmul(x, x, transpose_b=True), k % 5, 0) @ x * 0.01,
    "band_by_size": lambda x, k: (
        tf.linalg.band_part(tf.matmul(x, x, transpose_b=True), _rows(x) // 3, 0) @ x * 0.01
    ),
    "top_k_by_size": lambda x, k: (
        x + tf.reduce_mean(tf.nn.top_k(tf.transpose(x), tf.minimum(_rows(x), 9 + k))[0], 1)
    ),
    "top_k_of_width": lambda x, k: x + tf.reduce_sum(tf.nn.top_k(x, tf.minimum(_rows(x), WIDTH))[0]),
    "fixed_count_of_rows": lambda x, k: tf.reshape(tf.reshape(x, [2, -1, WIDTH]) + 1.0, [-1, WIDTH]),
    "rows_of_all": lambda x, k: tf.reshape(tf.reshape(x, [-1])[: 60 + k], [-1, WIDTH]) + 1.0,
    "last": lambda x, k: x - tf.gather(x, _rows(x) - 1),
    "last_by_slice": lambda x, k: x * x[-1],
    "tiled_by_size": lambda x, k: x + tf.reduce_mean(tf.tile(x[:1], [tf.minimum(_rows(x), 20 + k), 1]), 0),
    "padded_to": lambda x, k: tf.pad(x, [[0, tf.maximum(70 + k - _rows(x), 0)], [0, 0]]),
    "classes_by_size": lambda x, k: (
        x
        + tf.reduce_sum(
            tf.one_hot(_class_of(x), tf.maximum(4, _rows(x) - 60), dtype=tf.float64), 1, keepdims=True
        )
    ),
    "compared": lambda x, k: tf.where(_rows(x) > 40 + k, x, x + 1.0),
    "as_a_truth": lambda x, k: x + _as_float(tf.equal(_rows(x) % 2, 0)),
    "chosen": _chosen,
    "chosen_rows": _chosen_rows,
    "chosen_axis": _summed_over_a_chosen_axis,
    "through_a_function": lambda x, k: tf.reshape(x * _as_float(_size_of(x)), [_size_of(x), WIDTH]),
    "clipped_through_a_function": lambda x, k: x[: tf.minimum(_size_of(x), 25 + k)] * 2.0,
    "chunks": _chunks,
    "while_examples_last": _as_long_as_examples_last,
    "list": _list_of_clipped_length,
    "squeezed": lambda x, k: x + tf.reduce_sum(tf.squeeze(tf.reshape(x, [_rows(x), 1, WIDTH])), 0)[..., :1],
    "gradients": _of_gradients,
    "elements": lambda x, k: x / _as_float(tf.size(x)) + _as_float(tf.rank(x)),
    "rolled_by_size": lambda x, k: tf.roll(x, _rows(x) // 2, 0),
    "split_at": lambda x, k: tf.concat(
        [piece * (i + 1.0) for i, piece in enumerate(tf.split(x, [_rows(x) - 1, 1]))], 0
    ),
    "segments": lambda x, k: x + tf.math.unsorted_segment_mean(x, _class_of(x), tf.maximum(4, _rows(x)))[0],
    "linspace": lambda x, k: x * tf.linspace(tf.constant(0.0, tf.float64), 1.0, _rows(x))[:, tf.newaxis],
    "running_sum": lambda x, k: tf.cumsum(x) / _as_float(_rows(x)),
    "mask_of_first": lambda x, k: x * tf.sequence_mask(30 + k, _rows(x), tf.float64)[:, tf.newaxis],
    "broadcast": lambda x, k: (
        x + tf.reduce_mean(tf.broadcast_to(x[:1], tf.minimum(tf.shape(x), [20 + k, 9])), 0)
    ),
    "interpolated": lambda x, k: (
        x
        + tf.reduce_mean(
            tf.cast(tf.image.resize(tf.reshape(x, [1, -1, WIDTH, 1]), [8, WIDTH])[0, :, :, 0], tf.float64), 0
        )
    ),
    "filled": lambda x, k: (
        x + tf.reduce_sum(tf.fill([tf.minimum(_rows(x), 33 + k)], tf.constant(0.1, tf.float64)))
    ),
}
"""Steps that use the size; most of them hold for some batches alone."""


def random_steps(seed: int) -> list[tuple[str, int]]:
    """Two to five steps, with a number each: one or two that use the size among plain ones."""
    rng = np.random.default_rng(seed)
    names = [str(name) for name in rng.choice(sorted(PLAIN), rng.integers(1, 4))]
    for name in rng.choice(sorted(USES), rng.integers(1, 3)):
        names.insert(int(rng.integers(len(names) + 1)), str(name))
    return [(name, int(rng.integers(30))) for name in names]


def function_of(
    steps: list[tuple[str, int]],
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """The function of some steps: the rows, their mean, and how many there are."""

    def function(x):
        for name, number in steps:
            x = (PLAIN | USES)[name](x, number)
            x = tf.reshape(x, [-1, WIDTH])
        return tf.tanh(x) + 0.5, tf.reduce_mean(x, 0), tf.shape(x)[0]

    return function


def batches(seed: int, count: int) -> list[int]:
    """Batches from 1 to ``MOST_BATCH``, small ones, those of exports and large ones."""
    rng = np.random.default_rng(seed)
    small = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 26, 35]
    drawn = np.unique(np.exp(rng.uniform(0, np.log(MOST_BATCH), 10 * count)).astype(int))
    return sorted({*small[: count // 2], MOST_BATCH, *rng.permutation(drawn)[:count].tolist()})[:count]
