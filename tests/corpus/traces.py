"""What makes TensorFlow trace a function anew, and what does not; errors; eager mode; calls from odd places."""

import asyncio
import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.corpus.program import Make, runs_as_it_is

X = tf.constant([[3.0, 4.0], [0.5, -1.0]])


def raised(call: Callable[[], Any]) -> str:
    """Type of the error of a call."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one is observed
        return type(error).__name__
    return "nothing"


def a_second_signature_with_another_variable(make: Make) -> Any:
    """Each signature touches variables that the others do not, and one that all do."""
    shared, by_name = tf.Variable(1.0), {"a": tf.Variable(10.0), "b": tf.Variable([20.0, 30.0])}

    @make.traced
    def f(x, name):
        by_name[name].assign_add(x)
        return shared.assign_add(1.0) * by_name[name]

    one, two = tf.constant(1.0), tf.constant([2.0, 3.0])
    results = [f(one, "a"), f(two, "b"), f(one, "a"), f(two * 2.0, "b")]
    return results, shared.numpy(), [v.numpy() for v in by_name.values()]


def variables_of_the_first_call_then_others(make: Make) -> Any:
    """The first call makes its variables; a later signature touches one that was there before."""
    made: dict[str, tf.Variable] = {}
    early = tf.Variable(5.0)

    @make.traced
    def f(x, training=False):
        if not made:
            made["w"] = tf.Variable(tf.ones([2, 2]))
        y = x @ made["w"]
        if training:
            early.assign_add(tf.reduce_sum(y))
        return y * early

    return f(X), f(X, training=True), f(X[:1], training=True), f(X), early.numpy(), made["w"].numpy()


def layers_in_training_and_not(make: Make) -> Any:
    """Dropout and batch normalization: the training flag makes another trace, which writes other variables."""
    norm = tf.keras.layers.BatchNormalization(momentum=0.5)
    drop = tf.keras.layers.Dropout(0.5, seed=2)
    f = make.traced(lambda x, training: drop(norm(x, training=training), training=training))
    results = [f(X, False), f(X, True), f(X, True), f(X, False)]
    return results, [np.array(v) for v in (*norm.variables, *drop.variables)]


def attributes_do_not_trace_again(make: Make) -> Any:
    """A global or an attribute that changed counts in new traces alone."""

    class Settings:
        scale = 2.0

    f = make.traced(lambda x, mode="a": x * Settings.scale)
    results = [f(X)]
    Settings.scale = 10.0
    return results, f(X), f(X, "b"), f(X[:1]), f(X), f.experimental_get_tracing_count()


def python_values_trace_again(make: Make) -> Any:
    """Numbers, strings, enumerations, types, functions, tuples and objects as arguments."""
    Mode = enum.Enum("Mode", "ADD MULTIPLY")
    traced: list[str] = []

    @make.traced
    def f(x, how):
        traced.append(type(how).__name__)
        if isinstance(how, Mode):
            return x + 1.0 if how is Mode.ADD else x * 2.0
        if isinstance(how, tf.DType):
            return tf.cast(x, how)
        if callable(how):
            return how(x)
        if isinstance(how, tuple):
            return x * sum(how)
        return x if how is None else x * float(how)

    values = [1, 1.0, "2", True, None, Mode.ADD, Mode.MULTIPLY, tf.float64, tf.sin, (1, 2), np.float32(3.0)]
    return [f(X, value) for value in values], f(X, 1), f(X, Mode.ADD), traced


def shapes_that_are_relaxed(make: Make) -> Any:
    """``reduce_retracing`` and partial shapes: how often a function is traced is the same, too."""
    w = tf.Variable([[1.0], [2.0]])
    f = make(lambda x: tf.reduce_sum(x @ w), reduce_retracing=True)
    g = make(lambda x: x * 2.0, input_signature=[tf.TensorSpec([None, 2])])
    rows = [tf.ones([n, 2]) for n in (1, 2, 3, 2, 5)]
    counts = f.experimental_get_tracing_count(), g.experimental_get_tracing_count()
    return [f(x) for x in rows], [g(x) for x in rows], counts, f.experimental_get_tracing_count()


def many_signatures(make: Make) -> Any:
    """More traces than TensorFlow warns of, all with one variable, each called twice."""
    w = tf.Variable([1.0])
    f = make.traced(lambda x: w.assign_add(tf.reduce_sum(x, keepdims=True)) * 1.0)
    return [f(tf.ones([n])) for n in (1, 2, 3, 4, 5, 6, 7, 3, 1)], w.numpy()


def calls_that_are_wrong(make: Make) -> Any:
    """Wrong shapes, types, numbers and names of arguments are the same errors, and harm nothing."""
    w = tf.Variable([[1.0], [2.0]])
    signature = [tf.TensorSpec([None, 2]), tf.TensorSpec([])]
    f = make(lambda x, scale=1.0: x @ w * scale, input_signature=signature)
    g = make.traced(lambda x: x @ w)
    wrong = [lambda: f(tf.ones([2, 3])), lambda: f(tf.constant("text")), lambda: f(), lambda: f(X, 1.0, 2.0)]
    wrong += [lambda: f(X, factor=2.0), lambda: g(tf.ones([2, 3])), lambda: g(tf.constant([[1, 2]]))]
    wrong += [lambda: g(object()), lambda: g.get_concrete_function(X)(X[:1])]
    before = [raised(call) for call in wrong]
    results = f(X), f(X, scale=2.0), g(X)
    return before, results, [raised(call) for call in wrong], g(X)


def python_errors_while_tracing(make: Make) -> Any:
    """An exception of the function's Python comes through, and the next call traces again."""
    attempts: list[int] = []

    class OwnError(RuntimeError):
        pass

    @make.traced
    def f(x):
        attempts.append(1)
        if len(attempts) < 3:
            raise OwnError("not yet")
        return x * 2.0

    return raised(lambda: f(X)), raised(lambda: f(X)), f(X), len(attempts)


