"""Ops that have to share a device by ``loc:@``, where some of them have copies and others not."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from colocation.units import form_units
from tests.colocation.random_graphs import control_flow
from tests.oracles.split_equality import differences, run_lifted
from tests.tf_placer.transform.split.steps import complaints
from tf_placer.graph.item import Item
from tf_placer.transform.split import split_program

FEATURES = 3
X = tf.constant(np.random.default_rng(0).normal(size=[5, FEATURES]).astype(np.float32))


def like_copies(x, w):
    h = x @ w
    with tf.compat.v1.colocate_with(h):
        k = tf.zeros_like(h) + 1.0
    return tf.sin(h) * k


def whole_with_copies(x, w):
    """What has no examples is tied to what has."""
    h = x @ w
    with tf.compat.v1.colocate_with(h):
        scale = tf.sqrt(tf.abs(w) + 1.0)
    with tf.compat.v1.colocate_with(scale):
        more = scale * 2.0
    return h @ more


def copies_with_whole(x, w):
    scale = tf.sqrt(tf.abs(w) + 1.0)
    with tf.compat.v1.colocate_with(scale):
        h = tf.tanh(x @ scale)
        k = tf.exp(x)
    return h * k


def sort_with_copies(x, w):
    """What works on all examples is tied to what has copies."""
    h = x @ w
    with tf.compat.v1.colocate_with(h):
        order = tf.argsort(tf.reduce_sum(x, 1))
    return tf.gather(h, order)


def copies_with_sort(x, w):
    order = tf.sort(x, 0)
    with tf.compat.v1.colocate_with(order):
        h = x @ w
    return h * order


def mean_with_copies(x, w):
    """A mean over the batch is several nodes in each part."""
    h = x @ w
    mean = tf.reduce_mean(h, 0)
    with tf.compat.v1.colocate_with(mean):
        return tf.reduce_sum(tf.square(h - mean), 0) + mean


def mean_over_copies(x, w):
    h = x @ w
    with tf.compat.v1.colocate_with(h):
        return h - tf.reduce_mean(h, 0)


def joined_copies(x, w):
    """A result is the joined form of the op that others are tied to, under its name."""
    h = tf.nn.relu(x @ w)
    with tf.compat.v1.colocate_with(h):
        biggest = tf.sort(tf.reduce_max(w, 1))
    return h, biggest, tf.cumsum(h, 0)


def looped(x, w):
    """Trips that are counted by ops that are tied to others of the loop's body."""

    def body(i, h):
        h = tf.tanh(h @ w)
        with tf.compat.v1.colocate_with(h):
            k = tf.ones_like(h) * 2.0
            following = i + 1
        return following, h * k

    return tf.while_loop(lambda i, h: i < 3, body, [0, x])[1]


def chained(x, w):
    h = x @ w
    with tf.compat.v1.colocate_with(h):
        a = tf.square(w)
    with tf.compat.v1.colocate_with(a):
        b = tf.exp(-x)
    with tf.compat.v1.colocate_with(b):
        c = tf.unique(tf.cast(x[:, 0] * 9.0, tf.int32))[1]
    return h @ a + b * tf.cast(c, tf.float32)[:, None]


def looked_up(x, w):
    return tf.nn.embedding_lookup(w, tf.cast(tf.abs(x[:, :2]) * 10.0, tf.int32) % FEATURES, max_norm=0.7)


PROGRAMS = (
    like_copies, whole_with_copies, copies_with_whole, sort_with_copies, copies_with_sort, mean_with_copies,
    mean_over_copies, joined_copies, looped, chained, looked_up,
)  # fmt: skip


def item_of(body: Callable) -> Item:
    w = tf.Variable(np.random.default_rng(1).normal(size=[FEATURES, FEATURES]).astype(np.float32))

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = tf.nest.flatten(body(x, w))
            loss = tf.add_n([tf.reduce_sum(tf.square(one)) for one in made])
        return [*made, *(tf.convert_to_tensor(one) for one in tape.gradient(loss, [x, w]) if one is not None)]

    return Item.from_function(step, X)


@pytest.mark.parametrize("body", PROGRAMS)
def test_ops_that_share_a_device_are_split(body):
    item = item_of(body)
    assert b"loc:@" in item.graph_def.SerializeToString()
    for parts in (2, 5):
        found = split_program(item, parts)
        assert complaints(item, parts, found) == []
        for node in found.item.graph_def.node:
            for target in node.attr["_class"].list.s if "_class" in node.attr else ():
                assert target.decode().removeprefix("loc:@") in found.item.index.id_of_name


def test_each_part_shares_a_device_and_so_does_what_is_whole():
    found = split_program(item_of(chained), 2).item
    unit_of = dict(zip(found.index.names, form_units(found.graph_def).unit_of_op.tolist(), strict=True))

    def unit(name: str) -> int:
        return next(unit_of[one] for one in unit_of if one == name or one.endswith(f"/{name}"))

    for part in ("part_0", "part_1"):
        assert unit(f"{part}/matmul") == unit(f"{part}/Exp")
    assert unit("part_0/matmul") != unit("part_1/matmul")
    assert unit("Square") == unit("Unique")
    assert unit("Square") not in (unit("part_0/matmul"), unit("part_1/matmul"))


def gradient_of_a_loop(graph: tf.Graph) -> list[str]:
    """TensorFlow 1: what a loop keeps for its gradient is tied to the op that made it."""
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, FEATURES], "x")
        w = tf.constant(np.random.default_rng(2).normal(size=[FEATURES, FEATURES]).astype(np.float32))
        h = tf.tanh(x @ w)
        h = tf.compat.v1.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h @ w)), [0, h])[1]
        (gradient,) = tf.compat.v1.gradients(tf.reduce_sum(tf.square(h)), x, colocate_gradients_with_ops=True)
        return [h.name, gradient.name]


def test_a_gradient_of_an_old_loop_is_split_around_it():
    graph = tf.Graph()
    with control_flow(functional=False):
        fetches = gradient_of_a_loop(graph)
    with graph.as_default():
        meta = tf.compat.v1.train.export_meta_graph()
    item = Item.from_meta_graph(meta, fetches=fetches, input_shapes={"x": [4, FEATURES]})
    assert any("_class" in node.attr for node in item.graph_def.node)
    for parts in (2, 4):
        found = split_program(item, parts)
        assert differences(run_lifted(item), run_lifted(found.item)) == []
        assert "matmul" in found.split_ops and not any("while/" in name for name in found.split_ops)
