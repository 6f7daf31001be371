"""Ops that are better kept whole: a recurrent layer of thin products, and nothing where copies take half the time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem
from tf_placer.transform.split.split_batch import SplitProgram, split_program
from tf_placer.transform.split.worth import faster_whole

GPUS = (0, 1)
WIDE = 4096


@pytest.fixture(scope="module")
def item() -> Item:
    thin, wide = tf.Variable(tf.zeros([64, 64])), tf.Variable(tf.zeros([64, WIDE]))

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        for _ in range(8):
            x = tf.tanh(tf.matmul(x, thin, name="thin"))
        return tf.reduce_sum(tf.nn.softmax(tf.matmul(x, wide, name="wide")))

    return Item.from_function(step, tf.zeros([64, 64]))


@pytest.fixture(scope="module")
def program(item: Item) -> SplitProgram:
    return split_program(item, 2)


def costed(program: Item, takes: dict[str, int]) -> Problem:
    """The program on two GPUs, where an op takes what the longest key in its name says, else 10 us."""
    problem = tf_placer.build_problem(program, tf_placer.Cluster.preset("p100x2"))
    compute_ns = np.full_like(problem.compute_ns, 10_000)
    for op, name in enumerate(problem.op_names):
        keys = [key for key in takes if key in name]
        compute_ns[op] = takes[max(keys, key=len)] if keys else 10_000
    return dataclasses.replace(problem, compute_ns=compute_ns)


def kept(item: Item, program: SplitProgram, thin_part: int, whole_share: float = 0.7) -> frozenset[str]:
    whole = costed(item, {"thin": 1_000_000, "wide": 4_000_000})
    problem = costed(program.item, {"thin": thin_part, "wide": 2_000_000})
    whole_s = whole_share * whole.compute_ns[:, 0].sum() / 1e9
    return faster_whole(program, problem, whole, GPUS, whole_s)


def test_what_takes_as_long_for_a_part_stays_whole(item: Item, program: SplitProgram) -> None:
    found = kept(item, program, 1_000_000)
    thin = {name for name in program.split_ops if "thin" in name}
    assert len(thin) == 8 and thin <= found
    assert not any("wide" in name for name in found)
    mixed = split_program(item, 2, kept_whole=found)
    assert {name for name in mixed.split_ops if "wide" in name} and not thin & set(mixed.split_ops)


def test_nothing_stays_whole_where_a_part_takes_half(item: Item, program: SplitProgram) -> None:
    assert kept(item, program, 500_000) == frozenset()


def test_nor_where_placing_the_whole_gains_nothing(item: Item, program: SplitProgram) -> None:
    assert kept(item, program, 1_000_000, whole_share=1.0) == frozenset()


def test_all_whole_is_no_form_in_parts(item: Item, program: SplitProgram) -> None:
    assert kept(item, program, 1_000_000, whole_share=0.01) == frozenset()
