"""Sizes that depend on data: a bound or an estimate for each, stand-ins for values, and what follows."""

import ctypes
import gc

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import parse_input
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph import size_rules
from tf_placer.graph.item import Item
from tf_placer.graph.program import KEPT_BYTES, drawn_value, without_large_constants, without_value
from tf_placer.problem.analytic_problem import analytic_problem

X = tf.reshape(tf.range(18.0), [6, 3])
WORDS = tf.constant(["a b", "c d e"])


def results(function, *args) -> list[tuple[tuple[int, ...], str]]:
    """Shape and rule of each result, of a program that can be placed."""
    item = Item.from_function(tf.function(function), *args)
    problem = analytic_problem(item, Cluster.preset("p100x2"))
    assert problem.estimated_sizes == item.estimated_sizes
    outputs = dict(zip(item.index.names, item.outputs, strict=True))
    specs = [outputs[name][output] for _, name, output in map(parse_input, item.fetches)]
    assert all(spec.num_bytes >= 0 for spec in specs)
    return [(spec.shape, spec.rule) for spec in specs]


def rules(function, *args) -> set[str]:
    return set(Item.from_function(tf.function(function), *args).estimated_sizes)


def test_known_sizes_are_no_estimates():
    item = Item.from_function(tf.function(lambda x: x @ tf.ones([3, 2])), X)
    assert item.estimated_sizes == {}
    assert not any(spec.rule for outputs in item.outputs for spec in outputs)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        # 18 elements: at most 18 rows of 2 coordinates.
        (lambda x: tf.where(x > 0.0), (18, 2)),
        (lambda x: tf.where(x > 0.0) + 1, (18, 2)),
        (lambda x: tf.boolean_mask(x, x[:, 0] > 0.5) @ tf.ones([3, 4]), (6, 4)),
        (lambda x: tf.unique(tf.reshape(x, [-1]))[0], (18,)),
        (lambda x: tf.raw_ops.UniqueV2(x=x, axis=[0])[0], (6, 3)),
        (lambda x: tf.dynamic_partition(x, tf.cast(x[:, 0], tf.int32) % 2, 2)[1], (6, 3)),
        (lambda x: tf.math.segment_sum(x, tf.cast(x[:, 0], tf.int32)), (6, 3)),
        (lambda x: tf.image.non_max_suppression(tf.concat([x, x[:, :1]], 1), x[:, 0], 4), (4,)),
        (lambda x: tf.image.non_max_suppression(tf.concat([x, x[:, :1]], 1), x[:, 0], 400), (6,)),
        (lambda x: x[: tf.cast(x[0, 0], tf.int32)], (6, 3)),
        (lambda x: tf.sparse.from_dense(x).values, (18,)),
        # 18 of each, behind each other.
        (lambda x: tf.sparse.concat(0, [tf.sparse.from_dense(x)] * 2).indices, (36, 2)),
    ],
)
def test_a_bound_follows_from_the_inputs(function, shape):
    assert [found for found, _ in results(function, X)] == [shape]
    assert rules(function, X) <= {size_rules.BOUND, size_rules.DERIVED} and size_rules.BOUND in rules(
        function, X
    )


@pytest.mark.parametrize(
    ("function", "shape", "rule"),
    [
        (lambda x: tf.py_function(lambda y: y, [x], tf.float32) * 2.0, (6, 3), size_rules.AS_INPUT),
        (lambda x: tf.cond(x[0, 0] > 0.0, lambda: x[:2], lambda: x), (6, 3), size_rules.BRANCHES),
    ],
)
def test_what_functions_return(function, shape, rule):
    assert [found for found, _ in results(function, X)] == [shape]
    assert rule in rules(function, X)


def test_branches_that_agree_are_no_estimate():
    def gradient(x):
        """Of unknown shape where it is traced with a batch of any size."""
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(x[0, 0] > 0.0, lambda: tf.sin(x), lambda: tf.cos(x))
        return tape.gradient(y, x)

    traced = tf.function(gradient, input_signature=[tf.TensorSpec([None, 3])])
    assert Item.from_function(traced, X).estimated_sizes == {}