def errors_name_the_line(make: Make) -> Any:
    """An error at run time has its type, its message and the line of the program that asked for the op."""
    w = tf.Variable(1.0)

    @make.traced
    def f(x, i):
        y = tf.gather(x * w, i)  # line of the gather
        tf.debugging.assert_less(tf.reduce_sum(y), 10.0, message="too large")
        return tf.debugging.check_numerics(tf.math.log(y), "not a number")

    def told(x: list[float], i: int) -> Any:
        try:
            return f(tf.constant(x), tf.constant(i))
        except tf.errors.OpError as error:
            text = str(error)
            told = [part in text for part in ("too large", "not a number", "traces.py")]
            return type(error).__name__, told

    return told([1.0, 2.0], 0), told([1.0, 2.0], 5), told([50.0], 0), told([-1.0], 0), told([1.0, 2.0], 1)


def errors_inside_an_outer_function(make: Make) -> Any:
    """The error of a placed function ends the outer one; what came before it has happened."""
    w = tf.Variable(0.0)

    @make.traced
    def p(x):
        tf.debugging.assert_positive(x, message="not positive")
        return x * 2.0

    @tf.function
    def outer(x):
        w.assign_add(1.0)
        with tf.control_dependencies([tf.identity(w)]):
            y = p(tf.identity(x))
        with tf.control_dependencies([y]):
            w.assign_add(10.0)
        return y

    outcomes = []
    for x in (1.0, -1.0, 2.0):
        try:
            outcomes.append(outer(tf.constant(x)))
        except tf.errors.InvalidArgumentError as error:
            outcomes.append("not positive" in str(error))
    return outcomes, w.numpy()


def a_loss_of_labels_without_times(make: Make) -> Any:
    """``ctc_loss``, which is built from functions of an older kind, and its gradient."""
    labels, lengths = tf.constant([[1, 2, 0], [2, 0, 0]]), tf.constant([2, 1])
    w = tf.Variable(tf.ones([4, 3]) * tf.constant([1.0, 0.5, 0.25]))

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            logits = tf.transpose(x @ w, [1, 0, 2])
            loss = tf.nn.ctc_loss(labels, logits, lengths, tf.constant([5, 4]), blank_index=0)
        return loss, tape.gradient(loss, w)

    x = tf.reshape(tf.sin(tf.range(40.0)), [2, 5, 4])
    return f(x), f(x * 0.5)


