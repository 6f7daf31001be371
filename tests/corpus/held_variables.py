"""Variables that a tape, a dataset, a function or a loop holds when the first call moves them, or would."""

import concurrent.futures
import gc
import threading
import weakref
from typing import Any

import tensorflow as tf

from tests.corpus.program import Make
from tests.corpus.shared_state import X, weights


def one_by_one() -> tf.data.Options:
    """No element is made before the update that it follows."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return options


def a_tape_that_has_read_it(make: Make) -> Any:
    """The first call is inside an open tape that read the variable before, and reads it after."""
    w = weights()
    f = make.traced(lambda x: tf.reduce_sum(tf.tanh(x @ w)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * X)
        loss += f(X)
        loss += tf.reduce_sum(w**2)
    return loss, tape.gradient(loss, w)


def a_persistent_tape(make: Make) -> Any:
    """Gradients of each part, taken after the first call."""
    w = weights()
    f = make.traced(lambda x: tf.reduce_sum(tf.tanh(x @ w)))
    with tf.GradientTape(persistent=True) as tape:
        before = tf.reduce_sum(w * X)
        inside = f(X)
        after = tf.reduce_sum(w * X * inside)
        whole = before + inside + after
    return [tape.gradient(part, w) for part in (before, inside, after, whole)]


def tapes_in_tapes(make: Make) -> Any:
    """Second order: both tapes read the variable before the first call."""
    w = weights()
    f = make.traced(lambda x: tf.reduce_sum(tf.sin(x @ w)))
    with tf.GradientTape() as outer:
        square = tf.reduce_sum(w**3)
        with tf.GradientTape() as inner:
            loss = square * tf.reduce_sum(w * X) + f(X)
        gradient = inner.gradient(loss, w)
        norm = tf.reduce_sum(gradient**2)
    return gradient, outer.gradient(norm, w)


def a_tape_that_watches_by_hand(make: Make) -> Any:
    """The variable is watched explicitly, before the first call."""
    w, unwatched = weights(), weights()
    f = make.traced(lambda x: tf.reduce_sum((x @ w) * (x @ unwatched)))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(w)
        loss = f(X) + tf.reduce_sum(w)
    return tape.gradient(loss, [w, unwatched])


def a_tape_that_is_asked_later(make: Make) -> Any:
    """The tape is closed before the first call, and asked for its gradient after it."""
    w = weights()
    f = make.traced(lambda x: tf.reduce_sum(x @ w))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * w)
    value = f(X)
    gradient = tape.gradient(loss, w)
    return value, gradient, w.assign_sub(0.1 * gradient), f(X)


def a_tape_around_two_functions(make: Make) -> Any:
    """Two functions share the variable, both are called for the first time in one tape, then trained."""
    w = weights()
    f = make.traced(lambda x: tf.reduce_sum(tf.tanh(x @ w)))
    g = make.traced(lambda x: tf.reduce_sum(tf.sigmoid(x * w)))
    results = []
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = f(X) * tf.reduce_sum(w) + g(X)
        results.append((loss, tape.gradient(loss, w)))
        w.assign_sub(0.1 * results[-1][1])
    return results, w.numpy()


def a_forward_accumulator(make: Make) -> Any:
    """Forward mode along the variable, which was read before the first call."""
    w = weights()
    f = make.traced(lambda x: tf.reduce_sum(tf.tanh(x @ w)))
    with tf.autodiff.ForwardAccumulator(w, tf.ones([2, 2])) as accumulator:
        before = tf.reduce_sum(w * X)
        inside = f(X)
        after = before * inside * tf.reduce_sum(w)
    return [accumulator.jvp(part) for part in (before, inside, after)]


def a_jacobian_of_both(make: Make) -> Any:
    """A Jacobian in one batch through what was read before and through the call."""
    w = weights()
    f = make.traced(lambda x: tf.tanh(x @ w))
    with tf.GradientTape() as tape:
        y = tf.concat([w * X, f(X)], 0)
    return tape.jacobian(y, w)


def a_dataset_that_maps_it(make: Make) -> Any:
    """A dataset captured the variable before the first call; it sees what the function then writes."""
    w = tf.Variable(0.0)
    dataset = tf.data.Dataset.range(2).map(lambda i: tf.cast(i, tf.float32) + w)
    f = make.traced(lambda x: w.assign_add(x) * 1.0)
    seen = [list(dataset.as_numpy_iterator())]
    for _ in range(3):
        f(tf.constant(2.0))
        seen.append([float(x) for x in dataset])
    return seen, w.numpy()


def an_iterator_that_is_under_way(make: Make) -> Any:
    """An iterator whose map and filter read variables has begun before the first call."""
    w, limit = tf.Variable(1.0), tf.Variable(100.0)
    dataset = tf.data.Dataset.range(10).map(lambda i: tf.cast(i, tf.float32) * w).filter(lambda x: x < limit)
    iterator = iter(dataset.with_options(one_by_one()))
    f = make.traced(lambda x: (w.assign_add(x), limit.assign_sub(2.0)))
    seen = [next(iterator)]
    for _ in range(4):
        f(tf.constant(1.0))
        seen.append(next(iterator))
    return seen


def the_placed_function_reads_the_dataset(make: Make) -> Any:
    """The step takes its data from an iterator that maps a variable, which the step updates between two of them."""
    w = tf.Variable(1.0)
    dataset = tf.data.Dataset.range(8).map(lambda i: tf.cast(i, tf.float32) - w)
    iterator = iter(dataset.with_options(one_by_one()))
    step = make.traced(lambda x: w.assign_add(x * 0.5) + 0.0)
    data = make.traced(lambda: next(iterator) * 1.0)
    return [step(data()) for _ in range(5)], w.numpy()


def a_function_that_was_traced_before(make: Make) -> Any:
    """An undecorated function read and wrote the variable before the first call, and goes on."""
    w = weights()
    read = tf.function(lambda: w * 1.0)
    write = tf.function(lambda x: w.assign_add(x) * 1.0)
    first = read(), write(X)
    f = make.traced(lambda x: w.assign_sub(x * 0.5) @ x)
    results = []
    for _ in range(3):
        results += [f(X), read(), write(X), read()]
    return first, results, w.numpy()


def concrete_functions_from_before(make: Make) -> Any:
    """Concrete functions, their pruned and their compat.v1 wrapped kind, go on with the variable."""
    w = weights()
    concrete = tf.function(lambda x: x @ w).get_concrete_function(tf.TensorSpec([2, 2]))
    wrapped = tf.compat.v1.wrap_function(lambda x: x * w, [tf.TensorSpec([2, 2])])
    pruned = wrapped.prune(wrapped.inputs[0], wrapped.outputs[0])
    before = concrete(X), wrapped(X), pruned(X)
    f = make.traced(lambda x: w.assign_add(x))
    f(X)
    return before, concrete(X), wrapped(X), pruned(X), f(X), concrete(X), w.numpy()


def gradients_of_a_function_from_before(make: Make) -> Any:
    """A function traced before, with its gradient, is differentiated after the first call."""
    w = weights()
    before = tf.function(lambda x: tf.reduce_sum(tf.sin(x @ w)))

    def gradient_of(function: Any) -> Any:
        with tf.GradientTape() as tape:
            y = function(X)
        return tape.gradient(y, w)

    results = [gradient_of(before)]
    f = make.traced(lambda x: tf.reduce_sum(tf.cos(x @ w)))
    for _ in range(2):
        results += [gradient_of(f), gradient_of(before), gradient_of(lambda x: f(x) * before(x))]
        w.assign_sub(0.1 * results[-1])
    return results


def a_loaded_model_shares_it(make: Make) -> Any:
    """Functions of a loaded SavedModel hold the variables that a placed function trains."""
    module = tf.Module()
    module.w = weights()
    module.f = tf.function(lambda x: x @ module.w, input_signature=[tf.TensorSpec([2, 2])])
    module.g = tf.function(lambda x: module.w.assign_add(x), input_signature=[tf.TensorSpec([2, 2])])
    tf.saved_model.save(module, str(make.folder / "module"), signatures={"serving_default": module.f})
    loaded = tf.saved_model.load(str(make.folder / "module"))
    serve = loaded.signatures["serving_default"]
    before = list(serve(X).values())
    step = make.traced(lambda x: loaded.w.assign_sub(loaded.f(x) * 0.1))
    results = [step(X), *serve(X).values(), loaded.f(X), loaded.g(X), step(X), *serve(X).values()]
    return before, results, loaded.w.numpy()


def a_resource_handle_of_ones_own(make: Make) -> Any:
    """Raw ops go on with a handle that was taken before the first call."""
    w = weights()
    handle = w.handle
    f = make.traced(lambda x: w.assign_add(x))
    f(X)
    tf.raw_ops.AssignAddVariableOp(resource=handle, value=X)
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), f(X), w.numpy()


def a_python_function_in_another_graph(make: Make) -> Any:
    """Python that another graph calls reads the variable, before and after."""
    w = weights()
    read = tf.function(lambda: tf.ensure_shape(tf.py_function(lambda: w * 1.0, [], tf.float32), [2, 2]))
    before = read()
    f = make.traced(lambda x: w.assign_add(x))
    return before, f(X), read(), f(X), read()


def a_generator_that_others_draw_from(make: Make) -> Any:
    """A generator's state was captured by a dataset and a function before the first call."""
    generator = tf.random.Generator.from_seed(11)
    dataset = tf.data.Dataset.range(2).map(lambda _: generator.uniform_full_int([], tf.int64))
    other = tf.function(lambda: generator.normal([2]))
    f = make.traced(lambda x: x + generator.normal([2]))
    results = [other(), list(dataset.as_numpy_iterator())]
    for _ in range(2):
        results += [f(1.0), other(), list(dataset.as_numpy_iterator()), generator.normal([2])]
    return results, generator.state.numpy()


