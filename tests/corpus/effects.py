"""Side effects: prints, Python functions, assertions, summaries, files, state."""

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


def assertions_that_hold_and_fail(make: Make) -> Any:
    """An assertion that fails ends the call as it does undecorated, and its message is there."""
    v = tf.Variable(0.0)

    @make.traced
    def f(x):
        tf.debugging.assert_positive(x, message="not positive")
        tf.debugging.assert_shapes([(x, ("n",))])
        v.assign_add(tf.reduce_sum(x))
        return tf.debugging.check_numerics(tf.math.log(x), "nan")

    good, after = f(tf.constant([1.0, 2.0])), v.numpy()
    try:
        f(tf.constant([-1.0]))
        outcome = "passed"
    except tf.errors.InvalidArgumentError as error:
        outcome = "not positive" in str(error)
    return good, outcome, after  # TensorFlow does not say whether an update waits for an assertion that fails


def summaries_are_written(make: Make) -> Any:
    """A summary writer that the function captures gets its events."""
    writer = tf.summary.create_file_writer(str(make.folder / "logs"))

    @make.traced
    def f(x, step):
        with writer.as_default():
            tf.summary.write("x", x, step=step)
            tf.summary.write("pair", tf.stack([x, x + 1.0]), step=step)
        return x * 2.0

    results = [f(tf.constant(float(i)), tf.constant(i, tf.int64)) for i in range(3)]
    writer.close()
    events = []
    for file in sorted((make.folder / "logs").iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            events += [(event.step, value.tag, value.tensor.tensor_content) for value in event.summary.value]
    return results, events


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


def python_side_effects_of_tracing(make: Make) -> Any:
    """What Python does while a function is traced is done once for each signature."""
    traced = []

    @make.traced
    def f(x):
        traced.append(x.shape.as_list())
        return x + 1.0

    return f(tf.zeros([2])), f(tf.ones([2])), f(tf.zeros([3])), traced


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
