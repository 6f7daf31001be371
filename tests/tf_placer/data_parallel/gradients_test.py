"""Gradients are found where sums over the batch end, whatever comes before or after."""

import pytest
import tensorflow as tf

from tests.tf_placer.data_parallel.steps import BATCH, WIDTH, dense_step, forward, lookup_step
from tf_placer.data_parallel.gradients import find_gradients
from tf_placer.errors import InputError
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
