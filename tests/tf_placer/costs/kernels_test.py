"""Kernel look-up: device types, type constraints, host memory."""

import tensorflow as tf

from tf_placer.costs.analytic import find_kernel


def _node(make) -> tf.compat.v1.NodeDef:
    with tf.Graph().as_default():
        return make().op.node_def


def _x(dtype):
    return tf.compat.v1.placeholder(dtype, [2])


def test_float_arithmetic_runs_on_the_gpu_itself():
    node = _node(lambda: tf.raw_ops.AddV2(x=_x(tf.float32), y=_x(tf.float32)))
    assert find_kernel(node, "GPU") is find_kernel(node, "CPU") is False


def test_int32_arithmetic_of_a_gpu_is_cpu_code():
    node = _node(lambda: tf.raw_ops.AddV2(x=_x(tf.int32), y=_x(tf.int32)))
    assert find_kernel(node, "GPU") is True
    assert find_kernel(node, "CPU") is False


def test_a_type_without_kernel_is_refused_although_the_op_has_others():
    node = _node(lambda: tf.raw_ops.Add(x=_x(tf.string), y=_x(tf.string)))
    assert find_kernel(node, "CPU") is not None
    assert find_kernel(node, "GPU") is None


def test_an_op_with_cpu_kernels_only_is_refused_on_the_gpu():
    node = _node(lambda: tf.raw_ops.StringLength(input=_x(tf.string)))
    assert find_kernel(node, "CPU") is not None
    assert find_kernel(node, "GPU") is None


def test_default_kernels_serve_every_device_type():
    node = _node(lambda: tf.raw_ops.Identity(input=_x(tf.float32)))
    assert find_kernel(node, "GPU") is not None


def test_placeholders_take_any_device_and_unknown_ops_none():
    assert find_kernel(_node(lambda: _x(tf.string)), "GPU") is not None
    assert find_kernel(tf.compat.v1.NodeDef(name="a", op="NobodyKnowsThis"), "CPU") is None
