"""A real training step as a Problem: nothing is lost, which outputs share memory, what is proven not to fit."""

import dataclasses
import importlib
import inspect

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.tf1_programs import program
from tests.tf_placer.evaluation import random_problems
from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import problem_of, small_cluster, without_overheads
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.plain import single_device_placements
from tf_placer.problem.analytic_problem import VIEWS, WRITES_INTO, aliases, analytic_problem, item_tensors
from tf_placer.problem.bounds import bytes_while_running, shortage

# The package's face has a function of the module's name.
build_problem_module = importlib.import_module("tf_placer.problem.analytic_problem")


@pytest.fixture(scope="module")
def item():
    return workloads.build("dense_small")


@pytest.fixture(scope="module")
def problem(item):
    return analytic_problem(item, Cluster.preset("k40x2"))


def test_every_op_is_there_with_a_unit_and_costs(item, problem):
    assert problem.op_names == item.index.names and problem.op_types == item.index.op_types
    assert problem.compute_ns.shape == (item.index.num_ops, 3)
    assert set(problem.unit_of_op.tolist()) == set(range(problem.num_units))
    assert problem.fingerprint == item.fingerprint
    assert problem.compute_ns.sum(axis=0).min() > 0


def test_work_is_kept_beside_the_times(item, problem):
    costs = analytic_costs(item, problem.cluster)
    np.testing.assert_array_equal(problem.work.flops, costs.work.flops)
    started = problem.work.launches > 0
    assert (started == (problem.compute_ns[:, 0] > 0)).all() and 0 < started.sum() < problem.num_ops


def test_tensor_bytes_add_up(item, problem):
    assert problem.tensor_bytes.sum() == sum(spec.num_bytes for outputs in item.outputs for spec in outputs)


def test_every_edge_of_the_graph_is_waited_for(item, problem):
    producer = problem.op_graph.producer
    waited = set(zip(producer.tolist(), problem.consumer_op.tolist(), strict=True))
    data, control = item.index.data_edges, item.index.control_edges
    assert waited == set(map(tuple, data[:, [0, 2]].tolist())) | set(map(tuple, control.tolist()))
    assert (producer < problem.consumer_op).all(), "ops must be in topological order"


def test_control_edges_carry_no_bytes(item):
    table = item_tensors(item)
    # Each (producer, output) once, and at most one more of 0 bytes per op with control readers.
    outputs = sum(len(o) for o in item.outputs)
    extra = len(np.unique(item.index.control_edges[:, 0]))
    assert len(table.producer) <= outputs + extra
    assert (np.diff(table.producer) >= 0).all()


def test_variables_stay(item, problem):
    assert problem.resident_bytes.sum() == sum(v.num_bytes for v in item.variables) > 0
    units = {problem.unit_of_op[item.index.id_of_name[v.node]] for v in item.variables}
    assert units == set(np.flatnonzero(problem.resident_bytes).tolist())


def test_every_single_device_placement_is_legal_and_runs(problem):
    placements = single_device_placements(problem)
    for placement in placements:
        problem.check_legal(placement)
    measurement = SimulatedEvaluator(problem).evaluate(placements)
    assert (measurement.runtime_s > 0).all()
    # Every op has kernels on both kinds of device, so on one GPU all run there, one after the other.
    assert (placements[0] == 0).all()
    alone = dataclasses.replace(problem, cluster=without_overheads(problem.cluster))
    [alone_s] = SimulatedEvaluator(alone).evaluate(placements[:1]).runtime_s
    assert alone_s == pytest.approx(problem.compute_ns[:, 0].sum() / 1e9)
    assert measurement.runtime_s[0] >= alone_s, "kernels wait for their host, never the other way round"


def test_an_op_without_a_kernel_anywhere_is_named(item, monkeypatch):
    def costs(item, cluster):
        found = analytic_costs(item, cluster)
        allowed = found.allowed.copy()
        allowed[7] = False
        return dataclasses.replace(found, allowed=allowed)

    monkeypatch.setattr(build_problem_module, "analytic_costs", costs)
    name, op_type = item.index.names[7], item.index.op_types[7]
    with pytest.raises(InputError) as error:
        analytic_problem(item, Cluster.preset("k40x2"))
    assert str(error.value) == f"op {name!r} ({op_type}) has a kernel on no device of cluster 'k40x2'"


