"""Clusters are legal: of what XLA compiles, on one device, and nothing leads out of one and back."""

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import having, topological_order
from colocation.tensorflow_internals import registered_kernels
from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import item_of, subject_of
from tf_placer.base.arguments import InputError
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.problem.placement import NO_CLUSTER
from tf_placer.transform.fusion.clusters import (
    LEAST_KERNELS,
    RULES,
    _forward_edges,
    check_clusters,
    contracted,
    convex_clusters,
    starts_kernel,
)

DEVICES = ("/job:a/replica:0/task:0/device:CPU:0", "/job:a/replica:0/task:1/device:CPU:0")
SEEDS = range(12)


def on_one(item: Item) -> dict[str, str]:
    return dict.fromkeys(item.index.names, DEVICES[0])


def chain() -> Item:
    """A product between two chains of cheap ops, and a way around it."""

    @tf.function
    def f(x):
        y = tf.exp(x, name="first") + 1.0
        z = tf.linalg.matmul(y, y, name="product")
        return tf.tanh(z + y, name="last")

    return Item.from_function(f, tf.ones([4, 4]))


def named(item: Item, *names: str) -> np.ndarray:
    """One cluster of ops that are named."""
    return np.array([0 if name in names else NO_CLUSTER for name in item.index.names], np.int32)


def random_items():
    for seed in SEEDS:
        item = item_of(subject_of(program_of_seed(seed), gradients=False))
        if item.index.num_ops:
            yield seed, item


@pytest.mark.medium
def test_any_labels_on_any_devices_become_legal_clusters():
    fused = 0
    for seed, item in random_items():
        rng = np.random.default_rng(seed)
        devices = {name: DEVICES[rng.integers(2)] for name in item.index.names}
        for labels in (rng.integers(3, size=item.index.num_ops).tolist(), [0] * item.index.num_ops):
            clusters = convex_clusters(item, labels, devices, least=1)
            check_clusters(item, clusters, devices)
            of_op = dict(zip(item.index.names, clusters.tolist(), strict=True))
            for cluster in set(clusters.tolist()) - {NO_CLUSTER}:
                members = np.flatnonzero(clusters == cluster)
                assert len({labels[op] for op in members}) == 1, seed
                assert len({devices[item.index.names[op]] for op in members}) == 1, seed
            assert not {of_op[name] for name in item.control_outputs} - {NO_CLUSTER}
            fused += int((clusters != NO_CLUSTER).sum())
    assert fused > 50


@pytest.mark.medium
def test_all_clusters_together_have_no_cycle():
    for seed, item in random_items():
        labels = np.random.default_rng(seed).integers(2, size=item.index.num_ops).tolist()
        clusters = convex_clusters(item, labels, on_one(item), least=1)
        number, edges = contracted(_forward_edges(item.index), clusters)
        assert len(topological_order(item.index.num_ops, edges)) == item.index.num_ops, seed
        assert len(set(number.tolist())) < item.index.num_ops or (clusters == NO_CLUSTER).all()


@pytest.mark.medium
def test_every_rule_is_legal_and_keeps_to_its_least():
    for _, item in [(0, chain()), *random_items()]:
        for rule in RULES.values():
            clusters = rule.clusters(item, on_one(item))
            check_clusters(item, clusters, on_one(item))
            for cluster in set(clusters.tolist()) - {NO_CLUSTER}:
                assert starts_kernel(item)[clusters == cluster].sum() >= LEAST_KERNELS


def test_a_cycle_through_the_outside_is_refused():
    item = chain()
    with pytest.raises(InputError, match="cluster 0 makes a cycle"):
        check_clusters(item, named(item, "first", "last"), on_one(item))


def test_a_cluster_on_two_devices_is_refused():
    item = chain()
    devices = on_one(item) | {"last": DEVICES[1]}
    with pytest.raises(InputError, match=r"cluster 0 has 'product' on .*task:0.* and 'last' on .*task:1"):
        check_clusters(item, named(item, "product", "last"), devices)


def test_what_has_effects_or_no_known_shape_is_refused():
    counter = tf.Variable(1.0)

    @tf.function
    def f(x):
        counter.assign_add(1.0)
        drawn = tf.random.uniform([4])
        return tf.boolean_mask(x, x > 0.0) * 2.0, drawn + x, tf.strings.as_string(x)

    item = Item.from_function(f, tf.ones([4]))
    why = dict(zip(item.index.op_types, why_not_fusible(item), strict=True))
    for op_type in ("AssignAddVariableOp", "RandomUniform", "Where", "AsString"):
        assert why[op_type] == f"XLA is not given ops of type {op_type}"
    assert "depends on data" in why["GatherV2"]
    op = item.index.op_types.index("AssignAddVariableOp")
    with pytest.raises(InputError, match="cannot be in cluster 0: XLA is not given"):
        check_clusters(item, named(item, item.index.names[op]), on_one(item))


def test_xla_has_a_kernel_for_every_op_type_that_it_is_said_to_compile():
    @tf.function(jit_compile=True)
    def registers_the_kernels(x):
        return x + 1.0

    registers_the_kernels(tf.ones([1]))
    without = [
        op_type
        for op_type in having("xla")
        if all(kernel.device_type != "XLA_CPU_JIT" for kernel in registered_kernels(op_type))
    ]
    assert not without
    assert any(kernel.device_type == "XLA_CPU_JIT" for kernel in registered_kernels("MatMul"))


