"""Placed functions inside outer ones: reads, writes and other effects keep the order of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.corpus.program import Make, program

TIMES = 50  # calls of each program: what does not wait is seen in one of them
SIZE = 4096  # elements of a variable: reading or writing it takes a while


def counter() -> tf.Variable:
    """As many zeros as take a while to read."""
    return tf.Variable(tf.zeros([SIZE]))


def ends(x: tf.Tensor) -> tf.Tensor:
    """Least and greatest element: they differ where half of a tensor is old."""
    return tf.stack([tf.reduce_min(x), tf.reduce_max(x)])


def calls(function: Callable[[], Any], times: int = TIMES) -> list[Any]:
    """Results of that many calls."""
    return [function() for _ in range(times)]


@program
def a_read_before_a_write(make: Make) -> Any:
    """The placed function reads what the outer one then writes."""
    w = counter()
    p = make(tf.function(lambda: w + 0.0))

    @tf.function
    def outer():
        a = p()
        w.assign_add(tf.ones([SIZE]))
        return ends(a)

    return calls(outer), w.numpy()


@program
def a_read_after_a_write(make: Make) -> Any:
    """The outer function writes what the placed one then reads."""
    w = counter()
    p = make(tf.function(lambda: w + 0.0))

    @tf.function
    def outer():
        w.assign_add(tf.ones([SIZE]))
        return ends(p())

    return calls(outer)


@program
def a_write_before_a_read(make: Make) -> Any:
    """The placed function writes what the outer one then reads."""
    w = counter()
    p = make(tf.function(lambda: w.assign_add(tf.ones([SIZE])) * 2.0))

    @tf.function
    def outer():
        p()
        return ends(w.read_value())

    return calls(outer)


@program
def a_write_after_a_read(make: Make) -> Any:
    """The outer function reads what the placed one then writes; only the effect is used."""
    w = counter()

    @make
    @tf.function
    def p():
        w.assign_add(tf.ones([SIZE]))

    @tf.function
    def outer():
        a = w + 0.0
        p()
        return ends(a)

    return calls(outer), w.numpy()


@program
def reads_around_writes(make: Make) -> Any:
    """The placed function reads before and after what the outer one writes, twice."""
    w = counter()
    p = make(tf.function(lambda scale: w * scale))

    @tf.function
    def outer():
        before = p(1.0)
        w.assign_add(tf.ones([SIZE]))
        between = p(1.0)
        w.assign(w * 0.5)
        return ends(before), ends(between), ends(p(2.0))

    return calls(outer)


@program
def two_placed_functions(make: Make) -> Any:
    """One reads and the other writes, by turns."""
    w = counter()
    read = make(tf.function(lambda: w * 1.0))
    write = make(tf.function(lambda x: w.assign_add(x)))

    @tf.function
    def outer(x):
        a = read()
        write(x)
        b = read()
        write(x * 2.0)
        return ends(a), ends(b)

    ones = tf.ones([SIZE])
    return calls(lambda: outer(ones)), w.numpy()


@program
def two_variables_and_two_functions(make: Make) -> Any:
    """Each reads the variable that the other writes."""
    v, w = counter(), counter()
    there = make(tf.function(lambda: w.assign(v + 1.0)))
    back = make(tf.function(lambda: v.assign(w * 2.0 - 1.0)))

    @tf.function
    def outer():
        there()
        back()
        a = v + w
        there()
        v.assign(tf.math.floormod(v, 64.0))
        return ends(a), ends(w)

    return calls(outer), v.numpy(), w.numpy()


@program
def a_placed_function_in_placed_functions(make: Make) -> Any:
    """The outer function is placed, too."""
    w = counter()
    p = make(tf.function(lambda: w + 0.0))

    @make
    @tf.function
    def outer():
        a = p()
        w.assign_add(tf.ones([SIZE]))
        b = p()
        w.assign_sub(tf.ones([SIZE]) * 0.5)
        return ends(a), ends(b)

    return calls(outer), w.numpy()


@program
def in_a_loop(make: Make) -> Any:
    """Each turn of an outer loop reads what the turn before wrote."""
    w = counter()
    p = make(tf.function(lambda: w * 1.0))

    @tf.function
    def outer(n):
        total = tf.zeros([SIZE])
        for i in tf.range(n):
            total += p()
            w.assign_add(tf.fill([SIZE], tf.cast(i, tf.float32)))
            total += p()
        return ends(total)

    return calls(lambda: outer(tf.constant(5)), 20), w.numpy()


@program
def a_placed_loop(make: Make) -> Any:
    """The placed function is itself a loop that writes; the outer one reads on both sides of it."""
    w = counter()

    @make
    @tf.function
    def p(n):
        for _ in tf.range(n):
            w.assign_add(tf.ones([SIZE]))

    @tf.function
    def outer(n):
        before = w * 1.0
        p(n)
        after = w * 1.0
        w.assign_sub(tf.ones([SIZE]))
        return ends(before), ends(after)

    return calls(lambda: outer(tf.constant(3)), 20), w.numpy()


@program
def in_branches(make: Make) -> Any:
    """A branch reads and writes, the other writes and reads."""
    w = counter()
    p = make(tf.function(lambda: w * 1.0))

    @tf.function
    def outer(flag):
        if flag:
            a = p()
            w.assign_add(tf.ones([SIZE]))
        else:
            w.assign_add(tf.ones([SIZE]) * 2.0)
            a = p()
        w.assign_add(tf.ones([SIZE]) * 4.0)
        return ends(a)

    return calls(lambda: (outer(tf.constant(True)), outer(tf.constant(False))), 25), w.numpy()


@program
def a_placed_branch(make: Make) -> Any:
    """The placed function writes in one branch alone; the outer one reads behind it."""
    w = counter()

    @make
    @tf.function
    def p(flag):
        if flag:
            w.assign_add(tf.ones([SIZE]))
        return tf.cast(flag, tf.float32)

    @tf.function
    def outer(flag):
        p(flag)
        a = w + 0.0
        p(not flag)
        return ends(a)

    return calls(lambda: (outer(tf.constant(True)), outer(tf.constant(False))), 25), w.numpy()


@program
def training_steps_by_hand(make: Make) -> Any:
    """The loss is placed; the outer step differentiates it, updates, and asks it again."""
    w = tf.Variable(tf.ones([64, 64]) * 0.01)
    x = tf.reshape(tf.range(64.0 * 8), [8, 64]) / 512.0
    loss_of = make(tf.function(lambda x: tf.reduce_mean((tf.tanh(x @ w) - 0.5) ** 2)))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss, loss_of(x)

    return calls(lambda: step(x)), w.numpy()


@program
def a_sparse_update_after_a_read(make: Make) -> Any:
    """Rows are gathered by the placed function, then scattered into by the outer one."""
    table = tf.Variable(tf.zeros([256, 16]))
    p = make(tf.function(lambda i: tf.gather(table, i)))

    @tf.function
    def outer(i):
        rows = p(i)
        table.scatter_add(tf.IndexedSlices(tf.ones([64, 16]), i))
        return ends(rows)

    i = tf.range(64) * 2
    return calls(lambda: outer(i)), table.numpy()


@program
def explicit_dependencies(make: Make) -> Any:
    """The outer function says with ``control_dependencies`` what waits for the placed one."""
    w = counter()
    p = make(tf.function(lambda: w * 1.0))
    q = make(tf.function(lambda: w.assign_add(tf.ones([SIZE]))))

    @tf.function
    def outer():
        a = p()
        with tf.control_dependencies([a]):
            b = tf.identity(q())
        with tf.control_dependencies([tf.group(a, b)]):
            c = w.read_value()
        return ends(a), ends(b), ends(c)

    return calls(outer)


@program
def without_automatic_dependencies(make: Make) -> Any:
    """A graph of one's own around the placed function: what is fetched is what runs."""
    w = counter()
    p = make(tf.function(lambda: w.assign_add(tf.ones([SIZE]))))

    def wrapped():
        a = p()
        with tf.control_dependencies([a]):
            return ends(w.read_value())

    return calls(tf.compat.v1.wrap_function(wrapped, []), 10)


