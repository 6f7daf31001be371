"""Gradients in all the ways that users take them."""

from typing import Any

import tensorflow as tf

from tests.corpus.program import Make

X = tf.constant([[0.5, -1.0], [2.0, 0.25]])


def network(w: tf.Variable, x: tf.Tensor) -> tf.Tensor:
    """A smooth function of both."""
    return tf.reduce_sum(tf.tanh(x @ w) * tf.sin(x))


def a_tape_in_a_tape_inside(make: Make) -> Any:
    """Second-order gradients taken within the function."""
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @make.traced
    def f(x):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = network(w, x)
            gradient = inner.gradient(y, w)
            norm = tf.reduce_sum(gradient**2)
        return norm, outer.gradient(norm, w)

    return f(X)


def forward_over_backward(make: Make) -> Any:
    """Products with the Hessian: an accumulator around a tape, inside and outside."""
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @make.traced
    def f(x):
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = network(w, x)
            gradient = tape.gradient(y, x)
        return gradient, accumulator.jvp(gradient)

    g = make.traced(lambda x: tf.reduce_sum(tf.sin(x) ** 3))
    g(X)
    with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as accumulator:
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = g(X)
        gradient = tape.gradient(y, X)
    return f(X), gradient, accumulator.jvp(gradient)


def jacobians(make: Make) -> Any:
    """A Jacobian, row by row in one batch, outside and inside."""
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    f = make.traced(lambda x: tf.tanh(x @ w))
    with tf.GradientTape() as tape:
        y = f(X)
    outside = tape.jacobian(y, w)

    @make.traced
    def g(x):
        with tf.GradientTape() as tape:
            y = tf.tanh(x @ w)
        return tape.jacobian(y, w)

    return outside, g(X)


def a_custom_gradient(make: Make) -> Any:
    """A function with a gradient of its own, which is not the derivative."""

    @tf.custom_gradient
    def clipped(x):
        return x * 3.0, lambda upstream: tf.clip_by_value(upstream, -0.1, 0.1)

    f = make.traced(lambda x: tf.reduce_sum(clipped(x) ** 2))
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(X)
    return y, tape.gradient(y, X)


def a_custom_gradient_with_variables(make: Make) -> Any:
    """A custom gradient that is told of the variables it uses."""
    w = tf.Variable(2.0)

    @tf.custom_gradient
    def scaled(x):
        def gradient(upstream, variables=None):
            return upstream * 5.0, [tf.reduce_sum(upstream) * 7.0 for _ in variables]

        return x * w, gradient

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(scaled(x))
        return y, tape.gradient(y, [x, w])

    return f(X)


def recomputed_activations(make: Make) -> Any:
    """``tf.recompute_grad`` computes the forward pass again for the gradient."""
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    block = tf.recompute_grad(lambda x: tf.tanh(x @ w))

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(block(block(x)))
        return y, tape.gradient(y, w)

    return f(X)


def stopped_and_unconnected(make: Make) -> Any:
    """Gradients that are stopped, and inputs that nothing depends on."""
    f = make.traced(
        lambda x, unused: tf.reduce_sum(x * tf.stop_gradient(x)) + 0.0 * tf.reduce_sum(tf.zeros([2]))
    )
    unused = tf.constant(1.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([X, unused])
        y = f(X, unused)
    zero = tf.UnconnectedGradients.ZERO
    return tape.gradient(y, X), tape.gradient(y, unused), tape.gradient(y, unused, unconnected_gradients=zero)


def linear_algebra(make: Make) -> Any:
    """Decompositions and solvers, and gradients through them."""

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            square = tf.matmul(x, x, transpose_a=True) + tf.eye(2)
            lower = tf.linalg.cholesky(square)
            solved = tf.linalg.triangular_solve(lower, x)
            loss = tf.reduce_sum(solved) + tf.linalg.logdet(square)
        return loss, tape.gradient(loss, x), tf.linalg.qr(x), tf.linalg.eigvalsh(square)

    return f(X)


def complex_numbers_and_transforms(make: Make) -> Any:
    """A Fourier transform, complex weights, and their gradients."""
    w = tf.Variable([1.0 + 2.0j, 0.5 - 1.0j], dtype=tf.complex64)

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            y = tf.signal.fft(tf.cast(x, tf.complex64)) * w
            loss = tf.reduce_sum(tf.abs(y) ** 2)
        return y, loss, tape.gradient(loss, w)

    return f(X)
