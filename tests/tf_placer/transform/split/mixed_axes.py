"""Programs that mix examples with shapes, attributes and axes as long as the batch; each takes ``[n, d]`` floats."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tf_placer.graph.item import Item

Body = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Takes examples ``[n, d]`` and weights ``[d, d]``."""


def _rows(x: tf.Tensor) -> int:
    return x.shape[0]


def _labels(x: tf.Tensor, classes: int) -> tf.Tensor:
    """A class for each example, made of its own numbers."""
    return tf.cast(tf.abs(tf.reduce_sum(x, 1)) * 100.0, tf.int32) % classes


def _contrast(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    z = tf.math.l2_normalize(x @ w, 1)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(_rows(x)), z @ tf.transpose(z) * 3.0)


def _clip(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    logits = tf.matmul(x @ w, tf.sin(x), transpose_b=True)
    target = tf.eye(_rows(x))
    rows = tf.nn.softmax_cross_entropy_with_logits(target, logits)
    return rows + tf.nn.softmax_cross_entropy_with_logits(target, tf.transpose(logits))


def _batch_norm(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    h = x @ w
    mean, variance = tf.nn.moments(h, [0], keepdims=True)
    return tf.nn.batch_normalization(h, mean, variance, None, None, 1e-3)


def _fused_norm(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    h = tf.reshape(x @ w, [_rows(x), 1, 1, -1])
    channels = h.shape[-1]
    y, _, _ = tf.compat.v1.nn.fused_batch_norm(h, tf.ones([channels]), tf.zeros([channels]))
    return y * h


def _masked(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    mask = tf.cast(_labels(x, 2) == 0, tf.float32)
    return tf.reduce_sum(tf.reduce_mean(tf.square(x @ w), 1) * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)


def _bands(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """Examples are diagonals of one matrix."""
    n, d = x.shape
    return tf.linalg.diag(x @ w, k=(0, n - 1), num_rows=d, num_cols=d + n - 1)


def _unique(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    values, where = tf.unique(_labels(x, 3))
    return (x @ w) * tf.cast(tf.gather(values, where) + where, tf.float32)[:, None]


def _image(x: tf.Tensor) -> tf.Tensor:
    n, d = x.shape
    return tf.tile(tf.reshape(x, [n, 1, d, 1]), [1, 4, 1, 3])


def _images(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    image = tf.image.resize(_image(x @ w), [6, 6])
    image = tf.image.flip_left_right(tf.image.flip_up_down(image))
    return tf.image.central_crop(image, 0.5)


def _jacobian(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.tanh(x @ w)
    return tape.batch_jacobian(y, x)


def _triplets(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    h = x @ w
    apart = tf.reduce_sum(tf.square(h[:, None] - h[None]), -1)
    labels = _labels(x, 2)
    same = tf.cast(labels[:, None] == labels[None], tf.float32) - tf.eye(_rows(x))
    return tf.nn.relu(tf.reduce_max(apart * same, 1) - tf.reduce_min(apart + 100.0 * same, 1) + 1.0)


def _attention(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """Every example looks at those before it."""
    scores = tf.matmul(x @ w, x, transpose_b=True)
    return tf.nn.softmax(scores - 1e9 * (1.0 - tf.linalg.band_part(tf.ones_like(scores), -1, 0))) @ x


def _gram(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    gram = tf.matmul(x @ w, x, transpose_b=True) / 10.0 + 5.0 * tf.eye(_rows(x))
    return tf.linalg.solve(gram, x) + tf.linalg.logdet(tf.matmul(gram, gram, transpose_b=True))


def _partition(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    which = _labels(x, 2)
    few, many = tf.dynamic_partition(x, which, 2)
    return tf.dynamic_stitch(tf.dynamic_partition(tf.range(_rows(x)), which, 2), [few @ w, many * 2.0])


PROGRAMS: Mapping[str, Body] = {
    "einsum_bb_b": lambda x, w: tf.einsum("bb->b", tf.matmul(x @ w, x, transpose_b=True)),
    "einsum_bb": lambda x, w: tf.einsum("bb->", tf.matmul(x @ w, x, transpose_b=True)),
    "einsum_bib_bi": lambda x, w: tf.einsum("bib->bi", tf.einsum("bi,ci->bic", x @ w, x)),
    "einsum_bii_bi": lambda x, w: tf.einsum("bii->bi", tf.einsum("bi,bj->bij", x @ w, x)),
    "einsum_bc": lambda x, w: tf.einsum("bi,ci,bj->cj", x @ w, x, x),
    "einsum_dots": lambda x, w: tf.einsum("...i,ij->...j", x, w),
    "trace": lambda x, w: tf.linalg.trace(tf.matmul(x @ w, x, transpose_b=True)),
    "diag_part": lambda x, w: tf.linalg.diag_part(tf.matmul(x @ w, x, transpose_b=True)),
    "tensor_diag_part": lambda x, w: tf.linalg.tensor_diag_part(tf.matmul(x @ w, x, transpose_b=True)),
    "tensor_diag": lambda x, w: tf.linalg.tensor_diag(tf.reduce_sum(x @ w, 1)),
    "diag": lambda x, w: tf.linalg.diag(x @ w),
    "diag_of_sums": lambda x, w: tf.linalg.diag(tf.reduce_sum(x @ w, 1)),
    "diag_k": lambda x, w: tf.linalg.diag(x @ w, k=1),
    "diag_sized": lambda x, w: tf.linalg.diag(x @ w, num_rows=x.shape[1], num_cols=x.shape[1] + 2),
    "diag_bands": _bands,
    "diag_part_bands": lambda x, w: tf.linalg.diag_part(
        tf.matmul(x @ w, x, transpose_b=True), k=(1 - _rows(x), _rows(x) - 1)
    ),
    "diag_part_band_of_each": lambda x, w: tf.linalg.diag_part(tf.einsum("bi,bj->bij", x @ w, x), k=(-1, 1)),
    "set_diag": lambda x, w: tf.linalg.set_diag(tf.matmul(x @ w, x, transpose_b=True), tf.zeros([_rows(x)])),
    "set_band": lambda x, w: tf.linalg.set_diag(tf.einsum("bi,bj->bij", x @ w, x), x[:, 1:], k=1),
    "band_part": lambda x, w: tf.linalg.band_part(tf.matmul(x @ w, x, transpose_b=True), 1, 0),
    "band_part_of_rows": lambda x, w: tf.linalg.band_part(x @ w, 0, -1),
    "eye": lambda x, w: tf.eye(_rows(x)) @ (x @ w),
    "eye_batch": lambda x, w: tf.eye(x.shape[1], batch_shape=[_rows(x)]) * (x @ w)[:, None],
    "toeplitz": lambda x, w: (
        tf.gather(tf.reduce_sum(x, 1), tf.abs(tf.range(_rows(x))[:, None] - tf.range(_rows(x))[None, :]))
        @ (x @ w)
    ),
    "one_hot_batch": lambda x, w: tf.one_hot(_labels(x, _rows(x)), _rows(x)) @ (x @ w),
    "scatter_rows": lambda x, w: (
        tf.scatter_nd((tf.range(_rows(x))[:, None] + 1) % _rows(x), x @ w, x.shape) * x
    ),
    "tensor_scatter": lambda x, w: tf.tensor_scatter_nd_add(
        x @ w, tf.stack([tf.range(_rows(x)), _labels(x, x.shape[1])], 1), tf.reduce_sum(x, 1)
    ),
    "memory": lambda x, w: tf.tensor_scatter_nd_update(
        tf.zeros_like(x), tf.reverse(tf.range(_rows(x)), [0])[:, None], x @ w
    ),
    "segment_sum": lambda x, w: tf.math.segment_sum(x @ w, tf.range(_rows(x)) // 2),
    "unsorted_mean": lambda x, w: tf.math.unsorted_segment_mean(x @ w, _labels(x, 3), 3),
    "unsorted_batch": lambda x, w: (
        tf.math.unsorted_segment_max(x @ w, _labels(x, _rows(x)), _rows(x)) * 0.001
    ),
    "sparse": lambda x, w: tf.sparse.sparse_dense_matmul(
        tf.sparse.SparseTensor(
            tf.stack([tf.range(_rows(x), dtype=tf.int64)] * 2, 1), tf.reduce_sum(x, 1), [_rows(x), _rows(x)]
        ),
        x @ w,
    ),
    "sparse_dense": lambda x, w: tf.sparse.to_dense(
        tf.sparse.SparseTensor(
            tf.stack([tf.range(_rows(x), dtype=tf.int64), tf.zeros([_rows(x)], tf.int64)], 1),
            tf.reduce_sum(x @ w, 1),
            [_rows(x), 2],
        )
    ),
    "transposed": lambda x, w: tf.linalg.matrix_transpose(x @ w) @ x,
    "tensordot": lambda x, w: tf.tensordot(x @ w, x, [[0], [0]]),
    "tensordot_all": lambda x, w: tf.tensordot(x @ w, x, 2),
    "cumsum": lambda x, w: tf.cumsum(x @ w, 0, exclusive=True, reverse=True),
    "cumprod": lambda x, w: tf.math.cumprod(tf.tanh(x @ w), 0),
    "logcumsum": lambda x, w: tf.math.cumulative_logsumexp(x @ w, 0),
    "sort": lambda x, w: tf.sort(x @ w, 0),
    "sorted": lambda x, w: (
        tf.gather(x @ w, tf.argsort(tf.reduce_sum(x, 1))) * tf.cast(tf.range(_rows(x))[:, None], tf.float32)
    ),
    "top_k": lambda x, w: tf.math.top_k(tf.transpose(x @ w), 2)[0],
    "unique": _unique,
    "ragged": lambda x, w: tf.reduce_sum(tf.RaggedTensor.from_row_splits(x @ w, [0, 1, _rows(x)]), 1),
    "ragged_lengths": lambda x, w: tf.reduce_sum(
        tf.RaggedTensor.from_tensor(x @ w, lengths=_labels(x, x.shape[1])) * 2.0, 1
    ),
    "images": _images,
    "crop": lambda x, w: tf.image.crop_and_resize(
        _image(x @ w), tf.tile([[0.0, 0.0, 0.9, 0.8]], [_rows(x), 1]), tf.range(_rows(x)), [2, 2]
    ),
    "fft": lambda x, w: (
        tf.abs(tf.signal.fft(tf.cast(x @ w, tf.complex64))) + tf.abs(tf.signal.ifft(tf.cast(x, tf.complex64)))
    ),
    "fft_over_batch": lambda x, w: tf.abs(tf.signal.fft2d(tf.cast(x @ w, tf.complex64))),
    "rfft": lambda x, w: tf.signal.irfft(tf.signal.rfft(tf.tile(x @ w, [1, 2]))),
    "softmax_over_batch": lambda x, w: tf.nn.softmax(x @ w, 0) * x,
    "logsumexp": lambda x, w: tf.reduce_logsumexp(x @ w, 0),
    "contrast": _contrast,
    "clip_loss": _clip,
    "triplets": _triplets,
    "attention": _attention,
    "gram": _gram,
    "cholesky": lambda x, w: tf.linalg.triangular_solve(
        tf.linalg.cholesky(
            tf.einsum("bi,bj->bij", x @ w, x @ w) + tf.eye(x.shape[1], batch_shape=[_rows(x)])
        ),
        x[..., None],
    ),
    "batch_norm": _batch_norm,
    "fused_norm": _fused_norm,
    "layer_norm": lambda x, w: (x @ w - tf.reduce_mean(x @ w, 1, keepdims=True)) * 2.0,
    "masked": _masked,
    "roll": lambda x, w: tf.roll(x @ w, 1, 0) * x,
    "roll_both": lambda x, w: tf.roll(x @ w, [1, 2], [0, 1]) * x,
    "reverse": lambda x, w: tf.reverse(x @ w, [0]) * x,
    "reverse_both": lambda x, w: tf.reverse(x @ w, [0, 1]) * x,
    "reverse_sequence": lambda x, w: tf.reverse_sequence(x @ w, _labels(x, x.shape[1]) + 1, seq_axis=1),
    "reverse_sequence_over_batch": lambda x, w: tf.reverse_sequence(
        x @ w, tf.fill([x.shape[1]], 2), seq_axis=0, batch_axis=1
    ),
    "map_fn": lambda x, w: tf.map_fn(lambda row: tf.linalg.matvec(w, row) * tf.reduce_sum(row), x),
    "vectorized_map": lambda x, w: tf.vectorized_map(lambda row: tf.linalg.diag(tf.linalg.matvec(w, row)), x),
    "scan": lambda x, w: tf.scan(lambda state, row: tf.tanh(state + tf.linalg.matvec(w, row)), x),
    "fold": lambda x, w: tf.foldl(lambda state, row: state * 0.5 + tf.linalg.matvec(w, row), x),
    "batch_jacobian": _jacobian,
    "where": lambda x, w: tf.gather(x @ w, tf.where(tf.reduce_sum(x, 1) > 0.0)[:, 0]),
    "boolean_mask": lambda x, w: tf.boolean_mask(x @ w, tf.reduce_sum(x, 1) > 0.0),
    "partition": _partition,
    "conv_over_batch": lambda x, w: tf.nn.conv1d(x[None] @ w, tf.ones([2, x.shape[1], 2]), 1, "SAME"),
    "ctc": lambda x, w: tf.nn.ctc_loss(
        tf.ones([_rows(x), 1], tf.int32),
        tf.tile((x @ w)[None], [4, 1, 1]),
        tf.ones([_rows(x)], tf.int32),
        tf.fill([_rows(x)], 4),
        blank_index=0,
    ),
    "padded": lambda x, w: tf.pad(x @ w, [[1, 2], [0, 1]])[1:-1, ::-1],
    "shifted": lambda x, w: (
        tf.concat([(x @ w)[1:], (x @ w)[:1]], 0) * (x @ w)
        + tf.concat([tf.zeros([1, x.shape[1]]), (x @ w)[:-1]], 0)
    ),
    "meshgrid": lambda x, w: tf.add_n(tf.meshgrid(tf.reduce_sum(x @ w, 1), tf.reduce_max(x, 1))),
    "outer_product": lambda x, w: tf.reshape(x @ w, [1, -1]) * tf.reshape(x, [-1, 1]),
    "repeat": lambda x, w: tf.repeat(x @ w, 2, 0),
    "repeat_by_index": lambda x, w: tf.repeat(x @ w, tf.range(_rows(x)), 0),
    "tile": lambda x, w: tf.tile(x @ w, [2, 1]) * tf.concat([x, x * 2.0], 0),
    "stack_rows": lambda x, w: tf.stack(tf.unstack(x @ w)[::-1]),
    "split_rows": lambda x, w: tf.add_n(tf.split(x @ w, [1] * _rows(x))),
    "strides": lambda x, w: (x @ w)[::2],
    "first": lambda x, w: (x @ w)[0] * x,
    "nth": lambda x, w: tf.gather(x @ w, [0, 1]) @ tf.transpose(x),
    "gather_batch_dims": lambda x, w: tf.gather(x @ w, _labels(x, x.shape[1]), batch_dims=1),
    "gather_nd_batch": lambda x, w: tf.gather_nd(
        x @ w, tf.stack([tf.range(_rows(x)), _labels(x, x.shape[1])], 1)
    ),
    "broadcast": lambda x, w: tf.broadcast_to(tf.reduce_sum(x @ w, 1), [_rows(x), _rows(x)]) @ x,
    "norm": lambda x, w: (x @ w) / tf.norm(x @ w),
    "norm_of_columns": lambda x, w: tf.math.l2_normalize(x @ w, 0),
    "clip_norm": lambda x, w: tf.clip_by_global_norm([x @ w, x], 1.0)[0][0],
    "std": lambda x, w: tf.math.reduce_std(x @ w, 0) * x,
    "product": lambda x, w: tf.reduce_prod(x @ w, 0),
    "largest": lambda x, w: tf.reduce_max(x @ w) * x,
    "argmax": lambda x, w: tf.gather(x @ w, tf.argmax(x, 0)),
    "equal": lambda x, w: (
        tf.cast(tf.equal(_labels(x, 3)[:, None], _labels(x, 3)[None]), tf.float32) @ (x @ w)
    ),
    "confusion": lambda x, w: (
        tf.cast(tf.math.confusion_matrix(_labels(x, 3), _labels(x @ w, 3), 3), tf.float32)
        * tf.reduce_sum(x @ w)
    ),
    "bincount": lambda x, w: (
        tf.cast(tf.math.bincount(_labels(x, 3), minlength=3, maxlength=3), tf.float32) * tf.reduce_sum(x @ w)
    ),
    "histogram": lambda x, w: (
        tf.cast(tf.histogram_fixed_width(x @ w, [-1.0, 1.0], 5), tf.float32) * tf.reduce_sum(x @ w)
    ),
    "searchsorted": lambda x, w: (
        tf.cast(tf.searchsorted(tf.sort(tf.reduce_sum(x, 1)), tf.reduce_sum(x @ w, 1)), tf.float32)[:, None]
        * (x @ w)
    ),
    "space_to_batch": lambda x, w: tf.space_to_batch((x @ w)[:, :2, None, None], [2, 1], [[0, 0], [0, 0]]),
    "sequence_mask": lambda x, w: tf.sequence_mask(_labels(x, x.shape[1]), x.shape[1], tf.float32) * (x @ w),
    "gradient_penalty": lambda x, w: tf.gradients(tf.reduce_sum(tf.tanh(x @ w), 1), x)[0] * x,
    "hessian": lambda x, w: tf.hessians(tf.reduce_sum(tf.tanh(x @ w)), w)[0],
    "svd": lambda x, w: tf.linalg.svd(tf.einsum("bi,bj->bij", x, x) + w @ tf.transpose(w), compute_uv=False),
    "expm": lambda x, w: tf.linalg.expm(tf.linalg.diag(x @ w) * 0.1),
    "det": lambda x, w: tf.linalg.det(tf.linalg.diag(x @ w) + 0.1),
    "cross": lambda x, w: tf.linalg.cross(
        tf.tile((x @ w)[:, :1], [1, 3]), tf.tile(x[:, 1:2], [1, 3]) * [1.0, 2.0, 3.0]
    ),
    "select_v1": lambda x, w: tf.compat.v1.where(tf.reduce_sum(x, 1) > 0.0, x @ w, x),
    "switch_case": lambda x, w: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x @ w, lambda: x * 2.0),
    "accumulate": lambda x, w: tf.math.accumulate_n([x @ w, x, x * x]),
    "pool_over_batch": lambda x, w: tf.nn.max_pool1d((x @ w)[None], 2, 1, "SAME"),
    "dropout": lambda x, w: tf.nn.experimental.stateless_dropout(x @ w, 0.4, [1, 2]),
}


def item_of(name: str, examples: int, features: int) -> Item:
    """A program's output, and the gradients of its sum, weighted by position, by examples and weights."""
    body = PROGRAMS[name]
    rng = np.random.default_rng([len(name), examples, features])
    x = rng.normal(size=[examples, features]).astype(np.float32)
    weights = tf.Variable(rng.normal(size=[features, features]).astype(np.float32))

    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = body(x, weights.read_value())
            places = tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)), y.dtype)
            weighted = tf.reduce_sum(tf.cos(places) * y * y)
        gradients = tape.gradient(weighted, [x, weights])
        return [y, *(tf.convert_to_tensor(one) for one in gradients if one is not None)]

    return Item.from_function(step, tf.constant(x))
