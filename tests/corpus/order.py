"""Placed functions inside outer ones: reads and writes of variables keep the order of the program.

What comes first in a program comes late when it need not be waited for: its input takes a while, so that what follows
overtakes it in the first call in which nothing holds it back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.corpus.program import Make, program

TIMES = 20  # calls of each program
SIZE = 512  # elements of a variable: reading or writing it takes a while
ROWS = tf.range(SIZE)


def counter() -> tf.Variable:
    """As many zeros as take a while to read."""
    return tf.Variable(tf.zeros([SIZE]))


def ones() -> tf.Tensor:
    """What is added to it, at once."""
    return tf.ones([SIZE])


def late(x: tf.Tensor) -> tf.Tensor:
    """The same numbers, but a millisecond later."""
    square = tf.fill([256, 256], tf.reduce_sum(tf.cast(x, tf.float32)))
    return x + tf.cast(tf.reduce_max(square @ square) * 0.0, x.dtype)


def ends(x: tf.Tensor) -> tf.Tensor:
    """Least and greatest element: they differ where half of a tensor is old."""
    return tf.stack([tf.reduce_min(x), tf.reduce_max(x)])


def calls(function: Callable[[], Any], times: int = TIMES) -> list[Any]:
    """Results of that many calls."""
    return [function() for _ in range(times)]


def in_both_places(run: Callable[[Make], Any]) -> Callable[[Make], Any]:
    """Runs it twice: its variable leaves the device where it was made only once."""

    @functools.wraps(run)
    def twice(make: Make) -> Any:
        return run(make), run(make)

    return twice


@program
@in_both_places
def a_read_before_a_write(make: Make) -> Any:
    """The placed function reads what the outer one then writes."""
    w = counter()
    p = make(tf.function(lambda rows: tf.gather(w, rows)))

    @tf.function
    def outer(rows):
        a = p(late(rows))
        w.assign_add(ones())
        return ends(a)

    return calls(lambda: outer(ROWS)), w.numpy()


@program
@in_both_places
def a_whole_read_before_a_write(make: Make) -> Any:
    """The same, where the read itself need not wait for anything."""
    w = counter()
    p = make(tf.function(lambda: w + 0.0))

    @tf.function
    def outer():
        a = p()
        w.assign_add(ones())
        return ends(a)

    return calls(outer, 100), w.numpy()


@program
@in_both_places
def a_read_after_a_write(make: Make) -> Any:
    """The outer function writes what the placed one then reads."""
    w = counter()
    p = make(tf.function(lambda: w + 0.0))

    @tf.function
    def outer(x):
        w.assign_add(late(x))
        return ends(p())

    return calls(lambda: outer(ones()))


@program
@in_both_places
def a_write_before_a_read(make: Make) -> Any:
    """The placed function writes what the outer one then reads."""
    w = counter()
    p = make(tf.function(lambda x: w.assign_add(x) * 2.0))

    @tf.function
    def outer(x):
        p(late(x))
        return ends(w.read_value())

    return calls(lambda: outer(ones()))


@program
@in_both_places
def a_write_after_a_read(make: Make) -> Any:
    """The outer function reads what the placed one then writes; only the effect is used."""
    w = counter()

    @make
    @tf.function
    def p():
        w.assign_add(ones())

    @tf.function
    def outer(rows):
        a = tf.gather(w, late(rows))
        p()
        return ends(a)

    return calls(lambda: outer(ROWS)), w.numpy()


@program
@in_both_places
def reads_around_writes(make: Make) -> Any:
    """The placed function reads before and after what the outer one writes, twice."""
    w = counter()
    p = make(tf.function(lambda rows, scale: tf.gather(w, rows) * scale))

    @tf.function
    def outer(rows):
        before = p(late(rows), 1.0)
        w.assign_add(ones())
        between = p(late(rows), 1.0)
        w.assign(w * 0.5)
        return ends(before), ends(between), ends(p(rows, 2.0))

    return calls(lambda: outer(ROWS))


@program
@in_both_places
def two_placed_functions(make: Make) -> Any:
    """One reads and the other writes, by turns."""
    w = counter()
    read = make(tf.function(lambda rows: tf.gather(w, rows)))
    write = make(tf.function(lambda x: w.assign_add(x)))

    @tf.function
    def outer(rows, x):
        a = read(late(rows))
        write(x)
        b = read(late(rows))
        write(late(x) * 2.0)
        return ends(a), ends(b), ends(read(rows))

    return calls(lambda: outer(ROWS, ones())), w.numpy()


@program
@in_both_places
def two_writes(make: Make) -> Any:
    """Two placed functions assign to one variable: the later one's value stays."""
    w = counter()
    p = make(tf.function(lambda x: w.assign(x) + 0.0))
    q = make(tf.function(lambda x: w.assign(x * 2.0) + 0.0))

    @tf.function
    def outer(x, is_last):
        if is_last:
            p(late(x))
            q(x)
        else:
            q(late(x))
            p(x)
        return ends(w)

    return [outer(ones() * float(i), tf.constant(i % 2 == 0)) for i in range(TIMES)], w.numpy()


