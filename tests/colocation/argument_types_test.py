"""What dtypes a NodeDef's inputs and outputs have, against the graph that TensorFlow built."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from colocation.constraints import input_types, is_ref, output_types, takes_special_inputs
from tests.colocation.random_graphs import random_graph


def node(op: str, **types: int) -> tf.compat.v1.NodeDef:
    result = tf.compat.v1.NodeDef(name="x", op=op)
    for name, dtype in types.items():
        result.attr[name].type = dtype
    return result


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_the_graph(seed: int):
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(random_graph(seed).graph_def, name="")
    for op in graph.get_operations():
        # tf.Operation gives the dtypes of the tensors; ref-ness of inputs is the consumer's.
        expected = [t.dtype.base_dtype.as_datatype_enum for t in op.inputs]
        assert [t % 100 for t in input_types(op.node_def)] == expected, f"seed {seed}: {op.name}"
        assert output_types(op.node_def) == [t.dtype.as_datatype_enum for t in op.outputs], f"seed {seed}"
        if any(
            t in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT) or is_ref(t) for t in input_types(op.node_def)
        ):
            assert takes_special_inputs(op.type), f"seed {seed}: {op.name}"


def test_ref_is_what_the_consumer_expects():
    assert input_types(node("Assign", T=types_pb2.DT_FLOAT)) == [types_pb2.DT_FLOAT_REF, types_pb2.DT_FLOAT]
    assert input_types(node("Identity", T=types_pb2.DT_FLOAT)) == [types_pb2.DT_FLOAT]


def test_plain_ops_are_skipped():
    assert not takes_special_inputs("Conv2D")
    assert takes_special_inputs("Identity")
    assert not takes_special_inputs("no_such_op")


def test_stripped_default_attribute():
    # SerializeManySparse's out_type may be absent: its default is DT_STRING.
    bare = node("SerializeManySparse", T=types_pb2.DT_FLOAT)
    assert output_types(bare) == [types_pb2.DT_STRING]
    assert "out_type" not in bare.attr  # reading must not insert it


def test_damaged_nodes_are_named():
    with pytest.raises(ValueError, match=r"'x' .Identity. lacks the attribute 'T'"):
        input_types(node("Identity"))
    with pytest.raises(ValueError, match="no_such_op"):
        input_types(node("no_such_op"))
