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
from tf_placer.problem.decisions import NO_CLUSTER
from tf_placer.transform.fusion.clusters import (
    check_clusters,
    contracted,
    convex_clusters,
    starts_kernel,
)
from tf_placer.transform.fusion.rules import RULES

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


def test_all_clusters_together_have_no_cycle():
    for seed, item in random_items():
        labels = np.random.default_rng(seed).integers(2, size=item.index.num_ops).tolist()
        clusters = convex_clusters(item, labels, on_one(item), least=1)
        number, edges = contracted(item.index, clusters)
        assert len(topological_order(item.index.num_ops, edges)) == item.index.num_ops, seed
        assert len(set(number.tolist())) < item.index.num_ops or (clusters == NO_CLUSTER).all()


def test_every_rule_is_legal_and_keeps_to_its_least():
    for _, item in [(0, chain()), *random_items()]:
        for rule in RULES.values():
            clusters = rule.clusters(item, on_one(item))
            check_clusters(item, clusters, on_one(item))
            kernels = starts_kernel(item)
            for cluster in set(clusters.tolist()) - {NO_CLUSTER}:
                assert kernels[clusters == cluster].sum() >= rule.least


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
