"""Each op type's rule against the op itself: the split op gives what the op gives, on random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.transform.split.op_cases import (
    HANDS_OUT,
    KEEPS_STATISTICS,
    KEPT_FOR_GRADIENTS,
    NEEDS_A_VARIABLE,
    NEEDS_BLOCKS,
    NEEDS_STATISTICS,
    arguments_of,
    op_types,
)
from tf_placer.graph.item import Item
from tf_placer.transform.split import split_program
from tf_placer.transform.split.equality import differences, run_lifted

SEEDS = range(3)


def has_batch(value: Any, batch: int) -> bool:
    return isinstance(value, np.ndarray) and batch in value.shape[:2]


def item_of(op_type: str, batch: int, arguments: dict[str, Any]) -> Item:
    """A program that calls the op on example inputs, and on constants for its other arguments."""
    fed: list[np.ndarray] = []
    lists: dict[str, list[int]] = {}
    single: dict[str, int] = {}
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            if has_batch(one, batch):
                if isinstance(value, list):
                    lists.setdefault(name, []).append(len(fed))
                else:
                    single[name] = len(fed)
                fed.append(one)
    table = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]))

    @tf.function(autograph=False)
    def step(*given):
        call = dict(arguments)
        call |= {name: given[position] for name, position in single.items()}
        for name, positions in lists.items():
            left = iter(positions)
            call[name] = [given[next(left)] if has_batch(one, batch) else one for one in arguments[name]]
        if op_type == NEEDS_A_VARIABLE:
            call["resource"] = table.handle
        if op_type == NEEDS_BLOCKS:  # blocks are known as such by the op that made them
            call["input"] = tf.raw_ops.SpaceToBatchND(input=given[0], block_shape=[2], paddings=[[0, 0]])
        if op_type in NEEDS_STATISTICS:
            kept = [name for name in call if name.startswith("reserve_space")]
            zeros = tf.zeros_like(call["scale"])
            forward = tf.raw_ops.FusedBatchNormV3(
                x=call["x"], scale=call["scale"], offset=zeros, mean=zeros, variance=zeros
            )
            call |= dict(zip(kept, forward[HANDS_OUT:], strict=False))
        if op_type == KEPT_FOR_GRADIENTS:
            return tf.custom_gradient(lambda *these: (list(these), lambda *upstream: upstream))(
                *call["input"]
            )
        made = getattr(tf.raw_ops, op_type)(**call)
        if op_type in KEEPS_STATISTICS:
            made = made[:HANDS_OUT]
        return [one for one in tf.nest.flatten(made) if isinstance(one, tf.Tensor)]

    if op_type == NEEDS_BLOCKS:
        fed = [np.random.default_rng(0).normal(size=(batch, 4, 2)).astype(np.float32)]
    return Item.from_function(step, *map(tf.constant, fed))


@pytest.mark.parametrize("op_type", op_types())
def test_a_split_op_gives_what_the_op_gives(op_type: str) -> None:
    for seed in SEEDS:
        batch, arguments = arguments_of(op_type, seed)
        item = item_of(op_type, batch, arguments)
        parts = 2 + seed % 2
        found = split_program(item, parts)
        types = dict(zip(item.index.names, item.index.op_types, strict=True))
        if all(feed.shape[0] == batch for feed in item.feeds):
            assert found.batch == batch
        assert op_type in {types[name] for name in found.split_ops}, [str(one) for one in found.stayed_whole]
        assert differences(run_lifted(item), run_lifted(found.item)) == [], (
            f"seed {seed}, {parts} parts of {batch}"
        )
