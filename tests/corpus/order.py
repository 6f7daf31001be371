"""Placed functions inside outer ones: reads and writes of variables keep the order of the program.

What comes first in a program comes late when it need not be waited for: its input takes a while, so that what follows
overtakes it in the first call in which nothing holds it back.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tests.corpus.program import Make

TIMES = 20  # calls of each program
SIZE = 512  # elements of a variable: reading or writing it takes a while
ROWS = tf.range(SIZE)
ONES = tf.ones([SIZE])


def counter() -> tf.Variable:
    """As many zeros as take a while to read."""
    return tf.Variable(tf.zeros([SIZE]))


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


def read(w: tf.Variable, rows: tf.Tensor) -> tf.Tensor:
    return tf.gather(w, rows)


def add(w: tf.Variable, x: tf.Tensor) -> None:
    w.assign_add(x)


def in_both_places(run: Callable[[Make], Any]) -> Callable[[Make], Any]:
    """Runs it twice: its variable leaves the device where it was made only once."""
    return functools.wraps(run)(lambda make: (run(make), run(make)))


def around(
    *placed: Callable[..., Any],
    given: Sequence[tuple[tf.Tensor, ...]] = ((ROWS,),) * TIMES,
    variable: Callable[[], tf.Variable] = counter,
) -> Callable[[Callable[..., Any]], Callable[[Make], Any]]:
    """Programs of a variable, functions of it that are placed, and an outer function, the decorated one."""

    def program_of(body: Callable[..., Any]) -> Callable[[Make], Any]:
        def run(make: Make) -> Any:
            w = variable()
            functions = [make.traced(lambda *inputs, of=of: of(w, *inputs)) for of in placed]
            outer = tf.function(lambda *inputs: body(w, *functions, *inputs))
            return [outer(*inputs) for inputs in given], w.numpy()

        run.__name__, run.__doc__, run.__module__ = body.__name__, body.__doc__, body.__module__
        return in_both_places(run)

    return program_of


@around(read)
def a_read_before_a_write(w, p, rows):
    """The placed function reads what the outer one then writes."""
    a = p(late(rows))
    w.assign_add(ONES)
    return ends(a)


@around(lambda w: w + 0.0, given=[()] * 100)
def a_whole_read_before_a_write(w, p):
    """The same, where the read itself need not wait for anything."""
    a = p()
    w.assign_add(ONES)
    return ends(a)


@around(lambda w: w + 0.0, given=[(ONES,)] * TIMES)
def a_read_after_a_write(w, p, x):
    """The outer function writes what the placed one then reads."""
    w.assign_add(late(x))
    return ends(p())


@around(lambda w, x: w.assign_add(x) * 2.0, given=[(ONES,)] * TIMES)
def a_write_before_a_read(w, p, x):
    """The placed function writes what the outer one then reads."""
    p(late(x))
    return ends(w.read_value())


@around(add)
def a_write_after_a_read(w, p, rows):
    """The outer function reads what the placed one then writes; only the effect is used."""
    a = tf.gather(w, late(rows))
    p(ONES)
    return ends(a)


@around(lambda w, rows, scale: tf.gather(w, rows) * scale)
def reads_around_writes(w, p, rows):
    """The placed function reads before and after what the outer one writes, twice."""
    before = p(late(rows), 1.0)
    w.assign_add(ONES)
    between = p(late(rows), 1.0)
    w.assign(w * 0.5)
    return ends(before), ends(between), ends(p(rows, 2.0))


@around(read, lambda w, x: w.assign_add(x), given=[(ROWS, ONES)] * TIMES)
def two_placed_functions(w, p, write, rows, x):
    """One reads and the other writes, by turns."""
    a = p(late(rows))
    write(x)
    b = p(late(rows))
    write(late(x) * 2.0)
    return ends(a), ends(b), ends(p(rows))


@around(
    lambda w, x: w.assign(x) + 0.0,
    lambda w, x: w.assign(x * 2.0) + 0.0,
    given=[(ONES * float(i), tf.constant(i % 2 == 0)) for i in range(TIMES)],
)
def two_writes(w, p, q, x, is_last):
    """Two placed functions assign to one variable: the later one's value stays."""
    if is_last:
        p(late(x))
        q(x)
    else:
        q(late(x))
        p(x)
    return ends(w)


def two_variables_and_two_functions(make: Make) -> Any:
    """Each reads the variable that the other writes."""
    v, w = counter(), counter()
    there = make.traced(lambda x: w.assign(v + x))
    back = make.traced(lambda x: v.assign(w * 2.0 - x))

    @tf.function
    def outer(x):
        there(late(x))
        back(late(x))
        a = v + w
        there(late(x))
        v.assign(tf.math.floormod(v, 64.0))
        return ends(a), ends(w)

    return calls(lambda: outer(ONES)), v.numpy(), w.numpy()


@in_both_places
def a_placed_function_in_placed_functions(make: Make) -> Any:
    """The outer function is placed, too."""
    w = counter()
    p = make.traced(lambda rows: tf.gather(w, rows))

    @make.traced
    def outer(rows):
        a = p(late(rows))
        w.assign_add(ONES)
        b = p(late(rows))
        w.assign_sub(ONES * 0.5)
        return ends(a), ends(b)

    return calls(lambda: outer(ROWS)), w.numpy()


@around(read, given=[(ROWS, tf.constant(5))] * 8)
def in_a_loop(w, p, rows, n):
    """Each turn of an outer loop reads what the turn before wrote."""
    total = tf.zeros([SIZE])
    for i in tf.range(n):
        total += p(late(rows))
        w.assign_add(tf.fill([SIZE], tf.cast(i, tf.float32)))
        total += p(late(rows))
    return ends(total)


