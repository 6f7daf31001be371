"""Placed functions inside outer ones: prints, draws, tables, queues, files and Python keep their order, too."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.corpus.order import TIMES, calls, late
from tests.corpus.program import Make
from tests.corpus.shared_state import written_summaries


def prints_on_both_sides(make: Make) -> Any:
    """Lines of the placed function stand between those of the outer one."""
    # TensorFlow orders prints among each other and among calls that capture no variable.
    log = f"file://{make.folder / 'log'}"
    w = tf.Variable(0.0)

    @make.traced
    def p(x):
        tf.print("inside", x, output_stream=log)
        return x * 2.0

    @tf.function
    def outer(x):
        tf.print("before", x, output_stream=log)
        y = p(late(x))
        tf.print("after", w.assign_add(1.0), output_stream=log)
        return y

    for i in range(TIMES):
        outer(tf.constant(float(i)))
    return (make.folder / "log").read_text()


def draws_from_one_generator(make: Make) -> Any:
    """Both functions draw from one generator, by turns, and one of them splits it."""
    generator = tf.random.Generator.from_seed(5)
    p = make.traced(lambda: generator.normal([512]))

    @tf.function
    def outer():
        a, b, c = p(), generator.uniform([512]), p()
        return a, b, c, generator.make_seeds(2)

    return calls(outer, 20), generator.state.numpy()


def stateful_draws(make: Make) -> Any:
    """Ops with seeds, in both functions; the placed one is called twice, by two outer functions."""
    p = make.traced(lambda: tf.random.normal([4], seed=1))
    outer = tf.function(lambda: (p(), tf.random.uniform([4], seed=2), p()))
    other = tf.function(lambda: p() + tf.random.normal([4], seed=1))
    return calls(outer, 5), calls(other, 3), calls(p, 3)


def draws_without_seeds_around(make: Make) -> Any:
    """Only the global seed is set: what else draws, eagerly, in graphs and in NumPy, draws as without placing."""
    p = make.traced(lambda x: x * tf.random.uniform([3]))

    @tf.function
    def outer(x):
        a = tf.random.normal([2])
        return a, p(x), tf.random.normal([2])

    x = tf.constant(2.0)
    early = tf.random.normal([2])
    first = outer(x), p(x), tf.random.normal([2]), np.random.random(2), keras.random.normal([2])
    keras.utils.set_random_seed(3)
    second = outer(x), p(x), tf.random.normal([2]), np.random.random(2), keras.random.normal([2])
    return early, first, second


def a_table_that_changes(make: Make) -> Any:
    """The placed function looks up what the outer one inserts, before and after it."""
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    w = tf.Variable(tf.ones([2]))
    p = make.traced(lambda keys: tf.cast(table.lookup(keys), tf.float32) * w)

    @tf.function
    def outer(keys, value):
        before = p(late(keys))
        table.insert(keys, tf.stack([value, value + 1]))
        after = p(late(keys))
        table.remove(keys[:1])
        return before, after, table.size()

    keys = tf.constant([1, 2], tf.int64)
    return [outer(keys, tf.constant(i, tf.int64)) for i in range(TIMES)]


def a_table_that_the_placed_function_fills(make: Make) -> Any:
    """The placed function inserts, the outer one looks up and counts."""
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, empty_key=-1, deleted_key=-2)
    w = tf.Variable(0.5)

    @make.traced
    def p(keys, values):
        table.insert(keys, values * w)

    @tf.function
    def outer(keys, values):
        before = table.lookup(keys)
        p(late(keys), values)
        after = table.lookup(keys)
        p(keys + 1, values * 2.0)
        return before, after, table.size()

    return [
        outer(tf.constant([i, i + 3], tf.int64), tf.constant([1.0, 2.0]) * float(i)) for i in range(TIMES)
    ]


def python_functions_by_turns(make: Make) -> Any:
    """Python that the graph calls from both functions runs in their order."""
    seen: list[str] = []

    def note(text: str) -> Any:
        return lambda x: seen.append(f"{text} {float(x)}") or x

    @make.traced
    def p(x):
        y = tf.py_function(note("in"), [x], tf.float32)
        return tf.py_function(note("out"), [y * 2.0], tf.float32)

    @tf.function
    def outer(x):
        x = tf.ensure_shape(tf.py_function(note("before"), [x], tf.float32), [])
        tf.py_function(note("unused"), [x], tf.float32)
        y = p(late(x))
        tf.py_function(note("after"), [x], tf.float32)
        return y

    return [outer(tf.constant(float(i))) for i in range(20)], seen


def a_queue_between(make: Make) -> Any:
    """The placed function puts in what the outer one takes out, and the other way round."""
    queue = tf.queue.FIFOQueue(8, [tf.float32], [[64]])

    @make.traced
    def put(x):
        queue.enqueue(tf.sin(x) * 2.0)

    take = make.traced(lambda: queue.dequeue() + 1.0)

    @tf.function
    def outer(x):
        put(late(x))
        size = queue.size()
        a = queue.dequeue()
        queue.enqueue(x)
        return size, a, take(), queue.size()

    return [outer(tf.fill([64], float(i))) for i in range(TIMES)]


def an_iterator_between(make: Make) -> Any:
    """Both functions take elements from one iterator."""
    iterator = iter(tf.data.Dataset.range(200))
    p = make.traced(lambda: next(iterator) * 10)
    outer = tf.function(lambda: (next(iterator), p(), next(iterator), p()))
    return calls(outer, 40)


def an_iterator_that_is_handed_on(make: Make) -> Any:
    """The outer function gives its iterator to the placed one."""
    p = make.traced(lambda iterator: tf.cast(next(iterator), tf.float32) * 0.5)

    @tf.function
    def outer(iterator):
        total = 0.0
        for _ in tf.range(3):
            total = total * 10.0 + p(iterator) - tf.cast(next(iterator), tf.float32)
        return total

    iterator = iter(tf.data.Dataset.range(60))
    return [outer(iterator) for _ in range(10)]


def files_between(make: Make) -> Any:
    """The placed function writes a file that the outer one writes, too: the last one stands."""
    path = str(make.folder / "file")

    @make.traced
    def p(text):
        tf.io.write_file(path, tf.strings.join([text, " inside"]))

    @tf.function
    def outer(text, is_last):
        if is_last:
            tf.io.write_file(path, text)
            p(text)
        else:
            p(tf.strings.join([text, tf.as_string(late(tf.strings.length(text)))]))
            tf.io.write_file(path, text)
        return tf.strings.length(text)

    seen = []
    for i in range(20):
        outer(tf.constant(f"text {i}"), tf.constant(i % 2 == 0))
        seen.append((make.folder / "file").read_text())
    return seen


def summaries_on_both_sides(make: Make) -> Any:
    """Events of one writer come in the order of the program."""
    writer = tf.summary.create_file_writer(str(make.folder / "logs"))
    w = tf.Variable(0.0)

    @make.traced
    def p(step):
        with writer.as_default():
            tf.summary.scalar("inside", w * 2.0, step=step)

    @tf.function
    def outer(step):
        with writer.as_default():
            tf.summary.scalar("before", w, step=step)
            p(late(step))
            tf.summary.scalar("after", w.assign_add(1.0), step=step)

    for i in range(20):
        outer(tf.constant(i, tf.int64))
    writer.close()
    return written_summaries(make.folder / "logs")


def an_array_of_what_is_read(make: Make) -> Any:
    """The outer loop writes into a TensorArray what the placed function reads while a variable changes."""
    w = tf.Variable(tf.zeros([512]))
    p = make.traced(lambda i: tf.gather(w, i))

    @tf.function
    def outer(n):
        rows = tf.TensorArray(tf.float32, n, element_shape=[512])
        for i in tf.range(n):
            rows = rows.write(i, p(late(tf.range(512))))
            w.assign_add(tf.ones([512]))
        return tf.reduce_min(rows.stack(), 1), tf.reduce_max(rows.stack(), 1)

    return calls(lambda: outer(tf.constant(4)), 20)


def an_assertion_guards_a_write(make: Make) -> Any:
    """The outer function writes only behind the assertion of the placed one."""
    w = tf.Variable(0.0)

    @make.traced
    def checked(x):
        tf.debugging.assert_less(tf.reduce_sum(x), 10.0, message="too much")
        return x * 2.0

    @tf.function
    def outer(x):
        y = checked(late(x))
        with tf.control_dependencies([y]):
            w.assign_add(tf.reduce_sum(y))
        return y

    outcomes = []
    for i in range(8):
        try:
            outcomes.append(outer(tf.constant([float(i), float(i)])))
        except tf.errors.InvalidArgumentError as error:
            outcomes.append("too much" in str(error))
    return outcomes


def keras_calls_a_placed_forward_pass(make: Make) -> Any:
    """A Keras step of one's own calls the placed forward pass, and updates what that reads."""
    layers = [keras.layers.Dense(16, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    network = keras.Sequential([keras.Input((6,)), *layers])
    forward = make.traced(lambda x: network(x, training=True))

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def call(self, x):
            return self.network(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((forward(x) - y) ** 2)
            weights = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss, "again": tf.reduce_mean((forward(x) - y) ** 2)}

    x = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
    model = Model()
    model.compile(optimizer=keras.optimizers.SGD(0.05), jit_compile=False)
    history = model.fit(x, x[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return history, [np.array(v) for v in model.variables]


def a_custom_gradient_around(make: Make) -> Any:
    """A function with a gradient of its own calls the placed one, forward and backward."""
    w = tf.Variable(tf.ones([128]))
    forward = make.traced(lambda x: tf.tanh(x * w))
    backward = make.traced(lambda upstream: upstream * w * 3.0)

    @tf.custom_gradient
    def f(x):
        return forward(x), lambda upstream, variables=None: (backward(upstream), [tf.zeros([128])])

    @tf.function
    def outer(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(f(late(x)))
        gradient = tape.gradient(y, x)
        w.assign_add(tf.ones([128]))
        return y, gradient

    x = tf.range(128.0) / 64.0
    return calls(lambda: outer(x), 20)