def test_words_of_strings_and_ragged_rows():
    def padded(words):
        return tf.strings.split(words).to_tensor("")

    # 8 words each of 2 strings: 16, in 2 rows.
    assert results(lambda words: tf.strings.split(words).values, WORDS)[0][0] == (16,)
    assert results(lambda words: tf.strings.split(words).row_splits, WORDS)[0][0] == (3,)
    assert [shape for shape, _ in results(padded, WORDS)] == [(2, 8)]
    assert {size_rules.STRINGS, size_rules.RAGGED} <= rules(padded, WORDS)


def test_what_contradicts_an_estimate_counts():
    # The mask is taken to hold 6, the program says 2.
    assert results(lambda x: tf.ensure_shape(tf.boolean_mask(x, x[:, 0] > 9.0), [2, 3]), X) == [((2, 3), "")]


def growing(x):
    return tf.while_loop(
        lambda i, _: i < 3,
        lambda i, y: (i + 1, tf.concat([y, y], 0)),
        (0, x),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 3])),
    )[1]


def test_a_loop_that_grows_a_tensor():
    # 6 rows before, 12 after one iteration; what reads it follows.
    assert [shape for shape, _ in results(lambda x: growing(x) @ tf.ones([3, 5]), X)] == [(12, 5)]
    assert rules(growing, X) == {size_rules.LOOP, size_rules.DERIVED}


def test_a_list_of_a_loop_that_runs_as_often_as_data_says():
    def written(x):
        rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[3])
        for i in tf.range(tf.cast(tf.reduce_sum(x), tf.int32)):
            rows = rows.write(i, x[0])
        return rows.stack()

    assert [shape for shape, _ in results(written, X)] == [(6, 3)]  # a batch
    assert size_rules.LIST in rules(written, X)


def test_a_list_is_as_long_as_it_was_made():
    def mapped(x):
        return tf.map_fn(lambda row: tf.reduce_sum(row), tf.boolean_mask(x, x[:, 0] > 0.0))

    assert [shape for shape, _ in results(mapped, X)] == [(6,)]


def test_ragged_arguments():
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    found = results(lambda r: (r * 2.0, tf.reduce_sum(r, 1)), ragged)
    assert [shape for shape, _ in found] == [(3,), (3,), (2,)]


WEIGHTS, FILTERS = tf.ones([8, 5]), tf.ones([3, 3, 4, 6])


@pytest.mark.parametrize(
    ("read", "shape", "result"),
    [
        # 32 rows, for nothing that is fed has any.
        (lambda parsed: parsed @ WEIGHTS, (32, 8), (32, 5)),
        (lambda parsed: tf.matmul(parsed, WEIGHTS, transpose_a=True), (8, 32), (32, 5)),
        (lambda parsed: WEIGHTS @ parsed, (5, 32), (8, 32)),
        (lambda parsed: tf.nn.relu(tf.identity(parsed)) @ WEIGHTS, (32, 8), (32, 5)),
        (lambda parsed: tf.nn.conv2d(parsed, FILTERS, 1, "SAME"), (32, 32, 32, 4), (32, 32, 32, 6)),
        (lambda parsed: tf.nn.bias_add(parsed, tf.ones([7])), (32, 7), (32, 7)),
        (lambda parsed: parsed + WEIGHTS, (), (8, 5)),
    ],
)
def test_a_tensor_of_unknown_rank_is_what_its_readers_take(read, shape, result):
    def both(text):
        parsed = tf.io.parse_tensor(text, tf.float32)
        return parsed, read(parsed)

    found = results(both, tf.constant(b""))
    assert [one for one, _ in found] == [shape, result]
    assert (size_rules.AS_READ if shape else size_rules.AS_INPUT) in rules(both, tf.constant(b""))


