"""Which outputs have an input's memory: by rule, and by what TensorFlow's kernels allocate."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tf_placer.problem.analytic_problem import VIEWS, WRITES_INTO, aliases, item_tensors

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


def by_type(pairs: dict[str, str | None], prefix: str) -> list[str | None]:
    return [alias for name, alias in pairs.items() if name.startswith(prefix)]


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
    assert None not in by_type(pairs, "of_variable/ReadVariableOp") != []
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
        rows = tf.gather(table, ids)
        return (
            tf.matmul(rows, tf.raw_ops.ReadVariableOp(resource=table.handle, dtype=tf.float32, name="whole"))
            + x
        )

    assert found(step, X, tf.constant([0, 1, 2, 3]))["whole"] is None