@program
def results_that_nobody_uses(make: Make) -> Any:
    """The outer function drops the results; the effects happen all the same."""
    w = counter()
    p = make(tf.function(lambda x: w.assign_add(x)))

    @tf.function
    def outer(x):
        p(x)
        p(x * 2.0)
        return tf.reduce_sum(x)

    ones = tf.ones([SIZE])
    return calls(lambda: outer(ones), 10), w.numpy()


@program
def a_concrete_function_inside(make: Make) -> Any:
    """The outer function calls a concrete function of the placed one."""
    w = counter()
    p = make(tf.function(lambda x: w + x)).get_concrete_function(tf.TensorSpec([], tf.float32))

    @tf.function
    def outer(x):
        a = p(x)
        w.assign_add(tf.ones([SIZE]))
        return ends(a)

    return calls(lambda: outer(tf.constant(0.0))), w.numpy()


@program
def gradients_that_read_again(make: Make) -> Any:
    """The forward pass reads, the outer function writes, the gradient uses what was read before."""
    w = tf.Variable(tf.ones([SIZE]))
    p = make(tf.function(lambda x: tf.reduce_sum(w * w * x)))

    @tf.function
    def outer(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = p(x)
        w.assign_add(tf.ones([SIZE]))
        return ends(tape.gradient(y, x)), ends(w)

    x = tf.ones([SIZE])
    return calls(lambda: outer(x), 20)