def test_what_a_loop_of_tensorflow_1_keeps_of_all_iterations_is_resident():
    found = program("recurrent_training")
    problem = analytic_problem(Item.from_meta_graph(found.meta_graph, found.fetches), Cluster.preset("k40x2"))
    weights = 12 * 4
    # Five steps of three examples: eight inputs in an array, four results in one and four gradients in another; on
    # stacks the state, what was multiplied with the weights, and twice the counter.
    of_a_step = 3 * (8 + 4 + 4) + 3 * (4 + 12) + 2
    assert problem.resident_bytes.sum() == 4 * (weights + 5 * of_a_step)
    # The weights; the loop, which is one unit with its gradient.
    assert (problem.resident_bytes > 0).sum() == 2


def test_what_waits_for_the_backward_pass_counts_and_what_is_gone_does_not():
    # Forward 0, 1, 2, whose outputs wait for 5, 4, 3. When 3 runs, those of 0 (10), 1 (20), 2 (40) and 3 (1) are alive.
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4), (0, 5)]
    tensor = [0, 1, 2, 3, 4, 1, 0]
    problem = problem_of([1] * 6, edges, [10, 20, 40, 1, 1, 20, 10], edge_tensor=tensor)
    assert problem.held_bytes().tolist() == [10, 20, 40, 1, 0, 0]


def test_an_output_that_nobody_reads_is_held_while_its_op_runs():
    assert problem_of([1, 1], [], output_bytes=[5, 7]).held_bytes().tolist() == [0, 7]
    assert problem_of([1, 1], []).held_bytes().tolist() == [0, 0]


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_together_they_are_the_peak_of_a_chain_on_one_device(seed, is_shared):
    """Of memory that is shared, too, which counts once: every second op writes into what the one before it made."""
    generator = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(11)] + [(i, 11 - i) for i in range(5)]
    edge_bytes = 8 if is_shared else generator.integers(1, 99, len(edges))
    problem = problem_of(generator.integers(1, 9, 12), edges, edge_bytes, cluster=small_cluster(1))
    if is_shared:
        alias = np.full(len(problem.tensor_producer), -1)
        for tensor, op in enumerate(problem.tensor_producer):
            read = problem.op_graph.tensor[problem.consumer_op == op]
            if op % 2 and len(read):
                alias[tensor] = read[-1]
        alias[0] = 0  # an input of the program
        problem = dataclasses.replace(problem, alias_of_tensor=alias)
    peak = SimulatedEvaluator(problem).evaluate(np.zeros((1, 12))).peak_bytes[0, 0]
    assert problem.held_bytes().sum() == peak


GPU = "/job:localhost/replica:0/task:0/device:GPU:"


ANYWHERE, FIRST = [True] * 3, [True, False, False]


@pytest.mark.parametrize(
    ("memory", "resident", "allowed", "line"),
    [
        pytest.param(
            [10, 25], [5, 40, 30], [ANYWHERE] * 3,
            f"the unit of op 'b' (1 op) fits on no device: 40 bytes stay there, and {GPU}1 with 25 bytes is 15 bytes "
            "short",
            id="a unit larger than every device",
        ),
        pytest.param(
            [10, 99], [15, 1], [FIRST, ANYWHERE],
            "the unit of op 'a' (1 op) fits on no device: 15 bytes stay there, and "
            f"{GPU}0 with 10 bytes is 5 bytes short",
            id="a device that is large enough has no kernel",
        ),
        pytest.param(
            [20, 25], [10, 9, 10, 10, 11], [ANYWHERE] * 5,
            f"50 bytes stay with units and {GPU}0, {GPU}1 have together 45: 5 bytes short; most is with the variables "
            "in the unit of op 'e' (11), the unit of op 'a' (10), the unit of op 'c' (10)",
            id="all devices together",
        ),
        pytest.param(
            [15, 99, 99], [10, 10, 50], [FIRST, FIRST, ANYWHERE],
            f"20 bytes stay with units that run nowhere else and {GPU}0 has 15: 5 bytes short; most is with the "
            "variables in the unit of op 'a' (10), the unit of op 'b' (10)",
            id="units that run on some devices only",
        ),
    ],
)  # fmt: skip
def test_what_can_fit_nowhere_is_named_with_what_is_missing(memory, resident, allowed, line):
    problem = problem_of(
        [1] * len(resident), [], cluster=sized_cluster(memory), resident_bytes=resident,
        allowed=np.array(allowed)[:, : len(memory)], names=list("abcde")[: len(resident)],
    )  # fmt: skip
    assert shortage(problem) == line


