"""After a plan is made no value is kept for it, and who asks for one later gets it all the same."""

import gc
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.logical_devices import NUM_DEVICES
from tf_placer.graph.item import with_values_of

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact=True)]

MEGABYTE = 1 << 20
SETTINGS: dict = {"method": "random", "budget_s": 0.2, "keep_unplaced": False}


def auto_place(fn, **settings):
    cluster = tf_placer.Cluster.logical(NUM_DEVICES)
    return tf_placer.auto_place(fn, cluster=cluster, cache_dir=tempfile.mkdtemp(), **SETTINGS, **settings)


def kept_bytes(*own: object) -> int:
    """Bytes of large arrays and tensors that some object holds, beside those that are named here."""
    gc.collect()
    found: dict[int, int] = {}
    for holder in gc.get_objects():
        for held in gc.get_referents(holder):
            if isinstance(held, np.ndarray) and 0 not in held.strides:
                found[id(held)] = held.nbytes
            elif isinstance(held, tf.__internal__.EagerTensor) and held.dtype not in (
                tf.resource,
                tf.variant,
            ):
                found[id(held)] = held.shape.num_elements() * held.dtype.size
            elif isinstance(held, tf.compat.v1.GraphDef):
                found[id(held)] = held.ByteSize()
    for one in own:
        found.pop(id(one), None)
    return sum(size for size in found.values() if size > MEGABYTE)


def test_values_of_variables_and_inputs():
    weights = tf.Variable(tf.ones([1000, 2600]))  # 10 MB

    @auto_place
    @tf.function
    def step(x):
        weights.assign_sub(0.1 * tf.ones_like(weights) * tf.reduce_mean(x))
        return tf.reduce_sum(x @ tf.transpose(weights))

    before = kept_bytes()
    for length in (500, 600, 700):
        step(tf.ones([length, 2600]))
    assert len(step.placements) == 3
    assert kept_bytes() == before


def test_captured_constants():
    table = tf.ones([1000, 2600])
    other = tf.constant(np.arange(2_600_000, dtype=np.float32).reshape(1000, 2600))

    @auto_place
    @tf.function
    def step(x):
        return tf.reduce_sum(x @ tf.transpose(table)) + tf.reduce_sum(other * table)

    x = tf.ones([1, 2600])
    placed, expected = step(x), step.unplaced(x)
    moved = [one for one in _captured(step) if one is not table and one is not other]
    # A copy lies where it is read, on another device than here; no graph has another one.
    is_there = all(one.device != table.device for one in moved)
    sizes = [function.function_def.ByteSize() for function in step._list_all_concrete_functions()]
    assert placed == expected
    assert is_there
    assert kept_bytes(table, other, *moved) == 0
    assert max(sizes) < MEGABYTE


def test_one_copy_of_a_constant_serves_all_signatures():
    table = tf.ones([1000, 2600])
    step = auto_place(tf.function(lambda x: tf.reduce_sum(x @ tf.transpose(table))), pins={".*": "CPU:1"})
    for length in (1, 2, 3):
        step(tf.ones([length, 2600]))
    moved = {id(one): one for one in _captured(step) if one is not table}
    copies, before = len(moved), kept_bytes(table)
    del step, moved
    assert copies == 1
    assert before == 1000 * 2600 * 4
    assert kept_bytes(table) == 0


def _captured(step) -> Iterator[tf.Tensor]:
    for concrete in step._list_all_concrete_functions():
        yield from concrete.captured_inputs


def test_everything_that_a_user_asks_for_later():
    weights = tf.Variable(tf.ones([300, 400]))
    table = tf.constant(np.arange(120_000, dtype=np.float32).reshape(300, 400) % 7.0)
    inside = np.arange(60_000, dtype=np.float32) % 5.0

    @auto_place
    @tf.function
    def step(x):
        scale = tf.reduce_sum(table) + tf.reduce_sum(tf.constant(inside))
        return tf.reduce_sum(tf.nn.relu((x @ weights) * scale))

    x = tf.ones([200, 300])
    step(x)
    weights.assign(2.0 * weights)
    (signature,) = step._signatures.values()
    item = with_values_of(signature.item, signature.traced)
    (variable,), (feed,) = item.variables, item.feeds
    constants = {
        value.tobytes()
        for node in item.graph_def.node
        if node.op == "Const"
        for value in [tf.make_ndarray(node.attr["value"].tensor)]
    }
    assert "Data parallel over" in step.report()  # simulated, of the program in parts
    assert (variable.value == 2.0).all()
    assert {table.numpy().tobytes(), inside.tobytes()} <= constants
    assert feed.value.shape == (200, 300)
    assert len(np.unique(feed.value)) > 1000  # drawn, and not what stands for it meanwhile
    assert item.fingerprint == signature.plan.placement.problem.fingerprint
    assert step(x) == step.unplaced(x)
