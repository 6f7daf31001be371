"""Programs of TensorFlow 1 as MetaGraphDefs: loops and branches of Switch and Merge, variables that are references.

Each is made under TensorFlow 1's control flow, in a graph of its own, and has static or fed shapes. ``PROGRAMS`` is the
table; tests place what is in it and run it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tests.colocation.random_graphs import control_flow

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Tf1Program:
    """A graph and what is computed of it."""

    meta_graph: v1.MetaGraphDef  # the graph
    fetches: tuple[str, ...]  # tensors, and ops that are run


def made(build: Callable[[], list[tf.Tensor | tf.Operation]]) -> Tf1Program:
    """The graph that ``build`` makes; it returns what is fetched."""
    with control_flow(functional=False), tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        fetches = build()
        meta_graph = v1.MetaGraphDef(graph_def=graph.as_graph_def())
    names = tuple(one.name for one in fetches)
    return Tf1Program(meta_graph, names)


def _input(*shape: int | None) -> tf.Tensor:
    return v1.placeholder(tf.float32, shape, name="x")


def counter() -> list[tf.Tensor]:
    """A counter alone: every tensor is a scalar."""
    return [v1.while_loop(lambda i: i < 10, lambda i: i + 1, [tf.constant(0)], name="loop")]


def powers() -> list[tf.Tensor]:
    """Products with a matrix from outside, so many times."""
    x, w = _input(8, 16), tf.constant(0.1, shape=[16, 16])
    _, y = v1.while_loop(
        lambda i, _: i < 5, lambda i, y: (i + 1, tf.tanh(y @ w)), (0, x), maximum_iterations=5, name="powers"
    )
    return [tf.reduce_sum(y, name="sum")]


def nested() -> list[tf.Tensor]:
    """A loop in a loop."""

    def inner(y: tf.Tensor) -> tf.Tensor:
        return v1.while_loop(lambda j, _: j < 3, lambda j, y: (j + 1, tf.sin(y)), [0, y], name="inner")[1]

    _, y = v1.while_loop(
        lambda i, _: i < 4, lambda i, y: (i + 1, inner(y) + 1.0), [0, _input(4, 4)], name="outer"
    )
    return [y]


def arrays() -> list[tf.Tensor]:
    """Elements of a ``TensorArray`` (of version 3) read and written in a loop."""
    x = _input(6, 4)
    read = tf.TensorArray(tf.float32, 6).unstack(x)
    written = tf.TensorArray(tf.float32, 6)
    _, _, written = v1.while_loop(
        lambda i, *_: i < 6,
        lambda i, s, out: (i + 1, s + read.read(i), out.write(i, s)),
        [0, tf.zeros([4]), written],
        name="scan",
    )
    return [written.stack(name="stacked")]


def growing() -> list[tf.Tensor]:
    """A variable of the loop that is longer after each iteration."""
    start = tf.zeros([1, 4])
    _, y = v1.while_loop(
        lambda i, _: i < 7,
        lambda i, y: (i + 1, tf.concat([y, y[:1] + 1.0], 0)),
        [0, start],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])],
        name="growing",
    )
    return [tf.reduce_sum(tf.exp(y), 0)]


def any_batch() -> list[tf.Tensor]:
    """Rows of any number go round, and a loop as long as there are columns."""
    x = _input(None, 12)
    steps = tf.shape(x)[1]
    _, y = v1.while_loop(lambda i, _: i < steps, lambda i, y: (i + 1, y * 2.0 + x), [0, x], name="any")
    return [tf.reduce_mean(y, 0)]


def branches() -> list[tf.Tensor]:
    """A branch, with another in it."""
    x = _input(8, 8)
    small = tf.reduce_sum(x) < 1.0

    def deeper() -> tf.Tensor:
        return v1.cond(tf.reduce_max(x) > 0.5, lambda: tf.exp(x), lambda: x @ x)

    return [v1.cond(small, lambda: x + 1.0, deeper, name="cond") * 2.0]


def branch_in_loop() -> list[tf.Tensor]:
    """A branch in the body of a loop."""

    def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, v1.cond(tf.equal(i % 2, 0), lambda: tf.sin(y), lambda: y * 0.5)

    return [v1.while_loop(lambda i, _: i < 6, body, [0, _input(4, 8)], name="loop")[1]]


def loop_in_branch() -> list[tf.Tensor]:
    """A loop that runs where a condition holds."""
    x = _input(4, 8)
    looped = lambda: v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.cos(y)), [0, x])[1]  # noqa: E731
    return [v1.cond(tf.reduce_sum(x) < 1.0, looped, lambda: x)]


def two_loops() -> list[tf.Tensor]:
    """Two loops beside each other and one after both."""
    x = _input(16, 16)
    times = lambda y, f, name: v1.while_loop(  # noqa: E731
        lambda i, _: i < 4, lambda i, y: (i + 1, f(y)), [0, y], name=name
    )[1]
    a, b = times(x, lambda y: tf.tanh(y @ x), "a"), times(x + 1.0, lambda y: tf.sin(y) @ x, "b")
    return [times(a + b, tf.nn.relu, "after")]


def recurrent_training(use_resource: bool = False) -> list[tf.Tensor | tf.Operation]:
    """A step of a recurrent network: the loop's gradient is a loop that pops what the first has pushed."""
    x = _input(5, 3, 8)  # time, batch, features
    w = v1.get_variable("w", [8 + 4, 4], use_resource=use_resource)
    inputs = tf.TensorArray(tf.float32, 5).unstack(x)

    def step(i: tf.Tensor, h: tf.Tensor, out: tf.TensorArray):
        h = tf.tanh(tf.concat([inputs.read(i), h], 1) @ w)
        return i + 1, h, out.write(i, h)

    _, _, out = v1.while_loop(
        lambda i, *_: i < 5, step, [0, tf.zeros([3, 4]), tf.TensorArray(tf.float32, 5)], name="rnn"
    )
    loss = tf.reduce_mean(out.stack() ** 2, name="loss")
    return [loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss)]


