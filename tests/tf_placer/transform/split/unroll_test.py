"""Loops written out: which ones, and that programs compute the same; what they keep in lists becomes edges."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.oracles.split_equality import largest_difference, run_lifted
from tests.tf_placer.transform.split.steps import complaints, wrong_sizes
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.layers import layers_of
from tf_placer.transform.split import split_program
from tf_placer.transform.split.unroll import Unrolled, unrolled, without_lists

BATCH, TIME, FEATURES = (
    6,
    4,
    6,
)  # as many features as examples: nothing but propagation tells one from the other


def drawn(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(sum(shape)).standard_normal(shape), tf.float32)


def item_of(step: Callable[..., Any], *args: Any) -> Item:
    return Item.from_function(tf.function(step), *args)


def written_out(item: Item) -> Unrolled:
    """Its loops written out, if it computes the same then, bit for bit."""
    found = unrolled(item)
    assert largest_difference(run_lifted(item), run_lifted(found.item)) == 0
    assert wrong_sizes(found.item) == []
    assert found.origin_of.keys() == set(found.item.index.names)
    assert set(found.origin_of.values()) <= set(item.index.names)
    return found


def types(item: Item) -> list[str]:
    return sorted(set(item.index.op_types))


def ops_on_lists(item: Item) -> list[str]:
    return [name for name in types(item) if "TensorList" in name]


def recurrent(weights: tf.Variable, rows: tf.Tensor, steps: int | tf.Tensor = TIME) -> tf.Tensor:
    """States of a recurrent layer after each time step, [batch, time, features]."""
    taken = tf.TensorArray(tf.float32, TIME).unstack(tf.transpose(rows, [1, 0, 2]))

    def body(t: tf.Tensor, state: tf.Tensor, kept: tf.TensorArray) -> tuple:
        state = tf.tanh(taken.read(t) + state @ weights)
        return t + 1, state, kept.write(t, state)

    loop = (tf.constant(0), tf.zeros([BATCH, weights.shape[0]]), tf.TensorArray(tf.float32, TIME))
    _, _, kept = tf.while_loop(lambda t, *_: t < steps, body, loop, maximum_iterations=TIME)
    return tf.transpose(kept.stack(), [1, 0, 2])


def training_step(layers: int = 1, features: int = FEATURES) -> Callable[[tf.Tensor], tf.Tensor]:
    weights = [tf.Variable(drawn(features, features)) for _ in range(layers)]

    def step(rows: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            for one in weights:
                rows = recurrent(one, rows)
            loss = tf.reduce_mean(rows**2)
        for one, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            one.assign_sub(0.1 * gradient)
        return loss

    return step


@pytest.mark.medium
@pytest.mark.parametrize("layers", [1, 2])
def test_a_training_step_without_loops_and_lists(layers):
    found = written_out(item_of(training_step(layers), drawn(BATCH, TIME, FEATURES)))
    assert len(found.loops) == 2 * layers and not found.why_not
    assert not {"While", "StatelessWhile"} & set(types(found.item)) and ops_on_lists(found.item) == []


def test_a_variable_is_read_once_for_all_trips():
    item = item_of(training_step(), drawn(BATCH, TIME, FEATURES))
    assert written_out(item).item.index.op_types.count("ReadVariableOp") == 1


def test_a_variable_is_read_once_in_a_loop_in_a_loop():
    weights = tf.Variable(drawn(FEATURES, FEATURES))

    def step(rows: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            for _ in tf.range(3):
                rows = tf.tanh(rows @ weights)
        return rows

    found = written_out(item_of(step, drawn(BATCH, FEATURES)))
    assert len(found.loops) == 1 and found.item.index.op_types.count("ReadVariableOp") == 1


@pytest.mark.medium
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_a_training_step_in_parts(parts):
    item = item_of(training_step(2), drawn(BATCH, TIME, FEATURES))
    found = split_program(item, parts)
    assert complaints(item, parts, found) == []
    assert found.stayed_whole == ()
    loops = {
        name for name, kind in zip(item.index.names, item.index.op_types, strict=True) if "While" in kind
    }
    assert loops <= set(found.split_ops) and set(found.origin_of.values()) <= set(item.index.names)


def test_trips_are_no_layers():
    item = item_of(training_step(2), drawn(BATCH, TIME, FEATURES))
    problem = analytic_problem(split_program(item, 2).item, Cluster.preset("p100x2"))
    assert not any("trip_" in name for name in layers_of(problem).names)


def test_a_loop_that_is_kept_whole_stays_a_loop_and_what_reads_it_is_split():
    item = item_of(training_step(2, features=5), drawn(BATCH, TIME, 5))
    loop = next(
        name for name, kind in zip(item.index.names, item.index.op_types, strict=True) if kind == "While"
    )
    found = split_program(item, 2, kept_whole=[loop])
    assert complaints(item, 2, found) == []
    assert [one.name for one in found.stayed_whole if one.op_type == "While"] == [loop]


def test_a_loop_whose_trips_depend_on_data():
    weights = tf.Variable(drawn(FEATURES, FEATURES))
    item = item_of(
        lambda rows, steps: tf.nn.relu(recurrent(weights, rows * 2, steps)),
        drawn(BATCH, TIME, FEATURES),
        tf.constant(2),
    )
    assert list(unrolled(item).why_not.values()) == ["its trips depend on data"]
    found = split_program(item, 2)
    assert complaints(item, 2, found) == []
    (reason,) = {one.why for one in found.stayed_whole if one.op_type.endswith("While")}
    assert reason == "its trips depend on data"


def with_noise(rows: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        rows = rows * 2 + tf.random.normal([BATCH, FEATURES], seed=1)
    return rows


def with_print(rows: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        tf.print("a step")
        rows = rows * 2
    return rows


def until_large(rows: tf.Tensor) -> tf.Tensor:
    while tf.reduce_sum(rows) < 100:
        rows = rows * 2 + 1
    return rows


def for_ever(rows: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(100_000):
        rows = rows * 0.5 + 1
    return rows


class Counting:
    def __init__(self) -> None:
        self.count = tf.Variable(0.0)

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            rows = rows * 2 + self.count
            self.count.assign_add(1.0)
        return rows


@pytest.mark.parametrize(
    "step, reason",
    [
        (with_noise, "its RandomStandardNormal has a state or an effect"),
        (with_print, "its PrintV2 has a state or an effect"),
        (Counting(), "its AssignAddVariableOp has a state or an effect"),
        (until_large, "its trips depend on data"),
        (for_ever, "its trips are more ops than the 20,000 that loops may become"),
    ],
    ids=["random", "prints", "writes", "data", "too many"],
)
def test_loops_that_stay(step, reason):
    item = item_of(step, drawn(BATCH, FEATURES))
    found = unrolled(item)
    assert found.item is item and not found.loops
    assert list(found.why_not.values()) == [reason]


def loop_in_loop(rows: tf.Tensor) -> tf.Tensor:
    for i in tf.range(3):
        for _ in tf.range(i):
            rows = tf.tanh(rows) + tf.cast(i, tf.float32)
    return rows


def swapped(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    one, other = rows, rows * 2
    for _ in tf.range(3):
        one, other = other, one + other
    return one, other


def no_trip(rows: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(0):
        rows = rows * 2
    return rows + 1


def branch_in_loop(rows: tf.Tensor) -> tf.Tensor:
    for i in tf.range(4):
        rows = tf.cond(i % 2 == 0, lambda: rows * 2, lambda: rows + 1)  # noqa: B023 - traced at once
    return rows


def counts_down(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    t = tf.constant(7)
    while t > 0:
        rows, t = rows * tf.cast(t, tf.float32), t - 2
    return rows, t


def some_elements(rows: tf.Tensor) -> tf.Tensor:
    """Elements that nobody puts in are zeros, and are read."""
    kept = tf.TensorArray(tf.float32, 5, element_shape=[BATCH, FEATURES], clear_after_read=False)
    for i in tf.range(2):
        kept = kept.write(2 * i, rows + tf.cast(i, tf.float32))
    return kept.stack() + kept.read(1) + kept.read(2)


@pytest.mark.parametrize(
    "step",
    [loop_in_loop, swapped, no_trip, branch_in_loop, counts_down, some_elements],
    ids=lambda one: one.__name__,
)
def test_loops_of_other_kinds(step):
    item = item_of(step, drawn(BATCH, FEATURES))
    found = written_out(item)
    assert not {"While", "StatelessWhile"} & set(types(found.item)) and ops_on_lists(found.item) == []
    assert complaints(item, 2) == []


def test_a_list_that_is_a_result_of_a_loop_that_stays():
    """Its ops stay, as does what is in it; other lists go."""

    def step(rows: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        kept, other = tf.TensorArray(tf.float32, 3), tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            kept, other = kept.write(i, rows * 2), other.write(i, rows + 1)
        total = tf.zeros([BATCH, FEATURES])
        for i in tf.range(steps):
            total += kept.read(i)
        return total + tf.reduce_sum(other.stack(), axis=0)

    found = written_out(item_of(step, drawn(BATCH, FEATURES), tf.constant(2)))
    assert len(found.loops) == 1 and list(found.why_not.values()) == ["its trips depend on data"]
    assert "TensorListStack" not in types(found.item) and "TensorListSetItem" in types(found.item)


def test_a_long_list_and_what_waits_for_it():
    length = 1200  # more than Python's calls may be deep

    def step(rows: tf.Tensor) -> tf.Tensor:
        kept = tf.raw_ops.EmptyTensorList(
            element_shape=tf.constant(-1), max_num_elements=tf.constant(-1), element_dtype=tf.float32
        )
        for _ in range(length):
            kept = tf.raw_ops.TensorListPushBack(input_handle=kept, tensor=rows)
        with tf.control_dependencies([kept]):
            return rows + tf.raw_ops.TensorListStack(
                input_handle=kept, element_shape=tf.constant(-1), element_dtype=tf.float32
            )

    item = item_of(step, drawn(BATCH))
    found, _ = without_lists(item, {name: name for name in item.index.names})
    assert ops_on_lists(found) == [] and len(found.graph_def.node) < 20
    assert largest_difference(run_lifted(item), run_lifted(found)) == 0


def test_a_loop_over_the_examples_stays_a_loop():
    """Written out it could not be split either."""
    item = item_of(lambda rows: tf.map_fn(tf.nn.softmax, tf.nn.relu(rows)), drawn(BATCH, FEATURES))
    found = split_program(item, 2)
    assert complaints(item, 2, found) == []
    assert any(kind.endswith("While") for kind in found.item.index.op_types)


@pytest.mark.medium
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("batch", [6, 7])
def test_keras_recurrent_layers(layer, batch):
    keras.utils.set_random_seed(1)
    kind = getattr(keras.layers, layer)
    model = keras.Sequential(
        [
            keras.layers.Input((TIME, 5), batch_size=batch),
            kind(7, return_sequences=True),
            kind(7),
            keras.layers.Dense(3),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    def step(rows: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows, training=True) - labels) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    item = item_of(step, drawn(batch, TIME, 5), drawn(batch, 3))
    assert ops_on_lists(written_out(item).item) == []
    found = split_program(item, 3)
    assert complaints(item, 3, found) == [] and found.stayed_whole == ()