def the_older_loss_of_labels(make: Make) -> Any:
    """``compat.v1.nn.ctc_loss`` of sparse labels, and a decoder."""
    labels = tf.sparse.from_dense([[1, 2, 1], [2, 1, 0]])
    w = tf.Variable(tf.ones([4, 4]) * tf.constant([1.0, 0.5, 0.25, -0.5]))

    @make.traced
    def f(x):
        logits = x @ w
        loss = tf.compat.v1.nn.ctc_loss(labels, logits, tf.constant([6, 5]))
        decoded, score = tf.nn.ctc_greedy_decoder(logits, tf.constant([6, 5]))
        return loss, tf.sparse.to_dense(decoded[0]), score

    return f(tf.reshape(tf.sin(tf.range(48.0)), [6, 2, 4]))


def eager_by_turns(make: Make) -> Any:
    """``run_functions_eagerly`` is switched on and off; inner and outer functions, and their variables."""
    w, seen = tf.Variable(1.0), []

    @make.traced
    def inner(x):
        seen.append(float(x) if tf.executing_eagerly() else "traced")
        return w.assign_add(x)

    outer = make.traced(lambda x: inner(x) * inner(x * 2.0))
    x, results = tf.constant(1.0), []
    for is_eager in (False, True, False, True):
        tf.config.run_functions_eagerly(is_eager)
        try:
            results += [outer(x), inner(x), outer(x)]
        finally:
            tf.config.run_functions_eagerly(False)
    return results, seen.count("traced") > 0, [one for one in seen if one != "traced"], w.numpy()


def eager_first(make: Make) -> Any:
    """The very first call is eager; Python runs each time, and a later call traces."""
    counts, w = [], tf.Variable([1.0, 2.0])

    @make.traced
    def f(x):
        counts.append(tf.executing_eagerly())
        return tf.reduce_sum(w.assign_add(tf.stack([x, x])))

    tf.config.run_functions_eagerly(True)
    try:
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(w * 3.0) + f(tf.constant(1.0))
        results = [y, tape.gradient(y, w), f(tf.constant(2.0))]
    finally:
        tf.config.run_functions_eagerly(False)
    return results, list(counts), f(tf.constant(3.0)), w.numpy()


def functions_that_make_variables_inside(make: Make) -> Any:
    """A placed function calls undecorated ones, which make variables when they are first called."""
    made: list[tf.Variable] = []

    @tf.function
    def inner(x):
        if not made:
            made.append(tf.Variable(tf.ones([2, 2]) * 0.5))
        return x @ made[0]

    other = tf.Variable(3.0)
    inner(X)
    f = make.traced(lambda x: inner(x) * other)
    return f(X), f(X[:1]), made[0].numpy()


def variables_that_every_trace_makes(make: Make) -> Any:
    """A function that makes variables at each call is the same error."""
    f, w = make.traced(lambda x: tf.Variable(1.0) * x), tf.Variable(2.0)
    return raised(lambda: f(X)), raised(lambda: f(X)), make.traced(lambda x: x * w)(X)


def options_of_functions(make: Make) -> Any:
    """Without autograph, with type hints, attributes of the graph, and options of autograph."""
    w = tf.Variable(2.0)
    f = make(lambda x: x * w if isinstance(x, tf.Tensor) else -1.0, autograph=False)
    g = make(lambda x: x + w, experimental_attributes={"api_implements": "head"})
    h = make(
        lambda x: x - w if tf.reduce_sum(x) > 0.0 else x + w,
        experimental_autograph_options=tf.autograph.experimental.Feature.ALL,
    )
    return f(X), g(X), h(X), h(-X)