def test_what_an_op_reads_and_writes_is_there_while_it_runs():
    # Unit 2 reads 30 and 20 and writes 10, with 1 that stays: 61 of 60.
    ops = [1] * 3, [(0, 2), (1, 2)], [30, 20], small_cluster(2, memory_bytes=60)
    problem = problem_of(*ops, resident_bytes=[0, 0, 1], output_bytes=[0, 0, 10], names=["a", "b", "c"])
    told = shortage(problem)
    assert "'c' (1 op) fits on no device: 1 bytes stay there, 60 are held while op 'c' runs" in told
    assert told.endswith("with 60 bytes is 1 bytes short")
    assert (SimulatedEvaluator(problem).evaluate(np.array([[0, 1, 0], [0, 0, 0]])).status == 1).all()
    assert shortage(problem_of(*ops, output_bytes=10)) is None


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_proven_where_something_fits(seed):
    generator = np.random.default_rng(seed)
    edges = [(i, j) for i in range(6) for j in range(i + 1, 6) if generator.random() < 0.4]
    problem = problem_of(
        generator.integers(0, 3, 6),
        edges,
        generator.integers(0, 30, len(edges)),
        cluster=sized_cluster(generator.integers(40, 90, 2).tolist()),
        resident_bytes=generator.integers(0, 30, 6),
    )
    every = np.array([[row >> unit & 1 for unit in range(6)] for row in range(64)])
    fits = (SimulatedEvaluator(problem).evaluate(every).status == 0).any()
    assert shortage(problem) is None or not fits


def test_no_simulated_step_has_less_than_what_one_of_its_ops_needs():
    shared = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        problem = random_problems.random_problem(rng)
        running, _ = bytes_while_running(problem)
        row = rng.integers(0, problem.num_devices, problem.num_units).astype(np.int32)
        peak = SimulatedEvaluator(problem).evaluate(row[np.newaxis]).peak_bytes[0]
        units = np.arange(problem.num_units)
        assert (problem.resident_bytes + running[units, row] <= peak[row]).all(), seed
        shared += (problem.alias_of_tensor >= 0).any()
    assert shared > 50


SHAPE = (8, 512)

# What a call needs beside tensors that are alike.
ARGUMENTS = {
    "BiasAdd": lambda x: {"value": x, "bias": tf.zeros(SHAPE[1:])},
    "Bitcast": lambda x: {"input": x, "type": tf.int32},
    "CheckNumerics": lambda x: {"tensor": x, "message": "wrong"},
    "ClipByValue": lambda x: {"t": x, "clip_value_min": 0.0, "clip_value_max": 1.0},
    "EnsureShape": lambda x: {"input": x, "shape": SHAPE},
    "ExpandDims": lambda x: {"input": x, "axis": 0},
    "PlaceholderWithDefault": lambda x: {"input": x, "shape": SHAPE},
    "Reshape": lambda x: {"tensor": x, "shape": (-1,)},
    "SparseSoftmaxCrossEntropyWithLogits": lambda x: {"features": x, "labels": tf.zeros(SHAPE[0], tf.int32)},
    "SoftmaxCrossEntropyWithLogits": lambda x: {"features": x, "labels": tf.zeros(SHAPE)},
    "AddN": lambda x: {"inputs": [x, tf.zeros(SHAPE)]},
    "Select": lambda x: {"condition": tf.zeros(SHAPE, tf.bool), "x": x, "y": tf.zeros(SHAPE)},
    "SelectV2": lambda x: {"condition": tf.zeros(SHAPE, tf.bool), "t": x, "e": tf.zeros(SHAPE)},
}
TYPES = {"LogicalNot": tf.bool, "LogicalAnd": tf.bool, "LogicalOr": tf.bool}
TYPES |= dict.fromkeys(
    ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "TruncateDiv", "TruncateMod", "Mod"], tf.int32
)


