"""The table of op facts names what TensorFlow has, and means what it says."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry

from colocation import op_facts
from colocation.constraints import input_types, is_ref, output_types, takes_special_inputs
from colocation.op_facts import FACTS, having, values
from tests.colocation.random_graphs import random_graph

# Registered in C++ alone.
_OF_THE_RUNTIME = {"_Arg", "_Retval", "_SwitchN"}


def test_every_op_type_exists_in_tensorflow():
    op_types = {op_type for fact in FACTS for op_type in values(fact)}
    unknown = {op_type for op_type in op_types if op_def_registry.get(op_type) is None}
    assert unknown <= _OF_THE_RUNTIME


def test_every_fact_is_said_of_some_op_type():
    assert all(having(fact) for fact in FACTS)


def test_an_op_type_stands_once():
    with pytest.raises(ValueError, match="'Add' has two rows"):
        op_facts._parsed("loop | Add\nbranch | Sub Add")


def test_lines_of_op_types_go_on_with_the_row_above():
    parsed = op_facts._parsed("# loops\nloop view=1 | A B\n  C\n\nbranch | D")
    assert parsed["loop"] == {"A": "", "B": "", "C": ""}
    assert parsed["view"] == {"A": "1", "B": "1", "C": "1"}
    assert parsed["branch"] == {"D": ""}


def test_an_unknown_fact_is_an_error():
    with pytest.raises(KeyError):
        op_facts._parsed("lop | A")
    with pytest.raises(KeyError):
        having("lop")


def test_numbers_of_inputs_are_inputs_that_the_op_has():
    for fact in ("view", "puts"):
        for op_type, position in values(fact).items():
            definition = op_def_registry.get(op_type)
            if definition is not None:
                assert int(position) < len(definition.input_arg), op_type


def node(op: str, **types: int) -> tf.compat.v1.NodeDef:
    result = tf.compat.v1.NodeDef(name="x", op=op)
    for name, dtype in types.items():
        result.attr[name].type = dtype
    return result


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_the_graph(seed):
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