def nested_training() -> list[tf.Tensor | tf.Operation]:
    """The gradient of a loop in a loop."""
    w = v1.get_variable("w", [8, 8], use_resource=False)

    def inner(y: tf.Tensor) -> tf.Tensor:
        return v1.while_loop(lambda j, _: j < 2, lambda j, y: (j + 1, tf.tanh(y @ w)), [0, y])[1]

    y = v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, inner(y)), [0, _input(4, 8)])[1]
    loss = tf.reduce_sum(y * y, name="loss")
    return [loss, v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)]


def guarded_update() -> list[tf.Tensor]:
    """A branch whose predicate decides which of two updates of a variable is made."""
    w = v1.get_variable("w", [4, 4], use_resource=False)
    return [
        v1.cond(
            tf.reduce_sum(_input(2)) < 1.0, lambda: v1.assign_add(w, tf.ones([4, 4])), lambda: w.read_value()
        )
    ]


PROGRAMS: dict[str, Callable[[], list]] = {
    build.__name__: build
    for build in (
        counter, powers, nested, arrays, growing, any_batch, branches, branch_in_loop, loop_in_branch,
        two_loops, recurrent_training, nested_training, guarded_update,
    )
}  # fmt: skip


def program(name: str) -> Tf1Program:
    """A program of the table, by its name."""
    return made(PROGRAMS[name])


NUM_DEVICES, STEPS = 3, 3
Values = list[list[np.ndarray]]


def run(
    graph_def: v1.GraphDef, fetches: Sequence[str], feeds: Mapping[str, np.ndarray], starts: Mapping[str, np.ndarray]
) -> Values:  # fmt: skip
    """What some steps compute, from given values of the variables."""
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        assigns, values = [], {}
        for name, value in starts.items():
            variable = graph.get_tensor_by_name(f"{name}:0")
            with graph.device(variable.device):
                given = v1.placeholder(value.dtype, value.shape)
                assigns.append(v1.assign(variable, given).op)
            values[given] = value
        config = v1.ConfigProto(
            device_count={"CPU": NUM_DEVICES}, allow_soft_placement=False, intra_op_parallelism_threads=1
        )
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
        with v1.Session(config=config) as session:
            session.run(assigns, values)
            steps = [session.run(list(fetches), feeds) for _ in range(STEPS)]
    return [[np.asarray(value) for value in step if value is not None] for step in steps]


def same(some: Values, others: Values) -> bool:
    pairs = zip(some, others, strict=True)
    return all(np.array_equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))