def fresh(op_type: str) -> tf.Tensor:
    """A tensor of its own memory, for an op of this type to read."""
    dtype = TYPES.get(op_type, tf.float32)
    made = tf.raw_ops.Transpose(x=tf.compat.v1.placeholder(tf.float32, SHAPE[::-1]), perm=[1, 0])
    return made if dtype == tf.float32 else tf.cast(made, dtype)


def called(op_type: str, x: tf.Tensor) -> tf.Operation:
    """An op of this type that reads ``x`` and what is like it."""
    make = getattr(tf.raw_ops, op_type)
    if op_type in ARGUMENTS:
        arguments = ARGUMENTS[op_type](x)
    else:
        names = [
            name
            for name, parameter in inspect.signature(make).parameters.items()
            if parameter.default is parameter.empty
        ]
        arguments = {name: x if i == 0 else tf.ones(SHAPE, x.dtype) for i, name in enumerate(names)}
    result = make(**arguments)
    return (result if isinstance(result, tf.Tensor) else result[0]).op


ALL = sorted(set(VIEWS) | set(WRITES_INTO))
NEEDS_A_VARIABLE = {"ReadVariableOp"}


@pytest.fixture(scope="module")
def allocated() -> dict[str, int]:
    """Op type -> bytes that TensorFlow allocated for an op of it, of all types in one step."""
    graph, targets, reads = tf.Graph(), {}, []
    with graph.as_default():
        for op_type in ALL:
            if op_type in NEEDS_A_VARIABLE:
                continue
            op = called(op_type, fresh(op_type))
            targets[op.name] = op_type
            targets |= {one.name: one.type for one in graph.get_operations() if one.type == "Transpose"}
            reads += [tf.raw_ops.Size(input=output) for output in op.outputs]
        feeds = {
            op.outputs[0]: np.full(SHAPE[::-1], 0.5, np.float32)
            for op in graph.get_operations()
            if op.type == "Placeholder"
        }
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    trace = tf.compat.v1.RunMetadata()
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        session.run(reads, feeds, options=options, run_metadata=trace)
    found: dict[str, int] = {}
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            if node.node_name in targets:
                kept = [r.alloc_bytes for memory in node.memory for r in memory.allocation_records]
                found[targets[node.node_name]] = max([*kept, 0])
    return found