def of_type(item: Item, op_type: str) -> list[bool]:
    """Of each op of a type, in order: it may be fused."""
    return [
        not why
        for kind, why in zip(item.index.op_types, why_not_fusible(item), strict=True)
        if kind == op_type
    ]


TABLE = np.arange(20.0, dtype=np.float32).reshape([5, 4])
X, IDS = tf.ones([3, 4]), tf.constant([0, 1, 4])
PROVEN = {
    "a constant": lambda x, n: tf.gather(TABLE, [0, 4]),
    "a constant out of range": lambda x, n: tf.gather(TABLE, tf.abs([0, 5])),
    "any number": lambda x, n: tf.gather(TABLE, n),
    "a remainder": lambda x, n: tf.gather(TABLE, n % 5),
    "a larger remainder": lambda x, n: tf.gather(TABLE, n % 6),
    "a remainder of a bounded sum": lambda x, n: tf.gather(TABLE, tf.clip_by_value(n, 0, 2) + 1),
    "a sum that may wrap": lambda x, n: tf.gather(TABLE, tf.maximum(n + 2147483647, 0) % 5 - 1),
    "the largest of as many": lambda x, n: tf.gather(tf.exp(x), tf.argmax(x, axis=1), axis=1),
    "the largest of more": lambda x, n: tf.gather(tf.exp(x), tf.argmax(x, axis=1), axis=0),
    "booleans": lambda x, n: tf.gather(TABLE, tf.cast(x > 0.5, tf.int32)),
    "bytes": lambda x, n: tf.gather(np.zeros([256, 2], np.float32), tf.cast(tf.cast(n, tf.uint8), tf.int32)),
    "two, one of them any": lambda x, n: tf.gather(TABLE, tf.concat([n % 5, n], axis=0)),
    "a choice": lambda x, n: tf.gather(TABLE, tf.where(n > 1, n % 5, 0)),
}


@pytest.mark.parametrize("case", PROVEN)
def test_indices_are_in_range_by_proof_alone(case):
    item = Item.from_function(tf.function(PROVEN[case]), X, IDS)
    may = ["a constant", "a remainder", "a remainder of a bounded sum", "the largest of as many", "booleans"]
    may += ["bytes", "a choice"]
    assert of_type(item, "GatherV2") == [case in may]


def test_what_was_checked_before_is_in_range():
    table = tf.Variable(TABLE)

    @tf.function
    def f(x, n):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, n) ** 2)
        before = tf.convert_to_tensor(tape.gradient(loss, table))
        apart = tf.math.unsorted_segment_sum(tf.exp(x), n, 5)  # needs nothing of what was gathered
        smaller = tf.gather(TABLE[:4] * loss, n)
        return before, apart, smaller

    item = Item.from_function(f, X, IDS)
    assert of_type(item, "UnsortedSegmentSum") == [True, False]
    assert of_type(item, "GatherV2") == [False]


def test_sizes_that_may_be_others_prove_nothing():
    def f(x):
        return tf.gather(tf.exp(x), [0, 2]), tf.broadcast_to(x[:1], tf.shape(x)), x[:, 1]

    of_any_size = tf.function(f, input_signature=[tf.TensorSpec([None, 4])])
    for function, is_known in ((tf.function(f), True), (of_any_size, False)):
        item = Item.from_function(function, X)
        assert of_type(item, "GatherV2") == of_type(item, "BroadcastTo") == [is_known]
        assert of_type(item, "StridedSlice")[-1]
        assert why_not_fusible(item.without_values()) == why_not_fusible(item)


def test_a_large_constant_is_not_looked_at_because_an_item_may_lack_it():
    numbers = np.zeros(20_000, np.int32)
    numbers[1] = 9

    def taking(ids) -> Item:
        return Item.from_function(tf.function(lambda x: tf.gather(x, ids)), X)

    for item in (taking(numbers), taking(np.zeros_like(numbers))):
        assert of_type(item, "GatherV2") == of_type(item.without_values(), "GatherV2") == [False]


def test_divisors_exponents_and_shifts_of_whole_numbers():
    def f(x, n):
        return (
            n // 3,
            3 // n,
            n % (tf.abs(n) % 7 + 1),
            x / x,
            n**2,
            2**n,
            tf.bitwise.left_shift(n, n % 32),
            x**x,
        )

    item = Item.from_function(tf.function(f), X, IDS)
    assert of_type(item, "FloorDiv") == [True, False]
    assert of_type(item, "FloorMod")[1:] == [True, True] and of_type(item, "RealDiv") == [True]
    assert sorted(of_type(item, "Pow")) == [False, True, True] and of_type(item, "LeftShift") == [True]


def test_a_plan_that_would_lose_an_error_is_refused():
    item = Item.from_function(tf.function(lambda x, n: tf.exp(tf.gather(x, n, name="taken"))), X, IDS)
    with pytest.raises(InputError, match="op 'taken' cannot be in cluster 0: XLA does not check indices"):
        check_clusters(item, named(item, "taken"), on_one(item))
