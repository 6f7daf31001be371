"""Operations that read or change state: (kinds taken ``>`` kind given, function of a ``Scope``), by name."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.equivalence.state import TABLE_ROWS, Scope


def _row(i: tf.Tensor) -> tf.Tensor:
    return tf.math.floormod(i, 4)


def _cell(i: tf.Tensor) -> tf.Tensor:
    return tf.stack([_row(i), tf.range(4)], axis=1)


def _slices(x: tf.Tensor, i: tf.Tensor) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.tanh(x), _row(i))


def _after(effect: Any, result: tf.Tensor) -> tf.Tensor:
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


OPERATIONS: dict[str, tuple[str, Callable[..., tf.Tensor]]] = {
    # variables
    "use": ("m>m", lambda scope, x: tf.matmul(x, scope.matrix) * 0.25),
    "read": (">m", lambda scope: scope.matrix.read_value()),
    "assign": ("m>m", lambda scope, x: _after(scope.matrix.assign(tf.tanh(x)), x + 1.0)),
    "assign_and_read": ("m>m", _assign_and_read),
    "assign_add": (
        "m>m",
        lambda scope, x: _after(scope.matrix.assign_add(tf.clip_by_value(x, -0.5, 0.5)), scope.matrix * 0.5),
    ),
    "assign_sub": ("m>m", lambda scope, x: _after(scope.matrix.assign_sub(tf.sigmoid(x)), x)),
    "scatter_update": (
        "mi>m",
        lambda scope, x, i: _after(scope.matrix.scatter_update(_slices(x, i)), scope.matrix.read_value()),
    ),
    "scatter_add": ("mi>m", lambda scope, x, i: _after(scope.matrix.scatter_add(_slices(x, i)), x)),
    "scatter_nd": ("vi>v", lambda scope, v, i: _after(scope.matrix.scatter_nd_sub(_cell(i), v), v * 2.0)),
    "assign_slice": ("v>v", lambda scope, v: _after(scope.matrix[1].assign(tf.tanh(v)), scope.matrix[:, 1])),
    "sparse_read": ("i>m", lambda scope, i: scope.matrix.sparse_read(_row(i))),
    "sparse_read_nd": ("i>v", lambda scope, i: scope.matrix.gather_nd(_cell(i))),
    "gradient_descent": (
        "m>m",
        lambda scope, x: _after(
            tf.raw_ops.ResourceApplyGradientDescent(var=scope.matrix.handle, alpha=0.1, delta=tf.tanh(x)), x
        ),
    ),
    "momentum": ("m>m", _momentum),
    "adam": ("m>m", _adam),
    "count": (">f", lambda scope: _after(scope.state.count.assign_add(1), scope.state.count % 2 == 0)),
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
