"""Operations that run blocks of steps: (kinds taken ``>`` kind given, function of a ``Scope``, blocks), by name.

Each takes one value of every kind; the first is a matrix.
"""

from collections.abc import Callable

import tensorflow as tf

from tests.equivalence.programs import KINDS
from tests.equivalence.state import Scope

_ITERATIONS = 3


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


OPERATIONS: dict[str, tuple[str, Callable[..., tf.Tensor], int]] = {
    "call": (f"{KINDS}>m", _call, 1),
    "call_twice": (f"{KINDS}>m", _call_twice, 1),
    "call_for_effects": (f"{KINDS}>m", _call_for_effects, 1),
    "condition": (f"{KINDS}>m", _condition, 2),
    "switch": (f"{KINDS}>m", _switch, 3),
    "loop": (f"{KINDS}>m", _loop, 1),
    "loop_with_array": (f"{KINDS}>m", _loop_with_array, 1),
    "gradient": (f"{KINDS}>m", _gradient, 1),
    "train": (f"{KINDS}>m", _train, 1),
    "train_through_loop": (f"{KINDS}>m", _train_through_loop, 1),
    "custom_gradient": (f"{KINDS}>m", _custom_gradient, 1),
}