def from_python_inside_a_graph(make: Make) -> Any:
    """Python that a graph calls, in its own thread, calls the placed function for the first time."""
    w = tf.Variable(2.0)
    f = make.traced(lambda x: tf.tanh(x * w))
    outer = tf.function(
        lambda x: tf.ensure_shape(tf.py_function(lambda x: f(x) + 1.0, [x], tf.float32), [2, 2])
    )
    by_numpy = tf.function(lambda x: tf.numpy_function(lambda x: f(x).numpy(), [x], tf.float32))
    return outer(X), by_numpy(X), f(X), outer(X * 2.0)


def from_a_generator_of_data(make: Make) -> Any:
    """A dataset's Python generator calls the placed function for each element."""
    w = tf.Variable(1.0)
    f = make.traced(lambda x: w.assign_add(x) * 1.0)
    dataset = tf.data.Dataset.from_generator(
        lambda: (f(tf.constant(float(i))) for i in range(4)), output_signature=tf.TensorSpec([])
    )
    return list(dataset.as_numpy_iterator()), f(tf.constant(5.0)), w.numpy()


def from_coroutines_and_caches(make: Make) -> Any:
    """Coroutines and a cache of Python's call the placed function."""
    w = tf.Variable(1.0)
    f = make.traced(lambda x: w.assign_add(x) * 1.0)

    @functools.cache
    def cached(i: int) -> Any:
        return f(tf.constant(float(i)))

    async def work(i: int) -> Any:
        await asyncio.sleep(0)
        return f(tf.constant(float(i)))

    async def all_of_them() -> Any:
        return await asyncio.gather(*(work(i) for i in range(4)))

    return asyncio.run(all_of_them()), [cached(i) for i in (1, 2, 1)], w.numpy()


def in_functions_of_higher_order(make: Make) -> Any:
    """``map_fn``, ``scan``, ``vectorized_map`` and ``while_loop`` are given the placed function, eagerly."""
    w = tf.Variable([[1.0, 0.5], [-0.5, 0.25]])
    f = make.traced(lambda row: tf.tanh(tf.linalg.matvec(w, row)))
    g = make.traced(lambda state, row: state * 0.5 + tf.linalg.matvec(w, row))
    looped = tf.while_loop(lambda i, _: i < 3, lambda i, state: (i + 1, f(state)), [tf.constant(0), X[0]])
    return tf.map_fn(f, X), tf.scan(g, X), tf.vectorized_map(f, X), looped, tf.foldl(g, X)


def gradients_by_name(make: Make) -> Any:
    """``tf.gradients`` and ``tf.hessians`` in an outer function, through a placed one."""
    w = tf.Variable([0.5, -1.0])
    f = make.traced(lambda x: tf.reduce_sum(tf.sin(x * w) ** 2))

    @tf.function
    def outer(x):
        y = f(x)
        return y, tf.gradients(y, [x, w]), tf.hessians(y, x)

    return outer(tf.constant([1.0, 2.0])), outer(tf.constant([-1.0, 0.5]))


def recording_is_stopped(make: Make) -> Any:
    """The first call is where the tape does not record, the second where it does."""
    w = tf.Variable([0.5, -1.0])
    f = make.traced(lambda x: tf.reduce_sum(tf.sin(x * w)))
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        first = tf.reduce_sum(w**2)
        with tape.stop_recording():
            hidden = f(x)
        loss = first + hidden + f(x)
    gradient = tape.gradient(loss, w)
    with tf.GradientTape() as tape:
        tape.watch(x)
        f(x)
        tape.reset()
        loss = f(x) * tf.reduce_sum(w)
    return hidden, gradient, tape.gradient(loss, w)


@runs_as_it_is("graph of TensorFlow 1")
def in_a_graph_with_a_variable(make: Make) -> Any:
    """A graph of one's own, without a session scope, with the function's variable beside it."""
    f = make.traced(lambda x: tf.tanh(x) * 2.0)
    eager = tf.Variable(3.0)
    with tf.Graph().as_default():
        y = f(tf.constant([1.0, 2.0])) + 1.0
        shape = y.shape.as_list()
        with tf.compat.v1.Session() as session:
            value = session.run(y)
    return shape, value, eager.numpy()
