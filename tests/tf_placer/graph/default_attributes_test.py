"""Attributes with default values are there for whoever reads them."""

import tensorflow as tf

from tf_placer.graph.clean import default_attributes
from tf_placer.graph.item import Item
from tf_placer.graph.program import Program


def test_defaults_are_written_out_and_values_kept():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    node = graph_def.node.add(name="product", op="MatMul", input=["a", "a"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    node.attr["transpose_b"].b = True
    before = graph_def.SerializeToString(deterministic=True)
    program = default_attributes(Program(graph_def, (), ("product:0",), (), ()))
    attributes = program.graph_def.node[1].attr
    assert attributes["transpose_b"].b and not attributes["transpose_a"].b
    assert {"T", "transpose_a", "transpose_b"} <= set(attributes)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_an_item_has_them_and_reading_its_shapes_changes_nothing():
    item = Item.from_function(
        tf.function(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID")), tf.zeros([1, 4, 4, 3])
    )
    (pool,) = [node for node in item.graph_def.node if node.op == "MaxPool"]
    assert pool.attr["data_format"].s == b"NHWC" and "explicit_paddings" in pool.attr