def a_table_that_a_dataset_reads(make: Make) -> Any:
    """A dataset looks up in a table that the placed function fills."""
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
    scale = tf.Variable(2.0)
    dataset = tf.data.Dataset.range(3).map(lambda i: table.lookup(i) * scale)
    before = list(dataset.as_numpy_iterator())

    @make.traced
    def f(keys, values):
        table.insert(keys, values * scale)
        return scale.assign_add(1.0) + 0.0

    f(tf.constant([0, 1], tf.int64), tf.constant([1.0, 2.0]))
    between = list(dataset.as_numpy_iterator())
    f(tf.constant([1, 2], tf.int64), tf.constant([3.0, 4.0]))
    return before, between, list(dataset.as_numpy_iterator()), table.export()


def updates_from_threads(make: Make) -> Any:
    """Placed and undecorated functions and eager code add to one variable, from the first call on."""
    v = tf.Variable(tf.zeros([1000]))
    placed = make.traced(lambda x: v.assign_add(x) * 0.0)
    plain = tf.function(lambda x: v.assign_add(x) * 0.0)
    ones = tf.ones([1000])
    plain(ones)
    begin = threading.Barrier(4)
    failed: list[str] = []

    def work(function: Any) -> None:
        begin.wait()
        try:
            for _ in range(100):
                function(ones)
        except Exception as error:  # noqa: BLE001 - observed
            failed.append(f"{type(error).__name__}: {error}")

    functions = (placed, plain, placed, lambda x: v.assign_add(x))
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        threads.map(work, functions)
    return failed, v.numpy()