@program
def two_variables_and_two_functions(make: Make) -> Any:
    """Each reads the variable that the other writes."""
    v, w = counter(), counter()
    there = make(tf.function(lambda x: w.assign(v + x)))
    back = make(tf.function(lambda x: v.assign(w * 2.0 - x)))

    @tf.function
    def outer(x):
        there(late(x))
        back(late(x))
        a = v + w
        there(late(x))
        v.assign(tf.math.floormod(v, 64.0))
        return ends(a), ends(w)

    return calls(lambda: outer(ones())), v.numpy(), w.numpy()


@program
@in_both_places
def a_placed_function_in_placed_functions(make: Make) -> Any:
    """The outer function is placed, too."""
    w = counter()
    p = make(tf.function(lambda rows: tf.gather(w, rows)))

    @make
    @tf.function
    def outer(rows):
        a = p(late(rows))
        w.assign_add(ones())
        b = p(late(rows))
        w.assign_sub(ones() * 0.5)
        return ends(a), ends(b)

    return calls(lambda: outer(ROWS)), w.numpy()


@program
@in_both_places
def in_a_loop(make: Make) -> Any:
    """Each turn of an outer loop reads what the turn before wrote."""
    w = counter()
    p = make(tf.function(lambda rows: tf.gather(w, rows)))

    @tf.function
    def outer(rows, n):
        total = tf.zeros([SIZE])
        for i in tf.range(n):
            total += p(late(rows))
            w.assign_add(tf.fill([SIZE], tf.cast(i, tf.float32)))
            total += p(late(rows))
        return ends(total)

    return calls(lambda: outer(ROWS, tf.constant(5)), 8), w.numpy()


@program
@in_both_places
def a_placed_loop(make: Make) -> Any:
    """The placed function is itself a loop that writes; the outer one reads on both sides of it."""
    w = counter()

    @make
    @tf.function
    def p(x, n):
        for _ in tf.range(n):
            w.assign_add(x)

    @tf.function
    def outer(rows, x, n):
        before = tf.gather(w, late(rows))
        p(x, n)
        p(late(x), n)
        after = w * 1.0
        w.assign_sub(ones())
        return ends(before), ends(after)

    return calls(lambda: outer(ROWS, ones(), tf.constant(3)), 10), w.numpy()


@program
@in_both_places
def in_branches(make: Make) -> Any:
    """A branch reads and writes, the other writes and reads."""
    w = counter()
    p = make(tf.function(lambda rows: tf.gather(w, rows)))

    @tf.function
    def outer(rows, x, flag):
        if flag:
            a = p(late(rows))
            w.assign_add(x)
        else:
            w.assign_add(late(x) * 2.0)
            a = p(rows)
        w.assign_add(x * 4.0)
        return ends(a)

    return calls(lambda: [outer(ROWS, ones(), tf.constant(flag)) for flag in (True, False)]), w.numpy()


@program
@in_both_places
def a_placed_branch(make: Make) -> Any:
    """The placed function writes in one branch alone; the outer one reads on both sides of it."""
    w = counter()

    @make
    @tf.function
    def p(x, flag):
        if flag:
            w.assign_add(x)
        return tf.cast(flag, tf.float32)

    @tf.function
    def outer(rows, x, flag):
        p(late(x), flag)
        a = tf.gather(w, late(rows))
        p(x, not flag)
        return ends(a)

    return calls(lambda: [outer(ROWS, ones(), tf.constant(flag)) for flag in (True, False)]), w.numpy()


