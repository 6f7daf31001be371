"""Clusters are legal, merged by priority, of what XLA compiles, and save what a cluster can."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import having, topological_order
from colocation.tensorflow_internals import registered_kernels
from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import item_of, subject_of
from tests.oracles.split_equality import relative_difference
from tests.tf_placer.problem.small_problems import problem_of
from tests.tf_placer.transform.split import op_cases
from tests.tf_placer.transform.split.op_cases import NEEDS_STATISTICS, arguments_of, op_types
from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.problem.placement import NO_CLUSTER, Decisions, Placement
from tf_placer.problem.problem import CLUSTER, Problem
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.runtime.graph_program import build_program, open_program
from tf_placer.transform.fusion import (
    LEAST_KERNELS,
    PREFIX,
    RULES,
    _forward_edges,
    check_clusters,
    contracted,
    convex_clusters,
    fused_graph,
    fused_plan,
    merged_by_priority,
    node_ns,
    savings,
    starts_kernel,
)

DEVICES = ("/job:a/replica:0/task:0/device:CPU:0", "/job:a/replica:0/task:1/device:CPU:0")


def on_one(item: Item) -> dict[str, str]:
    return dict.fromkeys(item.index.names, DEVICES[0])


def chain() -> Item:
    """A product between two chains of cheap ops, and a way around it."""

    @tf.function
    def f(x):
        y = tf.exp(x, name="first") + 1.0
        return tf.tanh(tf.linalg.matmul(y, y, name="product") + y, name="last")

    return Item.from_function(f, tf.ones([4, 4]))


def named(item: Item, *names: str) -> np.ndarray:
    """One cluster of ops that are named."""
    return np.array([0 if name in names else NO_CLUSTER for name in item.index.names], np.int32)


def random_items():
    for seed in range(12):
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
    tf.function(lambda x: x + 1.0, jit_compile=True)(tf.ones([1]))
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
        return before, apart, tf.gather(TABLE[:4] * loss, n)

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
            n // 3, 3 // n, n % (tf.abs(n) % 7 + 1), x / x, n**2, 2**n, tf.bitwise.left_shift(n, n % 32),
            x**x,
        )  # fmt: skip

    item = Item.from_function(tf.function(f), X, IDS)
    assert of_type(item, "FloorDiv") == [True, False]
    assert of_type(item, "FloorMod")[1:] == [True, True] and of_type(item, "RealDiv") == [True]
    assert sorted(of_type(item, "Pow")) == [False, True, True] and of_type(item, "LeftShift") == [True]


def test_a_plan_that_would_lose_an_error_is_refused():
    item = Item.from_function(tf.function(lambda x, n: tf.exp(tf.gather(x, n, name="taken"))), X, IDS)
    with pytest.raises(InputError, match="op 'taken' cannot be in cluster 0: XLA does not check indices"):
        check_clusters(item, named(item, "taken"), on_one(item))


def diamond(can=(True,) * 4):
    """0 -> 1 -> 3 and 0 -> 2 -> 3, a kernel each."""
    problem = problem_of([1000] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)], 8)
    return dataclasses.replace(problem, fusible_of_op=np.array(can))


def merged(problem, priorities, devices=(0, 0, 0, 0)):
    return merged_by_priority(problem, np.array(devices), np.array(priorities)).tolist()


def test_any_priorities_on_any_devices_become_legal_clusters():
    fused = 0
    for seed in range(8):
        item = item_of(subject_of(program_of_seed(seed), gradients=False))
        if not item.index.num_ops:
            continue
        problem, rng = (
            build_problem(item, Cluster.preset("k40x2"), costs="analytic"),
            np.random.default_rng(seed),
        )
        device_of_op = rng.integers(2, size=problem.num_ops)
        names = [problem.cluster.devices[device].name for device in device_of_op]
        priorities = rng.integers(4, size=problem.num_ops)
        clusters = merged_by_priority(problem, device_of_op, priorities)
        check_clusters(item, clusters, dict(zip(item.index.names, names, strict=True)))
        assert not (priorities[clusters != NO_CLUSTER] == 0).any()
        assert (np.unique(clusters) >= NO_CLUSTER).all()
        fused += int((clusters != NO_CLUSTER).sum())
    assert fused > 20


def test_all_of_one_priority_are_one_cluster_where_nothing_is_between():
    assert merged(diamond(), [1] * 4) == [0] * 4
    assert merged(diamond(), [0] * 4) == [-1] * 4


def test_a_cluster_is_on_one_device():
    # 0 -> 1 on one and 2 -> 3 on the other: each pair is a cluster, and 3 reads of the first.
    assert merged(diamond(), [1] * 4, devices=[0, 0, 1, 1]) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        # 0 and 1 first: with 3 there would be a way out of the cluster and back, through 2.
        ([2, 2, 1, 1], [0, 0, -1, -1]),
        ([1, 2, 1, 2], [-1, 0, -1, 0]),
    ],
)
def test_what_has_a_higher_priority_is_merged_first(priorities, expected):
    assert merged(diamond(can=(True, True, False, True)), priorities) == expected


def test_one_kernel_is_no_cluster():
    free = dataclasses.replace(diamond(), compute_ns=np.array([[1000, 1000], [0, 0], [0, 0], [0, 0]]))
    assert merged(free, [1] * 4) == [-1] * 4


CLOSE = 1e-4  # of the largest number, in float32
OWN_GRADIENT = "IdentityN"  # its case is a custom gradient's
# With numbers that are known in a step only, which here are right: they are in no cluster that a search makes.
MAY_RAISE = {f"UnsortedSegment{of}" for of in ("Max", "Min", "Prod", "Sum")} | {
    *("Gather", "GatherNd", "GatherV2", "LeftShift", "RightShift", "ReverseSequence", "ScatterNd"),
    "SparseSoftmaxCrossEntropyWithLogits",
}
# Outputs that nothing reads: empty here, a number there.
MEANINGFUL = dict.fromkeys(NEEDS_STATISTICS, 3)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", sorted(having("xla") & set(op_types()) - {OWN_GRADIENT}))
def test_it_is_compiled_and_gives_the_same(op_type):
    batch, arguments = arguments_of(op_type, 0)
    item = op_cases.item_of(op_type, batch, arguments)
    devices = dict.fromkeys(item.index.names, "/job:localhost/replica:0/task:0/device:CPU:0")
    labels = [0 if other == op_type else None for other in item.index.op_types]
    clusters = convex_clusters(item, labels, devices, least=0)
    placed = place_graph(item.graph_def, devices)
    fused = fused_graph(item, placed, clusters)
    assert any(node.name.startswith(PREFIX) for node in fused.node) == (op_type not in MAY_RAISE)
    found = []
    for graph_def in (placed, fused):
        with open_program("", build_program(item, graph_def, is_call=True), 60.0) as program:
            found.append(program.outputs())
    for expected, given in list(zip(*found, strict=True))[: MEANINGFUL.get(op_type)]:
        assert relative_difference(np.asarray(expected), np.asarray(given)) <= CLOSE


LAUNCH_NS, BYTES_PER_S = 5_000, 1e9


@pytest.fixture
def problem() -> Problem:
    """A chain of four ops of 20, 30, 40 and 50 us, with tensors of 2, 4 and 6 kB, on one GPU."""
    device = Device(
        "/job:a/replica:0/task:0/device:GPU:0", "GPU", "k40", 10**9, 1, 1e12, BYTES_PER_S, LAUNCH_NS
    )
    return Problem.from_arrays(
        compute_ns=np.array([[20_000], [30_000], [40_000], [50_000]]),
        edges=np.array([[0, 1], [1, 2], [2, 3]]),
        edge_bytes=np.array([2_000, 4_000, 6_000]),
        resident_bytes=np.array([100, 0, 0, 10]),
        output_bytes=np.array([2_000, 4_000, 6_000, 0]),
        allowed=np.ones((4, 1), bool),
        cluster=Cluster("one", (device,), ()),
    )


def test_a_cluster_saves_launches_and_bytes_inside(problem):
    clusters = np.array([-1, 0, 0, 0], np.int32)
    saved = savings(problem, clusters)
    assert (saved.clusters, saved.ops, saved.kernels, saved.num_bytes) == (1, 3, 2, 10_000)
    # 120 us, less two launches of 5 us, less 10 kB written and read at 1 GB/s: 20 us.
    assert node_ns(problem, clusters, clusters + 1).tolist() == [[20_000], [90_000]]


def test_a_cluster_takes_a_launch_at_least(problem):
    quick = Problem.from_arrays(
        compute_ns=np.full((2, 1), 6_000), edges=np.array([[0, 1]]), edge_bytes=np.array([10**6]),
        resident_bytes=np.zeros(2, np.int64), output_bytes=np.array([10**6, 0]),
        allowed=np.ones((2, 1), bool), cluster=problem.cluster,
    )  # fmt: skip
    cluster = np.zeros(2, np.int32)
    assert node_ns(quick, cluster, cluster).tolist() == [[LAUNCH_NS]]


def test_the_simulator_takes_each_cluster_for_one_op(problem):
    rows = [[0]]
    plain, fused = (
        SimulatedEvaluator(problem).evaluate(Decisions([[0] * 4], None, clusters))
        for clusters in (None, [[-1, 7, 7, 7]])
    )
    assert plain.runtime_s.tolist() == [pytest.approx(140e-6)]
    assert fused.runtime_s.tolist() == [pytest.approx(110e-6)]
    both = Decisions.joined([Decisions([[0] * 4]), Decisions([[0] * 4], None, [[-1, 7, 7, 7]])])
    together = SimulatedEvaluator(problem).evaluate(both)
    assert together.runtime_s.tolist() == [*plain.runtime_s, *fused.runtime_s]
    assert together.peak_bytes.shape == (2, len(rows[0]))
    assert fused.peak_bytes[0, 0] < plain.peak_bytes[0, 0], "what stays inside takes no memory"


def test_the_fused_problem_keeps_variables_and_what_leaves(problem):
    plan, first = fused_plan(Placement(problem, [0] * 4, None, [0, 0, -1, -1]))
    found = plan.problem
    assert first.tolist() == [0, 2, 3] and plan.device_of_unit.tolist() == [0, 0, 0]
    assert found.compute_ns[:, 0].tolist() == [20_000 + 30_000 - LAUNCH_NS - 4_000, 40_000, 50_000]
    assert found.tensor_bytes.tolist() == [4_000, 6_000]
    assert found.resident_bytes.sum() == problem.resident_bytes.sum()


def test_a_cluster_has_the_name_of_its_call_and_says_how_many_ops_it_is(problem):
    named = dataclasses.replace(problem, op_names=("a/b/first", "a/second", "third", "a/fourth"))
    found = fused_plan(Placement(named, [0] * 4, None, [3, 3, -1, 5]))[0].problem
    assert found.op_names == ("a/b/fused_cluster_3", "third", "a/fused_cluster_5")
    assert found.op_types == ("fused, 2 ops", problem.op_types[2], "fused, 1 ops")
    assert [op_type.startswith(CLUSTER) for op_type in found.op_types] == [True, False, True]


def test_costs_of_a_cluster_on_two_devices_are_refused(problem):
    two = problem_of([100, 50], [[0, 1]])
    with pytest.raises(
        InputError, match=r"cluster 4 has 'unit_0' on .*GPU:0 and 'unit_1' on .*; give all of a cluster"
    ):
        SimulatedEvaluator(two).evaluate(Decisions([[0, 1]], None, [[4, 4]]))


def test_a_cycle_is_refused(problem):
    with pytest.raises(InputError, match="cluster 0, of 'unit_0' and others, is in a cycle"):
        SimulatedEvaluator(problem).evaluate(Decisions([[0] * 4], None, [[0, -1, 0, -1]]))
