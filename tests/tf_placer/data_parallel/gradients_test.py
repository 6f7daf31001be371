"""Gradients are found where sums over the batch end, whatever comes before or after."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.data_parallel.steps import (
    BATCH,
    WIDTH,
    adam_lookup_step,
    dense_step,
    forward,
    lookup_step,
)
from tf_placer.base.arguments import InputError
from tf_placer.data_parallel.gradients import find_gradients, writers
from tf_placer.graph.item import Item
from tf_placer.workloads import registry


def types_of(item: Item, tensors: tuple[tuple[int, int], ...]) -> list[str]:
    return [item.index.op_types[op] for op, _ in tensors]


def test_two_uses_of_a_weight_are_one_gradient_and_the_penalty_is_none() -> None:
    item = dense_step()
    found = find_gradients(item, dense_step(BATCH // 2))
    assert types_of(item, found.dense) == ["AddN"]  # of two products; reduced before the penalty is added
    assert found.sparse == ()
    ((op, output),) = found.dense
    assert item.outputs[op][output].shape == (WIDTH, WIDTH)
    ((consumer, _),) = found.consumers[0]
    assert item.index.op_types[consumer] == "AddV2"


def test_slices_of_a_table_are_gathered() -> None:
    item = lookup_step()
    found = find_gradients(item, lookup_step(BATCH // 2))
    assert found.dense == ()
    assert sorted(item.outputs[op][output].shape for op, output in found.sparse) == [(BATCH,), (BATCH, WIDTH)]


def test_rows_that_are_also_squared_are_gathered_once() -> None:
    item = adam_lookup_step()
    found = find_gradients(item, adam_lookup_step(BATCH // 2))
    assert found.dense == ()
    assert [item.outputs[op][output].shape for op, output in found.sparse] == [(BATCH, WIDTH), (BATCH,)]
    readers = [sorted(item.index.op_types[op] for op, _ in readers) for readers in found.sparse_consumers]
    assert readers == [["Square", "UnsortedSegmentSum"], ["UnsortedSegmentSum"] * 2]


def test_the_gradients_of_an_embedding_under_adam_are_those_of_its_weights() -> None:
    item = registry.build("transformer_small")
    batch = registry.batch_of("transformer_small")
    assert batch is not None
    found = find_gradients(item, registry.build("transformer_small", batch=batch // 2))
    dense = sorted(item.outputs[op][output].shape for op, output in found.dense)
    weights = sorted(one.shape for one in item.variables if one.shape and one.dtype.is_floating)
    table = (1000, 128)
    assert weights == sorted(3 * [*dense, table])  # each with its two moments
    assert sorted(types_of(item, found.sparse)) == ["Reshape", "Reshape"]  # rows and where they belong


def test_a_loop_that_reads_a_variable_writes_none() -> None:
    def item(batch: int) -> Item:
        weight, count = tf.Variable(tf.eye(WIDTH), name="weight"), tf.Variable(0.0, name="count")

        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            for _ in tf.range(3):
                x = tf.tanh(x @ weight)
            for _ in tf.range(3):
                count.assign_add(1.0)
            return x

        return Item.from_function(step, tf.ones([batch, WIDTH]))

    whole = item(BATCH)
    assert find_gradients(whole, item(BATCH // 2)).sparse == ()
    types = whole.index.op_types
    written = [types[op] for op in np.flatnonzero(writers(whole.graph_def))]
    assert len(written) == 1 and types.count(written[0]) == 2


def test_names_may_differ() -> None:
    """A second trace numbers anew what a program numbers."""
    number = itertools.count()

    def item(batch: int) -> Item:
        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            return tf.nn.relu(x, name=f"call_{next(number)}")

        return Item.from_function(step, tf.ones([batch, WIDTH]))

    whole, part = item(BATCH), item(BATCH // 2)
    assert whole.index.names != part.index.names
    assert find_gradients(whole, part).dense == ()


def test_inference_has_none() -> None:
    found = find_gradients(forward(), forward(BATCH // 2))
    assert found.dense == found.sparse == ()


@pytest.mark.parametrize("name", ["two_towers", "dense_small", "branches_small"])
def test_every_trained_weight_has_one(name: str) -> None:
    batch = registry.batch_of(name)
    assert batch is not None
    item = registry.build(name)
    found = find_gradients(item, registry.build(name, batch=batch // 2))
    gradients = sorted(item.outputs[op][output].shape for op, output in found.dense)
    weights = sorted(variable.shape for variable in item.variables if variable.shape)
    has_slots = len(weights) == 2 * len(gradients)  # one beside each weight, of its shape
    assert weights == sorted(gradients * 2 if has_slots else gradients)


def test_a_step_of_other_ops_is_refused() -> None:
    def item(batch: int) -> Item:
        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            return tf.nn.relu(x) if x.shape[0] > 4 else x + 1.0

        return Item.from_function(step, tf.ones([batch, WIDTH]))

    with pytest.raises(InputError, match="not the same ops on smaller tensors"):
        find_gradients(item(8), item(4))
