"""Branches, loops, arrays of tensors, recursion of functions into each other."""

from typing import Any

import tensorflow as tf

from tests.corpus.program import Make


def autograph_branches_and_loops(make: Make) -> Any:
    """Python's if, while, for, break and continue on tensors."""

    @make.traced
    def f(x, n):
        total = tf.zeros_like(x)
        for i in tf.range(n):
            if i % 2 == 0:
                continue
            total += x * tf.cast(i, tf.float32)
            if tf.reduce_sum(total) > 20.0:
                break
        while tf.reduce_sum(total) < 5.0:
            total += 1.0
        return total

    x = tf.constant([1.0, 2.0])
    return [f(x, tf.constant(n)) for n in (0, 3, 9)]


def gradients_through_loops(make: Make) -> Any:
    """A loop with weights, whose trip count is an argument, under a tape inside and outside."""
    w = tf.Variable([[0.5, -0.25], [1.0, 0.75]])

    @make.traced
    def f(x, n):
        for _ in tf.range(n):
            x = tf.tanh(x @ w)
        return tf.reduce_sum(x)

    x = tf.constant([[1.0, 2.0]])
    results = []
    for n in (1, 4):
        with tf.GradientTape() as tape:
            y = f(x, tf.constant(n))
        results.append((y, tape.gradient(y, w)))
    return results


def nested_branches(make: Make) -> Any:
    """A branch in a branch in a loop, with a switch of four cases, each touching a variable."""
    v = tf.Variable(1.0)

    @make.traced
    def f(which, flag):
        for i in tf.range(2):
            value = tf.switch_case(which, [lambda: v * 1.0, lambda: v + 2.0, lambda: v - 3.0, lambda: -v])
            if flag:
                if i == 1:
                    v.assign(value)
                else:
                    v.assign_add(1.0)
        return v + value

    return [f(tf.constant(which), tf.constant(which % 2 == 0)) for which in range(4)], v.numpy()


def arrays_of_tensors(make: Make) -> Any:
    """A TensorArray that is written in a loop, of known and of unknown size."""

    @make.traced
    def f(x, n):
        known = tf.TensorArray(tf.float32, 3)
        for i in range(3):
            known = known.write(i, x * float(i))
        grown = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[2])
        for i in tf.range(n):
            grown = grown.write(i, x + tf.cast(i, tf.float32))
        return known.stack(), grown.stack(), grown.size()

    x = tf.constant([1.0, 2.0])
    return f(x, tf.constant(2)), f(x, tf.constant(5))


def maps_scans_and_folds(make: Make) -> Any:
    """Functions of higher order, with gradients."""

    @make.traced
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            mapped = tf.map_fn(lambda row: tf.reduce_sum(row) * row, x)
            scanned = tf.scan(lambda a, row: a * 0.5 + row, mapped)
            folded = tf.foldl(lambda a, row: a + row, scanned)
            loss = tf.reduce_sum(folded**2)
        return mapped, scanned, folded, tape.gradient(loss, x)

    return f(tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))


def vectorized_map(make: Make) -> Any:
    """A loop that TensorFlow turns into one batch."""
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    f = make.traced(lambda x: tf.vectorized_map(lambda row: tf.linalg.matvec(w, row), x))
    return f(tf.constant([[1.0, 0.0], [0.5, 2.0], [3.0, 1.0]]))


def functions_that_call_functions(make: Make) -> Any:
    """Placed functions in placed functions, three deep, one of them called twice."""
    v = tf.Variable(2.0)
    inner = make.traced(lambda x: x * v)
    middle = make.traced(lambda x: inner(x) + inner(x + 1.0))
    outer = make.traced(lambda x: tf.sin(middle(x)))
    with tf.GradientTape() as tape:
        y = outer(tf.constant([1.0, 2.0]))
    return y, tape.gradient(y, v)


def a_loop_of_parallel_iterations_with_state(make: Make) -> Any:
    """A while_loop over a structure, with a maximum and shapes that grow."""

    @make.traced
    def f(x):
        def body(i, state):
            return i + 1, {"all": tf.concat([state["all"], x * float(2)], 0), "last": state["last"] * 0.5}

        shapes = [tf.TensorShape([]), {"all": tf.TensorShape([None]), "last": x.shape}]
        return tf.while_loop(lambda i, _: i < 3, body, [0, {"all": x, "last": x}], shape_invariants=shapes)

    return f(tf.constant([1.0, 2.0]))


def early_returns(make: Make) -> Any:
    """Returns from inside branches, one of which leaves a loop behind."""

    @make.traced
    def f(x):
        if tf.reduce_sum(x) > 10.0:
            return x * 2.0
        if tf.reduce_max(x) > 2.0:
            for _ in tf.range(3):
                x = x + 1.0
            return -x
        return x

    return [f(tf.constant(v)) for v in ([9.0, 9.0], [3.0, 1.0], [0.0, 0.0])]