def test_kernels_allocate_no_output_for_what_the_table_names(allocated):
    size = 4 * SHAPE[0] * SHAPE[1]
    assert allocated.pop("Transpose") >= size, "the trace says what is allocated"
    assert set(allocated) == set(ALL) - NEEDS_A_VARIABLE
    taken = {op_type: num_bytes for op_type, num_bytes in allocated.items() if num_bytes >= size // 4}
    assert not taken


def found(function: object, *arguments: object) -> dict[str, str | None]:
    """Op -> op whose output's memory its first output has, of a function with one output an op."""
    item = tf_placer.Item.from_function(tf.function(function), *arguments)
    table = item_tensors(item)
    names = item.index.names
    rows = zip(table.producer.tolist(), aliases(item, table).tolist(), strict=True)
    return {names[op]: None if alias < 0 else names[table.producer[alias]] for op, alias in rows}


X = tf.ones([4, 4])


def test_a_result_is_written_into_an_input_that_nobody_else_reads():
    def once(x):
        return tf.matmul(tf.nn.relu(tf.matmul(x, x, name="made"), name="alone"), x)

    def twice(x):
        made = tf.matmul(x, x, name="made")
        return tf.matmul(tf.nn.relu(made, name="read_beside"), made)

    def squared(x):
        made = tf.matmul(x, x, name="made")
        return tf.matmul(tf.multiply(made, made, name="read_twice"), x)

    assert found(once, X)["alone"] == "made"
    assert found(twice, X)["read_beside"] is None
    assert found(squared, X)["read_twice"] is None


def test_a_gradient_of_logits_is_written_into_them():
    """The loss, the other output of that op, is elsewhere; of a view's outputs each has a part of its input."""

    def logits(x):
        loss, gradient = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=tf.matmul(x, x, name="made"), labels=tf.zeros(4, tf.int32), name="entropy"
        )
        return tf.reduce_sum(loss) + tf.matmul(tf.multiply(gradient, tf.ones([4, 1]), name="scaled"), x)

    def parts(x):
        one, other = tf.split(tf.matmul(x, x, name="made"), 2, axis=0, name="rows")
        return tf.matmul(tf.nn.relu(one, name="of_a_part"), other, transpose_b=True)

    assert found(logits, X)["scaled"] == "entropy" and found(logits, X)["entropy"] == "made"
    assert found(parts, X)["of_a_part"] is None


def test_what_is_fed_stays():
    assert found(lambda x: tf.matmul(x, x), X)["x"] == "x"


def test_nothing_is_written_into_what_others_hold():
    variable = tf.Variable(X)

    def of_input(x):
        return tf.matmul(tf.nn.relu(x, name="of_input"), x + 1)

    def of_variable(x):
        return tf.matmul(tf.nn.relu(variable, name="of_variable"), x)

    def of_view(x):
        made = tf.matmul(x, x, name="made")
        flat = tf.reshape(made, [16], name="flat")
        return tf.reduce_sum(tf.nn.relu(flat, name="of_view")) + tf.reduce_sum(tf.matmul(made, x))

    assert found(of_input, X)["of_input"] is None
    pairs = found(of_variable, X)
    assert pairs["of_variable"] is None
    reads = [alias for name, alias in pairs.items() if name.startswith("of_variable/ReadVariableOp")]
    assert reads and None not in reads
    pairs = found(of_view, X)
    assert pairs["flat"] == "made" and pairs["of_view"] is None


def test_another_type_or_size_has_memory_of_its_own():
    def step(x):
        less = tf.less(tf.matmul(x, x), tf.matmul(x, x), name="less")
        wide = tf.add(tf.matmul(x[:, :1], x[:1], name="column"), tf.reshape(x[0], [1, 4]), name="like")
        return tf.where(less, wide, x)

    pairs = found(step, X)
    assert pairs["less"] is None and pairs["like"] == "column"


def test_rows_are_views_and_columns_are_copies():
    def rows(x):
        one, other = tf.split(tf.matmul(x, x, name="made"), 2, axis=0, name="rows")
        return tf.matmul(one, other, transpose_b=True)

    def columns(x):
        one, other = tf.split(tf.matmul(x, x, name="made"), 2, axis=1, name="columns")
        return tf.matmul(one, other, transpose_b=True)

    assert found(rows, X)["rows"] == "made"
    assert found(columns, X)["columns"] is None
    assert found(lambda x: tf.add_n(tf.unstack(x @ x, name="rows")), X)["rows"] is not None
    assert found(lambda x: tf.add_n(tf.unstack(x @ x, axis=1, name="columns")), X)["columns"] is None


def test_a_variable_that_is_accessed_row_by_row_gives_copies():
    table = tf.Variable(X)

    def step(x, ids):
        whole = tf.raw_ops.ReadVariableOp(resource=table.handle, dtype=tf.float32, name="whole")
        return tf.matmul(tf.gather(table, ids), whole) + x

    assert found(step, X, tf.constant([0, 1, 2, 3]))["whole"] is None