def first_calls_of_two_functions_from_threads(make: Make) -> Any:
    """Two functions that share variables are called for the first time at once, by two threads each."""
    v, w = tf.Variable(tf.zeros([100])), tf.Variable(0.0)

    @make.traced
    def f(x):
        w.assign_add(1.0)
        v.assign_add(x)

    @make.traced
    def g(x):
        v.assign_add(x * 2.0)
        w.assign_add(10.0)

    begin = threading.Barrier(4)

    def work(function: Any) -> None:
        begin.wait()
        for _ in range(25):
            function(tf.ones([100]))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        threads.map(work, (f, g, f, g))
    return v.numpy(), w.numpy()


def a_thread_in_a_loop(make: Make) -> Any:
    """A long undecorated call adds to the variable while the first call places it."""
    v = tf.Variable(0.0)

    @tf.function
    def many(n):
        for _ in tf.range(n):
            v.assign_add(1.0)

    many(tf.constant(1))
    f = make.traced(lambda x: v.assign_add(x))
    thread = threading.Thread(target=lambda: many(tf.constant(20_000)))
    thread.start()
    for _ in range(10):
        f(tf.constant(100_000.0))
    thread.join()
    return v.numpy()


def variables_that_are_let_go(make: Make) -> Any:
    """A variable and a function that nothing holds any more are freed."""

    def used() -> Any:
        w = tf.Variable(tf.ones([100]))
        f = make.traced(lambda x: w * x)
        make.made.pop()  # or this would hold it
        return f(tf.constant(2.0)), weakref.ref(w)

    results = [used() for _ in range(2)]
    gc.collect()
    other = make.traced(lambda x: x * 2.0)(tf.constant(1.0))
    return other, [result for result, _ in results], [held() is None for _, held in results]


def a_variable_that_was_deleted(make: Make) -> Any:
    """A function whose variable is gone says so, as undecorated."""
    box = [tf.Variable([1.0, 2.0])]
    f = make.traced(lambda x: box[0] * x)
    first = f(tf.constant(2.0))
    box.clear()
    gc.collect()
    try:
        f(tf.constant(3.0))
        outcome = "passed"
    except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError, IndexError) as error:
        outcome = type(error).__name__
    return first, outcome


def identities_that_stay(make: Make) -> Any:
    """References, names, shapes and identities of the variable are what they were."""
    w = tf.Variable([1.0, 2.0], name="w")
    reference, name, number = w.ref(), w.name, id(w)
    kept = {reference: "kept"}
    f = make.traced(lambda x: w.assign_add(x))
    f(tf.constant([1.0, 1.0]))
    same = reference.deref() is w, w.name == name, id(w) == number
    captured = f.get_concrete_function(tf.TensorSpec([2])).variables
    return kept[w.ref()], same, w.shape.as_list(), w.trainable, w.dtype.name, [v is w for v in captured]