@program
@in_both_places
def a_branch_that_reads(make: Make) -> Any:
    """A branch of the placed function reads, when its condition is known at last; the outer one writes."""
    w = counter()

    @make
    @tf.function
    def p(x):
        return w * 1.0 if tf.reduce_sum(x) > 0.0 else w * -1.0

    @tf.function
    def outer(x):
        a = p(late(x))
        w.assign_add(x)
        return ends(a)

    return calls(lambda: (outer(ones()), outer(-ones() * 0.5))), w.numpy()


@program
@in_both_places
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
@in_both_places
def a_sparse_update_after_a_read(make: Make) -> Any:
    """Rows are gathered by the placed function, then scattered into by the outer one."""
    table = tf.Variable(tf.zeros([256, 16]))
    p = make(tf.function(lambda i: tf.gather(table, i)))

    @tf.function
    def outer(i):
        rows = p(late(i))
        table.scatter_add(tf.IndexedSlices(tf.ones([64, 16]), i))
        return ends(rows)

    i = tf.range(64) * 2
    return calls(lambda: outer(i)), table.numpy()


@program
@in_both_places
def explicit_dependencies(make: Make) -> Any:
    """The outer function says with ``control_dependencies`` what waits for the placed one."""
    w = counter()
    p = make(tf.function(lambda rows: tf.gather(w, rows)))
    q = make(tf.function(lambda x: w.assign_add(x)))

    @tf.function
    def outer(rows, x):
        a = p(late(rows))
        with tf.control_dependencies([a]):
            b = tf.identity(q(late(x)))
        with tf.control_dependencies([tf.group(a, b)]):
            c = w.read_value()
        return ends(a), ends(b), ends(c)

    return calls(lambda: outer(ROWS, ones()))


@program
@in_both_places
def without_automatic_dependencies(make: Make) -> Any:
    """A graph of one's own around the placed function: what is fetched is what runs."""
    w = counter()
    p = make(tf.function(lambda x: w.assign_add(x)))

    def wrapped(x):
        a = p(late(x))
        with tf.control_dependencies([a]):
            return ends(w.read_value())

    outer = tf.compat.v1.wrap_function(wrapped, [tf.TensorSpec([SIZE])])
    return calls(lambda: outer(ones()), 10)


@program
@in_both_places
def results_that_nobody_uses(make: Make) -> Any:
    """The outer function drops the results; the effects happen all the same, before it returns."""
    w = counter()
    p = make(tf.function(lambda x: w.assign_add(x)))

    @tf.function
    def outer(x):
        p(late(x))
        p(late(x) * 2.0)
        return tf.reduce_sum(x)

    return [(outer(ones()), ends(w)) for _ in range(10)]


@program
@in_both_places
def a_concrete_function_inside(make: Make) -> Any:
    """The outer function calls a concrete function of the placed one."""
    w = counter()
    p = make(tf.function(lambda rows: tf.gather(w, rows))).get_concrete_function(ROWS)

    @tf.function
    def outer(rows):
        a = p(late(rows))
        w.assign_add(ones())
        return ends(a)

    return calls(lambda: outer(ROWS)), w.numpy()


@program
@in_both_places
def gradients_that_read_again(make: Make) -> Any:
    """The forward pass reads, the outer function writes, the gradient uses what was read before."""
    w = tf.Variable(tf.ones([SIZE]))
    p = make(tf.function(lambda rows, x: tf.reduce_sum(tf.gather(w, rows) ** 2 * x)))

    @tf.function
    def outer(rows, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = p(late(rows), x)
        w.assign_add(ones())
        return ends(tape.gradient(y, x)), ends(w)

    return calls(lambda: outer(ROWS, ones()))


@program
@in_both_places
def gradients_that_write(make: Make) -> Any:
    """The gradient of the placed function writes, and the outer function reads behind it."""
    w, seen = tf.Variable(tf.ones([SIZE])), counter()

    @tf.custom_gradient
    def counted(x):
        def gradient(upstream):
            seen.assign_add(upstream)
            return upstream * 3.0

        return x * 1.0, gradient

    p = make(tf.function(lambda x: tf.reduce_sum(counted(x) * w)))

    @tf.function
    def outer(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = p(late(x)) * 2.0
        gradient = tape.gradient(y, x)
        return ends(gradient), ends(seen.read_value())

    return calls(lambda: outer(ones())), seen.numpy()
