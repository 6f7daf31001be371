"""Side effects: prints, Python functions, files, state."""

from typing import Any

import numpy as np
import tensorflow as tf

from tests.corpus.program import Make


def prints_in_order(make: Make) -> Any:
    """Prints come once, and in the program's order."""
    log = make.folder / "log"

    @make.traced
    def f(x):
        tf.print("first", x, output_stream=f"file://{log}")
        y = x * 2.0
        tf.print("then", y, output_stream=f"file://{log}")
        return y

    f(tf.constant(1.0))
    f(tf.constant(2.0))
    return log.read_text()


def python_functions(make: Make) -> Any:
    """Python inside the graph sees what it is given, once, and its gradients flow."""
    seen = []

    def square(x):
        seen.append(float(x))
        return x * x

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(square, [x], tf.float32)
        z = tf.numpy_function(lambda a: np.float32(a + 1), [x], tf.float32)
        return y, z, tape.gradient(y, x)

    return f(tf.constant(3.0)), f(tf.constant(4.0)), seen


def files_are_written_and_read(make: Make) -> Any:
    """Files that the graph itself writes and reads."""
    path = str(make.folder / "file")

    @make.traced
    def f(text):
        tf.io.write_file(path, text)
        with tf.control_dependencies([tf.no_op()]):
            return tf.strings.length(text)

    lengths = [f(tf.constant("hello")), f(tf.constant("bye"))]
    return lengths, make.traced(lambda: tf.io.read_file(path))()


def state_in_order(make: Make) -> Any:
    """Reads and writes of variables keep the program's order."""
    a, b = tf.Variable(1.0), tf.Variable(2.0)

    @make.traced
    def f():
        before = a.read_value()
        a.assign(b * 2.0)
        b.assign_add(a)
        a.assign_sub(1.0)
        return before, a.read_value(), b.read_value()

    return [f() for _ in range(3)], a.numpy(), b.numpy()


def a_function_without_results(make: Make) -> Any:
    """Only its effects count."""
    v = tf.Variable([1.0, 2.0])

    @make.traced
    def f(x):
        v.scatter_nd_add([[0]], x)

    return f(tf.constant([3.0])), f(tf.constant([4.0])), v.numpy()


def an_exponential_moving_average(make: Make) -> Any:
    """Shadow variables that are made when the function is first called."""
    v = tf.Variable(1.0)
    average = tf.train.ExponentialMovingAverage(0.5)

    @make.traced
    def f(x):
        v.assign(x)
        average.apply([v])
        return average.average(v)

    return [f(tf.constant(x)) for x in (2.0, 4.0)]