def _added_in_a_loop(w, x, n):
    for _ in tf.range(n):
        w.assign_add(x)


@around(_added_in_a_loop, given=[(ROWS, ONES, tf.constant(3))] * 10)
def a_placed_loop(w, p, rows, x, n):
    """The placed function is itself a loop that writes; the outer one reads on both sides of it."""
    before = tf.gather(w, late(rows))
    p(x, n)
    p(late(x), n)
    after = w * 1.0
    w.assign_sub(ONES)
    return ends(before), ends(after)


BOTH_FLAGS = [(ROWS, ONES, tf.constant(flag)) for flag in (True, False)] * TIMES


@around(read, given=BOTH_FLAGS)
def in_branches(w, p, rows, x, flag):
    """A branch reads and writes, the other writes and reads."""
    if flag:
        a = p(late(rows))
        w.assign_add(x)
    else:
        w.assign_add(late(x) * 2.0)
        a = p(rows)
    w.assign_add(x * 4.0)
    return ends(a)


def _added_where_it_holds(w, x, flag):
    if flag:
        w.assign_add(x)
    return tf.cast(flag, tf.float32)


@around(_added_where_it_holds, given=BOTH_FLAGS)
def a_placed_branch(w, p, rows, x, flag):
    """The placed function writes in one branch alone; the outer one reads on both sides of it."""
    p(late(x), flag)
    a = tf.gather(w, late(rows))
    p(x, not flag)
    return ends(a)


def _read_in_a_branch(w, x):
    return w * 1.0 if tf.reduce_sum(x) > 0.0 else w * -1.0


@around(_read_in_a_branch, given=[(ONES,), (-ONES * 0.5,)] * TIMES)
def a_branch_that_reads(w, p, x):
    """A branch of the placed function reads, when its condition is known at last; the outer one writes."""
    a = p(late(x))
    w.assign_add(x)
    return ends(a)


@around(
    lambda w, x: tf.reduce_mean((tf.tanh(x @ w) - 0.5) ** 2),
    given=[(tf.reshape(tf.range(64.0 * 8), [8, 64]) / 512.0,)] * TIMES,
    variable=lambda: tf.Variable(tf.ones([64, 64]) * 0.01),
)
def training_steps_by_hand(w, loss_of, x):
    """The loss is placed; the outer step differentiates it, updates, and asks it again."""
    with tf.GradientTape() as tape:
        loss = loss_of(x)
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return loss, loss_of(x)


@around(read, given=[(tf.range(64) * 2,)] * TIMES, variable=lambda: tf.Variable(tf.zeros([256, 16])))
def a_sparse_update_after_a_read(table, p, i):
    """Rows are gathered by the placed function, then scattered into by the outer one."""
    rows = p(late(i))
    table.scatter_add(tf.IndexedSlices(tf.ones([64, 16]), i))
    return ends(rows)


@around(read, lambda w, x: w.assign_add(x), given=[(ROWS, ONES)] * TIMES)
def explicit_dependencies(w, p, q, rows, x):
    """The outer function says with ``control_dependencies`` what waits for the placed one."""
    a = p(late(rows))
    with tf.control_dependencies([a]):
        b = tf.identity(q(late(x)))
    with tf.control_dependencies([tf.group(a, b)]):
        c = w.read_value()
    return ends(a), ends(b), ends(c)


@in_both_places
def without_automatic_dependencies(make: Make) -> Any:
    """A graph of one's own around the placed function: what is fetched is what runs."""
    w = counter()
    p = make.traced(lambda x: w.assign_add(x))

    def wrapped(x):
        with tf.control_dependencies([p(late(x))]):
            return ends(w.read_value())

    outer = tf.compat.v1.wrap_function(wrapped, [tf.TensorSpec([SIZE])])
    return calls(lambda: outer(ONES), 10)


@in_both_places
def results_that_nobody_uses(make: Make) -> Any:
    """The outer function drops the results; the effects happen all the same, before it returns."""
    w = counter()
    p = make.traced(lambda x: w.assign_add(x))

    @tf.function
    def outer(x):
        p(late(x))
        p(late(x) * 2.0)
        return tf.reduce_sum(x)

    return [(outer(ONES), ends(w)) for _ in range(10)]


@in_both_places
def a_concrete_function_inside(make: Make) -> Any:
    """The outer function calls a concrete function of the placed one."""
    w = counter()
    p = make.traced(lambda rows: tf.gather(w, rows)).get_concrete_function(ROWS)

    @tf.function
    def outer(rows):
        a = p(late(rows))
        w.assign_add(ONES)
        return ends(a)

    return calls(lambda: outer(ROWS)), w.numpy()


@around(
    lambda w, rows, x: tf.reduce_sum(tf.gather(w, rows) ** 2 * x),
    given=[(ROWS, ONES)] * TIMES,
    variable=lambda: tf.Variable(ONES),
)
def gradients_that_read_again(w, p, rows, x):
    """The forward pass reads, the outer function writes, the gradient uses what was read before."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = p(late(rows), x)
    w.assign_add(ONES)
    return ends(tape.gradient(y, x)), ends(w)


@in_both_places
def gradients_that_write(make: Make) -> Any:
    """The gradient of the placed function writes, and the outer function reads behind it."""
    w, seen = tf.Variable(ONES), counter()

    @tf.custom_gradient
    def counted(x):
        def gradient(upstream):
            seen.assign_add(upstream)
            return upstream * 3.0

        return x * 1.0, gradient

    p = make.traced(lambda x: tf.reduce_sum(counted(x) * w))

    @tf.function
    def outer(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = p(late(x)) * 2.0
        return ends(tape.gradient(y, x)), ends(seen.read_value())

    return calls(lambda: outer(ONES)), seen.numpy()
