"""Ragged, sparse and other tensors of several parts, and shapes that depend on data."""

from typing import Any

import tensorflow as tf

from tests.corpus.program import Make

ROWS = [[1.0, 2.0, 3.0], [], [4.0], [5.0, 6.0]]


def ragged_in_and_out(make: Make) -> Any:
    """A ragged tensor as argument and result."""
    f = make.traced(lambda x: (x * 2.0, tf.reduce_sum(x, axis=1), x.to_tensor()))
    return f(tf.ragged.constant(ROWS)), f(tf.ragged.constant(ROWS[:2]))


def ragged_with_weights(make: Make) -> Any:
    """Rows of different lengths share a dense layer; gradients of what it learns."""
    w = tf.Variable([[1.0, -2.0]])

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            rows = tf.RaggedTensor.from_row_splits(x.flat_values[:, tf.newaxis] @ w, x.row_splits)
            loss = tf.reduce_sum(tf.tanh(rows.flat_values))
        return rows, tape.gradient(loss, w)

    return f(tf.ragged.constant(ROWS))


def ragged_map_and_concat(make: Make) -> Any:
    """A function of each row, and rows put side by side."""

    @make.traced
    def f(x):
        sums = tf.map_fn(tf.reduce_sum, x, fn_output_signature=tf.float32)
        return sums, tf.concat([x, x + 1.0], axis=1)

    return f(tf.ragged.constant(ROWS))


def sparse_in_and_out(make: Make) -> Any:
    """A sparse tensor as argument and result, and its product with weights."""
    w = tf.Variable([[1.0], [2.0], [3.0]])

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            y = tf.sparse.sparse_dense_matmul(x, w)
        return y, tf.sparse.reorder(x * 2.0), tape.gradient(y, w)

    return f(tf.SparseTensor([[0, 1], [1, 2]], [3.0, 4.0], [2, 3]))


def sparse_from_data(make: Make) -> Any:
    """How many entries are not zero depends on the values."""
    f = make.traced(lambda x: (tf.sparse.from_dense(x), tf.where(x > 0.0)))
    return f(tf.constant([[0.0, 1.0], [2.0, 0.0]])), f(tf.constant([[3.0, 1.0], [2.0, 4.0]]))


def masks_and_unique_values(make: Make) -> Any:
    """Boolean masks, unique values and partitions: their sizes depend on data."""

    @make.traced
    def f(x):
        kept = tf.boolean_mask(x, x > 2)
        values, where, counts = tf.unique_with_counts(x)
        low, high = tf.dynamic_partition(x, tf.cast(x > 2, tf.int32), 2)
        return kept * 2, values, where, counts, low, tf.dynamic_stitch([[0, 1], [2]], [low[:2], high[:1]])

    return f(tf.constant([1, 3, 3, 1, 5])), f(tf.constant([2, 1, 3, 9, 9]))


def gradients_of_a_gather(make: Make) -> Any:
    """Gradients that are slices of a table, as they come and as Adam takes them."""
    table = tf.Variable(tf.reshape(tf.range(12.0), [6, 2]))

    @make.traced
    def f(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, ids) ** 2)
        slices = tape.gradient(loss, table)
        table.scatter_sub(tf.IndexedSlices(0.1 * slices.values, slices.indices))
        return slices

    return f(tf.constant([1, 4, 1])), f(tf.constant([0, 0, 5])), table.numpy()


def boxes_that_survive(make: Make) -> Any:
    """Non-maximum suppression keeps as many boxes as it finds."""
    boxes = tf.constant([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.9, 1.0], [2.0, 2.0, 3.0, 3.0]])

    @make.traced
    def f(boxes, scores):
        kept = tf.image.non_max_suppression(boxes, scores, 3, iou_threshold=0.5)
        return kept, tf.gather(boxes, kept)

    return f(boxes, tf.constant([0.9, 0.8, 0.7])), f(boxes, tf.constant([0.1, 0.8, 0.7]))


def an_extension_type(make: Make) -> Any:
    """A type of the user's own, as argument and result."""

    class Masked(tf.experimental.ExtensionType):
        values: tf.Tensor
        mask: tf.Tensor

        def mean(self):
            kept = tf.cast(self.mask, tf.float32)
            return tf.reduce_sum(self.values * kept) / tf.reduce_sum(kept)

    f = make.traced(lambda x: (Masked(x.values - x.mean(), x.mask), x.mean()))
    masked, mean = f(Masked(tf.constant([1.0, 2.0, 6.0]), tf.constant([True, True, False])))
    return masked.values, masked.mask, mean


def a_shape_is_computed(make: Make) -> Any:
    """Reshapes, ranges and fills whose sizes are tensors."""

    @tf.function(input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([], tf.int32)])
    def f(x, n):
        rows = tf.shape(x)[0]
        tiled = tf.tile(x, [n, 1])
        return tf.reshape(tiled, [rows, -1]), tf.range(n), tf.fill([n, rows], 1.5)

    f = make(f)
    return f(tf.ones([2, 3]), 2), f(tf.ones([3, 1]), 4)
