"""Everything a random program can do: its operations by name, with their signatures."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.equivalence.programs import KINDS, Program, Signature, random_program
from tests.equivalence.state import TABLE_ROWS, Scope

_ITERATIONS = 3


def _image(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [1, 4, 4, 1])


def _square(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [4, 4])


def _row(i: tf.Tensor) -> tf.Tensor:
    """Row numbers from any integers."""
    return tf.math.floormod(i, 4)


def _kernel(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x[:2, :2], [2, 2, 1, 1])


def _batch_norm(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, axes=[0])
    return tf.nn.batch_normalization(x, mean, variance, v, v * 0.5, 1e-3)


def _fused_batch_norm(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    image = tf.reshape(x, [1, 2, 2, 4])
    y, mean, variance = tf.compat.v1.nn.fused_batch_norm(image, v, v * 0.5, is_training=True)
    return tf.reshape(y, [4, 4]) + mean * tf.tanh(variance)


def _identity_n(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    x, doubled, v = tf.identity_n([x, x * 2.0, v])
    return tf.tanh(x) - doubled + v


def _identity_n_waited_for(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.sin(x)]):
        first, second = tf.identity_n([x, v])
    with tf.control_dependencies([first.op]):
        return tf.cos(x) * second


def _swapped_halves(x: tf.Tensor) -> tf.Tensor:
    left, right = tf.split(x, 2, axis=1)
    return tf.concat([right, left * 0.5], axis=1)


def _restacked(x: tf.Tensor) -> tf.Tensor:
    rows = tf.unstack(x)
    return tf.stack([rows[2], rows[0], rows[3], rows[1] * rows[0]], axis=1)


def _top(x: tf.Tensor) -> tf.Tensor:
    values, positions = tf.math.top_k(x, 4)
    return values * tf.cast(positions, tf.float32)


def _colocated(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    leader = tf.identity(x)
    with tf.compat.v1.colocate_with(leader):
        follower = tf.tanh(y)
    return leader - follower


def _colocated_three(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    leader = tf.abs(x)
    with tf.compat.v1.colocate_with(leader.op):
        first = tf.exp(-leader)
        second = v * 0.5
    return first + second


def _after(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.sin(x)]):
        return tf.identity(y)


def _barrier(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.sin(x), tf.cos(y)]):
        everything = tf.no_op()
    with tf.control_dependencies([everything]):
        return tf.square(x) - tf.sqrt(tf.abs(y))


def _reduced_dataset(x: tf.Tensor) -> tf.Tensor:
    numbers = tf.data.Dataset.range(3)
    return numbers.reduce(x, lambda total, k: tf.tanh(total) + tf.cast(k, tf.float32))


def _array(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    rows = tf.TensorArray(tf.float32, 4, element_shape=[4], clear_after_read=False).unstack(x)
    rows = rows.write(2, v)
    return rows.stack() * rows.read(0)


# Without state: kinds taken ``>`` kind given, and a function of the tensors.
_PURE: dict[str, tuple[str, Callable[..., tf.Tensor]]] = {
    # matrices
    "add": ("mm>m", tf.add),
    "subtract": ("mm>m", tf.subtract),
    "multiply": ("mm>m", tf.multiply),
    "divide": ("mm>m", tf.math.divide_no_nan),
    "maximum": ("mm>m", tf.maximum),
    "squared_difference": ("mm>m", lambda x, y: tf.math.squared_difference(tf.tanh(x), y)),
    "atan2": ("mm>m", tf.atan2),
    "where": ("mm>m", lambda x, y: tf.where(x > y, x * 0.5, y)),
    "matmul": ("mm>m", lambda x, y: tf.matmul(x, y) * 0.25),
    "matmul_transposed": ("mm>m", lambda x, y: tf.matmul(x, y, transpose_a=True) * 0.25),
    "batch_matmul": ("mm>m", lambda x, y: _square(tf.matmul(x[tf.newaxis], y[tf.newaxis])) * 0.25),
    "einsum": ("mm>m", lambda x, y: tf.einsum("ij,kj->ik", x, y) * 0.25),
    "tanh": ("m>m", tf.tanh),
    "relu": ("m>m", tf.nn.relu),
    "elu": ("m>m", tf.nn.elu),
    "leaky_relu": ("m>m", tf.nn.leaky_relu),
    "sigmoid": ("m>m", tf.sigmoid),
    "softmax": ("m>m", tf.nn.softmax),
    "log_softmax": ("m>m", tf.nn.log_softmax),
    "softplus": ("m>m", tf.nn.softplus),
    "erf": ("m>m", tf.math.erf),
    "rsqrt": ("m>m", lambda x: tf.math.rsqrt(tf.abs(x) + 1.0)),
    "log1p": ("m>m", lambda x: tf.math.log1p(tf.abs(x))),
    "floor": ("m>m", lambda x: x - tf.floor(x)),
    "sign": ("m>m", lambda x: tf.sign(x) + x * 0.1),
    "transpose": ("m>m", tf.transpose),
    "reverse": ("m>m", lambda x: tf.reverse(x, [1])),
    "roll": ("m>m", lambda x: tf.roll(x, 1, 0)),
    "cumsum": ("m>m", lambda x: tf.cumsum(x, axis=1, exclusive=True)),
    "cumprod": ("m>m", lambda x: tf.math.cumprod(tf.tanh(x), reverse=True)),
    "sort": ("m>m", tf.sort),
    "top_k": ("m>m", _top),
    "band_part": ("m>m", lambda x: tf.linalg.band_part(x, 1, 2)),
    "inverse": ("m>m", lambda x: tf.linalg.inv(tf.matmul(x, x, transpose_b=True) * 0.1 + tf.eye(4))),
    "padded": ("m>m", lambda x: tf.pad(x, [[1, 0], [0, 1]])[:4, 1:]),
    "tile": ("mv>m", lambda x, v: x * tf.tile(v[tf.newaxis], [4, 1])),
    "swapped_halves": ("m>m", _swapped_halves),
    "restacked": ("m>m", _restacked),
    "double_precision": ("m>m", lambda x: tf.cast(tf.sin(tf.cast(x, tf.float64)), tf.float32)),
    "half_precision": ("m>m", lambda x: tf.cast(tf.cast(x, tf.bfloat16) * 0.5, tf.float32)),
    "complex": ("mm>m", lambda x, y: tf.math.imag(tf.complex(x, y) * tf.complex(y, x)) * 0.5),
    "bias_add": ("mv>m", tf.nn.bias_add),
    "scale": ("ms>m", lambda x, s: x * tf.tanh(s)),
    "convolution": ("mm>m", lambda x, y: _square(tf.nn.conv2d(_image(x), _kernel(y), 1, "SAME"))),
    "convolution_and_bias": (
        "mms>m",
        lambda x, y, s: _square(
            tf.nn.relu(
                tf.nn.bias_add(tf.nn.conv2d(_image(x), _kernel(y), 1, "SAME"), tf.reshape(tf.tanh(s), [1]))
            )
        ),
    ),
    "depthwise_convolution": (
        "mm>m",
        lambda x, y: _square(tf.nn.depthwise_conv2d(_image(x), _kernel(y), [1, 1, 1, 1], "SAME")),
    ),
    "max_pool": ("m>m", lambda x: _square(tf.nn.max_pool2d(_image(x), 2, 1, "SAME"))),
    "average_pool": ("m>m", lambda x: _square(tf.nn.avg_pool2d(_image(x), 2, 1, "SAME"))),
    "space_to_depth": ("m>m", lambda x: _square(tf.nn.space_to_depth(_image(x), 2))),
    "batch_norm": ("mv>m", _batch_norm),
    "fused_batch_norm": ("mv>m", _fused_batch_norm),
    "identity_n": ("mv>m", _identity_n),
    "identity_n_waited_for": ("mv>m", _identity_n_waited_for),
    "colocated": ("mm>m", _colocated),
    "colocated_three": ("mv>m", _colocated_three),
    "after": ("mm>m", _after),
    "barrier": ("mm>m", _barrier),
    "rows_mapped": ("m>m", lambda x: tf.map_fn(lambda row: tf.cumsum(row) * 0.25, x, parallel_iterations=1)),
    "scanned": ("m>m", lambda x: tf.scan(lambda total, row: tf.tanh(total + row), x, parallel_iterations=1)),
    "reduced_dataset": ("m>m", _reduced_dataset),
    "array": ("mv>m", _array),
    "stop_gradient": ("mm>m", lambda x, y: tf.stop_gradient(x) * tf.tanh(y)),
    # matrices by numbers
    "gather": ("mi>m", lambda x, i: tf.gather(x, _row(i))),
    "gather_batches": ("mi>v", lambda x, i: tf.gather(x, _row(i), batch_dims=1)),
    "one_hot": ("i>m", lambda i: tf.one_hot(_row(i), 4, on_value=0.5)),
    "scatter": ("mi>m", lambda x, i: tf.scatter_nd(_row(i)[:, tf.newaxis], x, [4, 4])),
    "tensor_scatter": ("mim>m", lambda x, i, y: tf.tensor_scatter_nd_add(x, _row(i)[:, tf.newaxis], y)),
    "segment_sum": ("mi>m", lambda x, i: tf.math.unsorted_segment_sum(x, _row(i), 4)),
    "segment_max": ("mi>m", lambda x, i: tf.maximum(tf.math.unsorted_segment_max(x, _row(i), 4), -1.0)),
    "outer": ("vv>m", lambda v, w: tf.tensordot(v, tf.tanh(w), 0)),
    "diagonal": ("v>m", tf.linalg.diag),
    # vectors and scalars
    "sum_rows": ("m>v", lambda x: tf.reduce_sum(x, axis=1)),
    "mean_columns": ("m>v", lambda x: tf.reduce_mean(x, axis=0)),
    "max_columns": ("m>v", lambda x: tf.reduce_max(x, axis=0)),
    "product_rows": ("m>v", lambda x: tf.reduce_prod(tf.tanh(x), axis=1)),
    "log_sum_exp": ("m>v", lambda x: tf.reduce_logsumexp(x, axis=1)),
    "diagonal_part": ("m>v", tf.linalg.diag_part),
    "cross_entropy": (
        "mi>v",
        lambda x, i: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=_row(i), logits=x),
    ),
    "matvec": ("mv>v", lambda x, v: tf.linalg.matvec(x, v) * 0.5),
    "add_vectors": ("vv>v", lambda v, w: tf.add_n([v, w, tf.tanh(v)])),
    "scale_vector": ("vs>v", lambda v, s: v * tf.sigmoid(s)),
    "float_of_integers": ("i>v", lambda i: tf.cast(i, tf.float32) * 0.125),
    "sum": ("m>s", tf.reduce_sum),
    "half_norm": ("v>s", tf.nn.l2_loss),
    "select": ("fss>s", lambda f, s, r: tf.where(f, s, r * 0.5)),
    "float_of_flag": ("f>s", lambda f: tf.cast(f, tf.float32) - 0.25),
    # integers, flags and texts
    "argmax": ("m>i", lambda x: tf.argmax(x, axis=1, output_type=tf.int32)),
    "argsort": ("v>i", tf.argsort),
    "top_positions": ("m>i", lambda x: tf.math.top_k(x[1], 4).indices),
    "rounded": ("v>i", lambda v: tf.cast(tf.round(tf.clip_by_value(v, -9.0, 9.0)), tf.int32)),
    "histogram": ("m>i", lambda x: tf.histogram_fixed_width(x, [-1.0, 1.0], nbins=4)),
    "add_integers": ("ii>i", tf.add),
    "modulo": ("ii>i", lambda i, j: tf.math.floormod(i, tf.abs(j) + 1)),
    "exclusive_or": ("ii>i", tf.bitwise.bitwise_xor),
    "shift": ("i>i", lambda i: tf.bitwise.left_shift(i, tf.ones_like(i)) // 2 - i),
    "long_integers": ("i>i", lambda i: tf.cast(tf.cast(i, tf.int64) * 3 - 1, tf.int32)),
    "search_sorted": ("vi>i", lambda v, i: tf.searchsorted(tf.sort(v), tf.cast(_row(i), tf.float32))),
    "any_above": ("i>f", lambda i: tf.reduce_any(i > 2)),
    "all_below": ("m>f", lambda x: tf.reduce_all(x < 1.5)),
    "not": ("f>f", tf.logical_not),
    "and": ("ff>f", tf.logical_and),
    "compare": ("ss>f", tf.greater),
    "text_of_integers": ("i>t", tf.strings.as_string),
    "join_texts": ("tt>t", lambda t, u: tf.strings.substr(tf.strings.join([t, u], "-"), 0, 12)),
    "upper": ("t>t", tf.strings.upper),
    "replace_in_text": ("t>t", lambda t: tf.strings.regex_replace(t, "[13]", "x")),
    "text_length": ("t>i", tf.strings.length),
    "text_hash": ("t>i", lambda t: tf.cast(tf.strings.to_hash_bucket_fast(t, 10), tf.int32)),
    # random numbers without state
    "stateless_normal": ("i>m", lambda i: tf.random.stateless_normal([4, 4], i[:2])),
    "stateless_uniform": ("i>v", lambda i: tf.random.stateless_uniform([4], i[1:3])),
}


def _cell(i: tf.Tensor) -> tf.Tensor:
    return tf.stack([_row(i), tf.range(4)], axis=1)


def _slices(x: tf.Tensor, i: tf.Tensor) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.tanh(x), _row(i))


def _result_after(effect: Any, result: tf.Tensor) -> tf.Tensor:
    """What does not depend on an effect: only a control output says that it must run."""
    return result


def _assign_and_read(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    before = scope.matrix.read_value()
    scope.matrix.assign(tf.tanh(x))
    return before - scope.matrix.read_value()


def _momentum(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    slots = {"var": scope.matrix.handle, "accum": scope.other_matrix(1).handle}
    tf.raw_ops.ResourceApplyMomentum(lr=0.1, grad=tf.tanh(x), momentum=0.9, use_nesterov=True, **slots)
    return scope.matrix.read_value()


def _adam(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    slots = {"var": scope.matrix.handle, "m": scope.other_matrix(1).handle, "v": scope.other_matrix(2).handle}
    rates = {"beta1_power": 0.9, "beta2_power": 0.99, "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "epsilon": 1.0}
    tf.raw_ops.ResourceApplyAdam(grad=tf.tanh(x), **slots, **rates)
    return x


def _count_twice(scope: Scope) -> tf.Tensor:
    scope.state.count.assign_add(1)
    scope.state.count.assign_add(1)
    return tf.cast(scope.state.count, tf.float32)


def _swap_variables(scope: Scope) -> tf.Tensor:
    first, second = scope.matrix.read_value(), scope.other_matrix(1).read_value()
    scope.matrix.assign(second)
    scope.other_matrix(1).assign(first)
    return first


def _record(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    tf.numpy_function(lambda value: scope.state.recorded.append(value.tobytes()), [x], [])
    return x


def _asserted(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    is_number = tf.reduce_all(tf.equal(tf.abs(x) >= 0.0, True))
    with tf.control_dependencies([tf.debugging.Assert(tf.logical_or(is_number, True), [x])]):
        return tf.identity(x)


# What reads or changes state: functions of a ``Scope`` and the tensors.
_STATEFUL: dict[str, tuple[str, Callable[..., tf.Tensor]]] = {
    # variables
    "use": ("m>m", lambda scope, x: tf.matmul(x, scope.matrix) * 0.25),
    "read": (">m", lambda scope: scope.matrix.read_value()),
    "assign": ("m>m", lambda scope, x: _result_after(scope.matrix.assign(tf.tanh(x)), x + 1.0)),
    "assign_and_read": ("m>m", _assign_and_read),
    "assign_add": (
        "m>m",
        lambda scope, x: _result_after(
            scope.matrix.assign_add(tf.clip_by_value(x, -0.5, 0.5)), scope.matrix * 0.5
        ),
    ),
    "assign_sub": ("m>m", lambda scope, x: _result_after(scope.matrix.assign_sub(tf.sigmoid(x)), x)),
    "scatter_update": (
        "mi>m",
        lambda scope, x, i: _result_after(
            scope.matrix.scatter_update(_slices(x, i)), scope.matrix.read_value()
        ),
    ),
    "scatter_add": ("mi>m", lambda scope, x, i: _result_after(scope.matrix.scatter_add(_slices(x, i)), x)),
    "scatter_nd": (
        "vi>v",
        lambda scope, v, i: _result_after(scope.matrix.scatter_nd_sub(_cell(i), v), v * 2.0),
    ),
    "assign_slice": (
        "v>v",
        lambda scope, v: _result_after(scope.matrix[1].assign(tf.tanh(v)), scope.matrix[:, 1]),
    ),
    "sparse_read": ("i>m", lambda scope, i: scope.matrix.sparse_read(_row(i))),
    "sparse_read_nd": ("i>v", lambda scope, i: scope.matrix.gather_nd(_cell(i))),
    "gradient_descent": (
        "m>m",
        lambda scope, x: _result_after(
            tf.raw_ops.ResourceApplyGradientDescent(var=scope.matrix.handle, alpha=0.1, delta=tf.tanh(x)), x
        ),
    ),
    "momentum": ("m>m", _momentum),
    "adam": ("m>m", _adam),
    "count": (">f", lambda scope: _result_after(scope.state.count.assign_add(1), scope.state.count % 2 == 0)),
    "count_twice": (">s", _count_twice),
    "swap_variables": (">m", _swap_variables),
    # captures
    "look_up": (
        "i>m",
        lambda scope, i: tf.gather(tf.stop_gradient(scope.state.table), tf.math.floormod(i, TABLE_ROWS))[
            :, :4
        ],
    ),
    "offset": ("m>m", lambda scope, x: x - scope.state.offset),
    # random numbers
    "normal_op_seed": (">m", lambda scope: tf.random.normal([4, 4], seed=scope.number + 1)),
    "uniform_global_seed": (">m", lambda scope: tf.random.uniform([4, 4], -1.0, 1.0)),
    "random_integers": (">i", lambda scope: tf.random.uniform([4], 0, 100, tf.int32, seed=scope.number)),
    "truncated_normal": (">v", lambda scope: tf.random.truncated_normal([4], seed=scope.number + 2)),
    "shuffle": ("m>m", lambda scope, x: tf.random.shuffle(x, seed=scope.number + 3)),
    "dropout": ("m>m", lambda scope, x: tf.nn.dropout(x, 0.5, seed=scope.number + 4)),
    "categorical": (
        "m>i",
        lambda scope, x: tf.random.categorical(x, 1, tf.int32, seed=scope.number + 5)[:, 0],
    ),
    "generator": (">m", lambda scope: scope.state.generator.normal([4, 4])),
    # Python
    "record": ("m>m", _record),
    "asserted": ("m>m", _asserted),
}


def _call(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    captured = tf.sin(x)  # of the caller's graph

    @tf.function(autograph=False)
    def nested(y: tf.Tensor, *arguments: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        leader = tf.identity(scope.blocks[0](y, *arguments), name="leader")  # no name of the caller's ops
        with tf.compat.v1.colocate_with(leader):
            return leader, tf.multiply(leader, captured)

    first, second = nested(x, *others)
    return first - second


def _call_twice(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    @tf.function(autograph=False)
    def nested(y: tf.Tensor, z: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"result": scope.blocks[0](y - z, *others), "other": z}

    first = nested(x, tf.tanh(x))
    second = nested(first["other"], first["result"])
    return second["result"]


def _call_for_effects(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    @tf.function(autograph=False)
    def nested(y: tf.Tensor) -> None:
        scope.matrix.assign_add(tf.tanh(scope.blocks[0](y, *others)))

    before = scope.matrix.read_value()
    nested(x)
    return before  # only a control output says that the call must run


def _condition(scope: Scope, *inputs: tf.Tensor) -> tf.Tensor:
    flag = inputs[KINDS.index("f")]
    return tf.cond(flag, lambda: scope.blocks[0](*inputs), lambda: scope.blocks[1](*inputs))


def _switch(scope: Scope, *inputs: tf.Tensor) -> tf.Tensor:
    branch = tf.math.floormod(inputs[KINDS.index("i")][0], 3)
    return tf.switch_case(branch, [lambda block=block: block(*inputs) for block in scope.blocks])


def _loop(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    # One iteration after the other: a stateful random op draws in the order of the iterations.
    return tf.while_loop(
        lambda k, _: k < _ITERATIONS,
        lambda k, y: (k + 1, tf.tanh(scope.blocks[0](y, *others))),
        [tf.constant(0), x],
        parallel_iterations=1,
    )[1]


def _loop_with_array(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    def body(k: tf.Tensor, y: tf.Tensor, rows: tf.TensorArray) -> tuple:
        y = tf.tanh(scope.blocks[0](y, *others))
        return k + 1, y, rows.write(k, y[0])

    rows = tf.TensorArray(tf.float32, _ITERATIONS, element_shape=[4])
    _, y, rows = tf.while_loop(
        lambda k, *_: k < _ITERATIONS, body, [tf.constant(0), x, rows], parallel_iterations=1
    )
    return tf.concat([rows.stack(), y[:1]], axis=0)


def _gradient(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.square(scope.blocks[0](x, *others)))
    return tf.stop_gradient(tape.gradient(loss, x, unconnected_gradients="zero"))


def _train(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(scope.blocks[0](tf.matmul(x, scope.matrix), *others)))
    gradient = tf.convert_to_tensor(tape.gradient(loss, scope.matrix, unconnected_gradients="zero"))
    scope.matrix.assign_sub(tf.clip_by_value(gradient, -0.5, 0.5))
    return tf.stop_gradient(x * loss)


def _train_through_loop(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    def body(k: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return k + 1, tf.tanh(tf.matmul(scope.blocks[0](y, *others), scope.matrix))

    with tf.GradientTape() as tape:
        y = tf.while_loop(lambda k, _: k < 2, body, [tf.constant(0), x], parallel_iterations=1)[1]
        loss = tf.reduce_sum(y)
    gradient = tf.convert_to_tensor(tape.gradient(loss, scope.matrix))
    scope.matrix.assign_sub(tf.clip_by_value(gradient, -0.5, 0.5))
    return tf.stop_gradient(y)


def _custom_gradient(scope: Scope, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def clipped(y: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return tf.identity(y), lambda upstream: tf.clip_by_value(upstream * 3.0, -0.5, 0.5)

    return scope.blocks[0](clipped(x), *others)


# What runs blocks of steps, one of them without a number here; each takes a value of every kind, first a matrix.
_NUM_BLOCKS = {_condition: 2, _switch: 3}
_WITH_BLOCKS = (
    *(_call, _call_twice, _call_for_effects, _condition, _switch, _loop, _loop_with_array, _gradient),
    *(_train, _train_through_loop, _custom_gradient),
)


@dataclasses.dataclass(frozen=True)
class Operation:
    """What a step does."""

    signature: Signature  # what it takes and gives
    # called with a ``Scope`` and a tensor of each kind that it takes; returns the value
    build: Callable[..., tf.Tensor]


def _operation(signature: str, build: Callable[..., tf.Tensor], blocks: int = 0) -> Operation:
    takes, _, gives = signature.partition(">")
    return Operation(Signature(takes, gives, blocks), build)


def _pure(signature: str, function: Callable[..., tf.Tensor]) -> Operation:
    return _operation(signature, lambda scope, *tensors: function(*tensors))


_BLOCKS = {
    build.__name__.strip("_"): _operation(f"{KINDS}>m", build, _NUM_BLOCKS.get(build, 1))
    for build in _WITH_BLOCKS
}
OPERATIONS: dict[str, Operation] = {
    **{name: _pure(*entry) for name, entry in _PURE.items()},
    **{name: _operation(*entry) for name, entry in _STATEFUL.items()},
    **_BLOCKS,
}
_FRAGILE = "after barrier colocated colocated_three identity_n identity_n_waited_for restacked top_k"
# How often each family is drawn: what is pure is most of a program, what a rewriter can break is most of a family.
_FAMILIES = (*(tuple(_PURE),) * 2, *(tuple(_STATEFUL),) * 2, tuple(_BLOCKS), tuple(_FRAGILE.split()))


def program_of_seed(seed: int) -> Program:
    """The random program of a seed."""
    signatures = {name: operation.signature for name, operation in OPERATIONS.items()}
    return random_program(seed, signatures, _FAMILIES)