def test_readers_that_contradict_each_other_leave_the_estimate():
    def read(text):
        parsed = tf.io.parse_tensor(text, tf.float32)
        return parsed, tf.nn.conv2d(parsed, FILTERS, 1, "SAME"), tf.raw_ops.MatMul(a=parsed, b=WEIGHTS)

    assert results(read, tf.constant(b""))[0][0] == ()
    assert size_rules.AS_READ not in rules(read, tf.constant(b""))


LARGE = KEPT_BYTES // 4 + 1


@pytest.mark.parametrize("dtype", [np.float32, np.int64, tf.bfloat16.as_numpy_dtype, bool])
def test_large_values_become_one_zero(dtype):
    value = np.ones([2, LARGE * 4], dtype)
    stand_in = without_value(value)
    assert (stand_in.shape, stand_in.dtype) == (value.shape, value.dtype)
    assert stand_in.strides == (0, 0)
    assert not stand_in.any()


def test_texts_count_by_their_letters():
    few, many = np.asarray([b"a" * 10, b"b"], object), np.asarray([b"a" * KEPT_BYTES, b"b"], object)
    assert without_value(few) is few
    assert without_value(many).tolist() == [b"", b""]


def test_small_inputs_stay_and_small_variables_do_not():
    value = np.ones([3], np.float32)
    assert without_value(value) is value
    assert without_value(value, keep_bytes=0).tolist() == [0.0] * 3


def test_numbers_are_drawn_for_stand_ins_alone():
    zeros = without_value(np.ones([2, LARGE], np.float32))
    drawn = drawn_value(zeros, tf.float32)
    assert drawn.dtype == np.float32 and len(np.unique(drawn)) > LARGE
    np.testing.assert_array_equal(drawn, drawn_value(zeros, tf.float32))
    own = np.zeros([3], np.float32)
    assert drawn_value(own, tf.float32) is own
    indices = without_value(np.ones([LARGE * 2], np.int32))
    assert drawn_value(indices, tf.int32) is indices


def test_an_item_without_values_is_the_same_program():
    variable, table = tf.Variable(tf.ones([3])), tf.constant(np.arange(LARGE, dtype=np.float32))
    step = tf.function(lambda x: tf.reduce_sum(x) * variable + tf.reduce_sum(table))
    item = Item.from_function(step, tf.ones([LARGE]))
    light = item.without_values()
    assert light.fingerprint == item.fingerprint
    assert light.outputs == item.outputs
    assert light.index.graph_def is light.graph_def
    assert item.graph_def.ByteSize() > KEPT_BYTES > light.graph_def.ByteSize()
    constants = [node.attr["value"].tensor for node in light.graph_def.node if node.op == "Const"]
    (constant,) = (one for one in constants if [dim.size for dim in one.tensor_shape.dim] == [LARGE])
    assert tf.make_ndarray(constant).tolist() == [0.0] * LARGE
    (feed,), (kept,) = light.feeds, light.variables
    assert (feed.value.strides, kept.value.strides) == ((0,), (0,))
    (again,) = light.with_variables({kept.node: np.full([3], 2.0, np.float32)}).variables
    assert again.value.tolist() == [2.0] * 3


class _Allocated(ctypes.Structure):
    """What glibc's ``mallinfo2`` returns."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def _allocated_bytes() -> int:
    gc.collect()
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("no C library that says what is allocated")
    mallinfo.restype = _Allocated
    now = mallinfo()
    return now.hblkhd + now.uordblks


def test_large_constants_leave_no_memory_behind():
    """A protocol buffer keeps the memory of what was cleared, which no array or message shows."""
    megabyte = 1 << 20
    with tf.Graph().as_default() as graph:
        tf.constant(np.arange(8 * megabyte // 4, dtype=np.float32))
    graph_def = graph.as_graph_def()
    del graph
    before = _allocated_bytes()
    light = [without_large_constants(graph_def) for _ in range(4)]
    assert sum(one.ByteSize() for one in light) < megabyte
    assert _allocated_bytes() - before < megabyte
