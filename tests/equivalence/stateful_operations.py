"""Operations that read or change state: (kinds taken ``>`` kind given, function of a ``Scope``), by name."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tests.equivalence.state import TABLE_ROWS, Scope


def _row(i: tf.Tensor) -> tf.Tensor:
    return tf.math.floormod(i, 4)


def _use(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, scope.matrix) * 0.25


def _read(scope: Scope) -> tf.Tensor:
    return scope.matrix.read_value()


def _assign(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    scope.matrix.assign(tf.tanh(x))
    return x + 1.0  # only a control output says that the assignment must run


def _assign_and_read(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    before = scope.matrix.read_value()
    scope.matrix.assign(tf.tanh(x))
    return before - scope.matrix.read_value()


def _add(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    scope.matrix.assign_add(tf.clip_by_value(x, -0.5, 0.5))
    return scope.matrix * 0.5


def _subtract(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    scope.matrix.assign_sub(tf.sigmoid(x))
    return x


def _scatter_update(scope: Scope, x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    scope.matrix.scatter_update(tf.IndexedSlices(tf.tanh(x), _row(i)))
    return scope.matrix.read_value()


def _scatter_add(scope: Scope, x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    scope.matrix.scatter_add(tf.IndexedSlices(tf.tanh(x), _row(i)))
    return x


def _scatter_nd(scope: Scope, v: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    scope.matrix.scatter_nd_sub(tf.stack([_row(i), tf.range(4)], axis=1), v)
    return v * 2.0


def _assign_slice(scope: Scope, v: tf.Tensor) -> tf.Tensor:
    scope.matrix[1].assign(tf.tanh(v))
    return scope.matrix[:, 1]


def _sparse_read(scope: Scope, i: tf.Tensor) -> tf.Tensor:
    return scope.matrix.sparse_read(_row(i))


def _sparse_read_nd(scope: Scope, i: tf.Tensor) -> tf.Tensor:
    return scope.matrix.gather_nd(tf.stack([_row(i), tf.range(4)], axis=1))


def _gradient_descent(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    tf.raw_ops.ResourceApplyGradientDescent(var=scope.matrix.handle, alpha=0.1, delta=tf.tanh(x))
    return x


def _momentum(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    tf.raw_ops.ResourceApplyMomentum(
        var=scope.matrix.handle,
        accum=scope.other_matrix(1).handle,
        lr=0.1,
        grad=tf.tanh(x),
        momentum=0.9,
        use_nesterov=True,
    )
    return scope.matrix.read_value()


def _adam(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    tf.raw_ops.ResourceApplyAdam(
        var=scope.matrix.handle,
        m=scope.other_matrix(1).handle,
        v=scope.other_matrix(2).handle,
        beta1_power=0.9,
        beta2_power=0.99,
        lr=0.01,
        beta1=0.9,
        beta2=0.99,
        epsilon=1.0,
        grad=tf.tanh(x),
    )
    return x


def _count(scope: Scope) -> tf.Tensor:
    scope.state.count.assign_add(1)
    return scope.state.count % 2 == 0


def _count_twice(scope: Scope) -> tf.Tensor:
    scope.state.count.assign_add(1)
    scope.state.count.assign_add(1)
    return tf.cast(scope.state.count, tf.float32)


def _swap_variables(scope: Scope) -> tf.Tensor:
    first, second = scope.matrix.read_value(), scope.other_matrix(1).read_value()
    scope.matrix.assign(second)
    scope.other_matrix(1).assign(first)
    return first


def _look_up(scope: Scope, i: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.stop_gradient(scope.state.table), tf.math.floormod(i, TABLE_ROWS))[:, :4]


def _offset(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    return x - scope.state.offset


def _normal_op_seed(scope: Scope) -> tf.Tensor:
    return tf.random.normal([4, 4], seed=scope.number + 1)


def _uniform_global_seed(scope: Scope) -> tf.Tensor:
    return tf.random.uniform([4, 4], -1.0, 1.0)


def _random_integers(scope: Scope) -> tf.Tensor:
    return tf.random.uniform([4], 0, 100, tf.int32, seed=scope.number)


def _truncated(scope: Scope) -> tf.Tensor:
    return tf.random.truncated_normal([4], seed=scope.number + 2)


def _shuffle(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    return tf.random.shuffle(x, seed=scope.number + 3)


def _dropout(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    return tf.nn.dropout(x, 0.5, seed=scope.number + 4)


def _categorical(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    return tf.random.categorical(x, 1, tf.int32, seed=scope.number + 5)[:, 0]


def _generator(scope: Scope) -> tf.Tensor:
    return scope.state.generator.normal([4, 4])


def _record(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    tf.numpy_function(lambda value: scope.state.recorded.append(value.tobytes()), [x], [])
    return x


def _asserted(scope: Scope, x: tf.Tensor) -> tf.Tensor:
    is_number = tf.reduce_all(tf.equal(tf.abs(x) >= 0.0, True))
    with tf.control_dependencies([tf.debugging.Assert(tf.logical_or(is_number, True), [x])]):
        return tf.identity(x)


OPERATIONS: dict[str, tuple[str, Callable[..., tf.Tensor]]] = {
    "use": ("m>m", _use),
    "read": (">m", _read),
    "assign": ("m>m", _assign),
    "assign_and_read": ("m>m", _assign_and_read),
    "assign_add": ("m>m", _add),
    "assign_sub": ("m>m", _subtract),
    "scatter_update": ("mi>m", _scatter_update),
    "scatter_add": ("mi>m", _scatter_add),
    "scatter_nd": ("vi>v", _scatter_nd),
    "assign_slice": ("v>v", _assign_slice),
    "sparse_read": ("i>m", _sparse_read),
    "sparse_read_nd": ("i>v", _sparse_read_nd),
    "gradient_descent": ("m>m", _gradient_descent),
    "momentum": ("m>m", _momentum),
    "adam": ("m>m", _adam),
    "count": (">f", _count),
    "count_twice": (">s", _count_twice),
    "swap_variables": (">m", _swap_variables),
    "look_up": ("i>m", _look_up),
    "offset": ("m>m", _offset),
    "normal_op_seed": (">m", _normal_op_seed),
    "uniform_global_seed": (">m", _uniform_global_seed),
    "random_integers": (">i", _random_integers),
    "truncated_normal": (">v", _truncated),
    "shuffle": ("m>m", _shuffle),
    "dropout": ("m>m", _dropout),
    "categorical": ("m>i", _categorical),
    "generator": (">m", _generator),
    "record": ("m>m", _record),
    "asserted": ("m>m", _asserted),
}
