"""Bytes by dtype, shapes by inference, a graph that is wrong."""

import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.graph.program import tensor_bytes
from tf_placer.graph.sizes import OutputSpec, output_specs


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((2, 3), tf.float32, 24),
        ((), tf.int64, 8),
        ((0, 5), tf.float32, 0),
        ((3,), tf.bool, 3),
        ((3,), tf.bfloat16, 6),
        ((3,), tf.string, 48),  # 16 bytes an element
        ((), tf.resource, 0),
        ((4,), tf.variant, 0),
    ],
)
def test_bytes(shape, dtype, expected):
    assert tensor_bytes(shape, dtype) == expected


def test_shapes_that_only_the_value_tells():
    with tf.Graph().as_default() as graph:
        tf.raw_ops.BroadcastGradientArgs(s0=[4, 1], s1=[4, 3], name="args")
    specs = dict(
        zip([n.name for n in graph.as_graph_def().node], output_specs(graph.as_graph_def()), strict=True)
    )
    # The first operand was broadcast along axis 1, the second along none.
    assert [spec.shape for spec in specs["args"]] == [(1,), (0,)]


def test_only_what_is_not_known_is_inferred():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [6, 4], name="x")
        halves = tf.split(x, 2, name="halves")
        tf.reshape(halves[1], tf.constant([2, 6], name="shape"), name="flat")
    graph_def = graph.as_graph_def()
    specs = dict(zip([node.name for node in graph_def.node], output_specs(graph_def), strict=True))
    known = {name: specs[name] for name in ("x", "halves", "shape")}
    assert output_specs(graph_def, known) == tuple(specs.values())
    known["halves"] = (OutputSpec.of((3, 4), tf.float32), OutputSpec.of((3, 5), tf.float32))
    with pytest.raises(InputError, match="flat"):
        output_specs(graph_def, known)
    next(node for node in graph_def.node if node.name == "halves").op = "NoSuchOp"  # which nobody looks at
    known["halves"] = specs["halves"]
    assert output_specs(graph_def, known) == tuple(specs.values())


def test_empty_graph():
    assert output_specs(tf.compat.v1.GraphDef()) == ()


def test_wrong_graph_is_one_line():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="x", op="NoSuchOp")
    with pytest.raises(InputError, match=r"TensorFlow does not accept the graph.*NoSuchOp") as error:
        output_specs(graph_def)
    assert "\n" not in str(error.value)


def test_what_batch_normalization_keeps_for_its_gradient_counts_nothing():
    with tf.Graph().as_default() as graph:
        x, scale = tf.zeros([2, 4, 4, 3]), tf.ones([3])
        tf.raw_ops.FusedBatchNormV3(
            x=x, scale=scale, offset=scale, mean=scale, variance=scale, is_training=False, name="normalized"
        )
    specs = dict(
        zip([n.name for n in graph.as_graph_def().node], output_specs(graph.as_graph_def()), strict=True)
    )
    assert [spec.num_bytes for spec in specs["normalized"]] == [4 * 96, 12, 12, 12, 12, 0]


def test_a_tensor_that_no_device_holds():
    with tf.Graph().as_default() as graph:
        tf.fill([2**20, 2**20, 2**20], 0.0, name="filled")
    with pytest.raises(InputError, match=r"'filled' .* is larger than any device"):
        output_specs(graph.as_graph_def())
