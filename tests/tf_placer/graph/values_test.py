"""Stand-ins for values have their shapes and types, and no memory."""

import ctypes
import gc

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.graph.item import Item
from tf_placer.graph.program import KEPT_BYTES, drawn_value, without_large_constants, without_value

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

    @tf.function
    def step(x):
        return tf.reduce_sum(x) * variable + tf.reduce_sum(table)

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

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"]
    ] + [(name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")]


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
