"""Ops that read tensors of unknown rank: each has a size and a cost, whatever rank its input is taken for."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, op_def_pb2

from colocation.tensorflow_internals import registered_op
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs
from tf_placer.costs.formulas import FORMULA_OF_TYPE, OpView, work_of
from tf_placer.graph.item import Item
from tf_placer.graph.program import Feed, Program
from tf_placer.graph.size_rules import AS_INPUT, AS_READ, RAGGED, Unsized, sized
from tf_placer.graph.sizes import OutputSpec

SHAPES = ((), (3,), (6, 3), (2, 6, 6, 3))
# Their meaning hangs together with other nodes, and one alone is no graph.
CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Placeholder", "Switch"})
# TensorFlow 2.21 itself ends the process when it infers shapes of one that reads scalars.
CRASHES = "BoostedTrees"
# Attributes that some op checks, and that most do not have.
VALUES = {"equation": b"ab,bc->ac", "Targmax": tf.int64.as_datatype_enum}


def attribute(of: op_def_pb2.OpDef.AttrDef, numbers: int) -> attr_value_pb2.AttrValue | None:
    """Some value that an op may accept, lists with so many numbers; None where that takes a function."""
    value = attr_value_pb2.AttrValue()
    if of.HasField("default_value"):
        value.CopyFrom(of.default_value)
        return value
    if of.type == "type":
        allowed = list(of.allowed_values.list.type) or [tf.float32.as_datatype_enum]
        wanted = (tf.float32.as_datatype_enum, tf.int32.as_datatype_enum)
        value.type = VALUES.get(of.name) or next((one for one in wanted if one in allowed), allowed[0])
    elif of.type == "int":
        value.i = max(2, of.minimum)
    elif of.type == "list(int)":
        value.list.i.extend([1] * numbers)
    elif of.type == "list(type)":
        value.list.type.extend([tf.float32.as_datatype_enum] * 2)
    elif of.type == "list(shape)":
        value.list.shape.extend([tf.TensorShape(None).as_proto()] * 2)
    elif of.type == "string":
        allowed = list(of.allowed_values.list.s)
        value.s = VALUES.get(of.name, allowed[0] if allowed else b"")
    elif of.type == "bool":
        value.b = False
    elif of.type == "float":
        value.f = 1.0
    elif of.type == "shape":
        value.shape.CopyFrom(tf.TensorShape(None).as_proto())
    else:
        return None
    return value


def node_of(op: op_def_pb2.OpDef, numbers: int) -> tuple[node_def_pb2.NodeDef, list[int]] | None:
    """An op of a type, and the types of what it reads."""
    node = node_def_pb2.NodeDef(name=f"of_{op.name}", op=op.name)
    for of in op.attr:
        value = attribute(of, numbers)
        if value is None:
            return None
        node.attr[of.name].CopyFrom(value)
    types: list[int] = []
    for argument in op.input_arg:
        if argument.is_ref:
            return None
        if argument.type_list_attr:
            types += node.attr[argument.type_list_attr].list.type
            continue
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        types += [node.attr[argument.type_attr].type if argument.type_attr else argument.type] * count
    return node, types


def is_accepted(node: node_def_pb2.NodeDef, types: list[int]) -> bool:
    """Whether TensorFlow takes the op with inputs of unknown rank."""
    with tf.Graph().as_default():
        try:
            tf.graph_util.import_graph_def(program([(node, types)], ()).graph_def, name="")
        except (ValueError, tf.errors.OpError):
            return False
    return True


@pytest.fixture(scope="module")
def nodes() -> list[tuple[node_def_pb2.NodeDef, list[int]]]:
    """An op of every type that takes inputs of unknown rank, and the types of what it reads."""
    found = {}
    for name in dir(tf.raw_ops):
        op = registered_op(name)
        if op is None or name in CONTROL_FLOW or name.startswith(CRASHES):
            continue
        for numbers in (4, 5, 1):  # strides of images, of volumes, and whatever else
            made = node_of(op, numbers)
            if made is not None and made[1] and is_accepted(*made):
                found[name] = made
                break
    return list(found.values())


def program(nodes: list[tuple[node_def_pb2.NodeDef, list[int]]], shape: tuple[int, ...]) -> Program:
    """All ops at once; what each reads is of unknown rank, and will be taken to be as large as ``shape``."""
    graph_def = tf.compat.v1.GraphDef()
    feeds = []

    def fed(dtype: tf.DType, shape: tuple[int, ...]) -> str:
        name = f"fed_{dtype.name}_{len(feeds)}"
        node = graph_def.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
        kind = object if dtype == tf.string else dtype.as_numpy_dtype
        feeds.append(Feed(name, shape, dtype, np.broadcast_to(np.zeros((), kind), shape)))
        return name

    sizes = graph_def.node.add(name="sizes", op="ParseTensor", input=[fed(tf.string, ())])
    sizes.attr["out_type"].type = tf.int32.as_datatype_enum

    def source(number: int) -> str:
        dtype = tf.as_dtype(number)
        if dtype == tf.resource:
            node = graph_def.node.add(name="handle", op="VarHandleOp")
            node.attr["dtype"].type = tf.float32.as_datatype_enum
            node.attr["shape"].shape.unknown_rank = True
        elif dtype == tf.variant:
            lists = [fed(tf.int32, ()), fed(tf.int32, ())]
            node = graph_def.node.add(name="list", op="EmptyTensorList", input=lists)
            node.attr["element_dtype"].type = tf.float32.as_datatype_enum
            node.attr["shape_type"].type = tf.int32.as_datatype_enum
        else:
            node = graph_def.node.add(
                name=f"of_any_rank_{number}", op="Reshape", input=[fed(dtype, shape), "sizes"]
            )
            node.attr["T"].type = number
            node.attr["Tshape"].type = tf.int32.as_datatype_enum
        return node.name

    source_of = {number: source(number) for number in sorted({one for _, types in nodes for one in types})}
    for node, types in nodes:
        added = graph_def.node.add()
        added.CopyFrom(node)
        added.input.extend(source_of[number] for number in types)
    ops = tuple(node.name for node, _ in nodes)
    return Program(graph_def, tuple(feeds), (), ops, ())


@pytest.mark.medium
def test_most_types_are_looked_at(nodes):
    types = {node.op for node, _ in nodes}
    assert len(types) > 900
    assert len(types & set(FORMULA_OF_TYPE)) > 290
    assert {
        "MatMul", "BatchMatMulV2", "Einsum", "Conv3D", "Where", "NonMaxSuppressionV3", "SegmentSum",
    } <= types  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("shape", SHAPES)
def test_all_have_sizes_and_costs(nodes, shape):
    item = Item.from_program("all", program(nodes, shape))
    kept = set(item.index.names)
    assert len(kept & {node.name for node, _ in nodes}) > 0.9 * len(nodes)
    outputs = dict(zip(item.index.names, item.outputs, strict=True))
    sizes = {outputs[name][0] for name in kept if name.startswith("of_any_rank_")}
    # Of some types, the few readers take a scalar alone.
    assert {spec.rule for spec in sizes} <= {AS_INPUT, AS_READ}
    assert {spec.shape for spec in sizes if spec.rule == AS_INPUT} == {shape}
    assert all(spec.num_bytes >= 0 for specs in item.outputs for spec in specs)
    costs = analytic_costs(item, Cluster.preset("k40x2"))
    assert (costs.compute_ns >= 0).all() and np.isfinite(costs.work.flops).all()


def spec(*shape: int) -> OutputSpec:
    return OutputSpec(shape, tf.float32, 4 * int(np.prod(shape)))


@pytest.mark.parametrize("op_type", ["MatMul", "BatchMatMulV2"])
@pytest.mark.parametrize(
    ("left", "right", "flops"),
    [
        ((6, 3), (3, 5), 2 * 30 * 3),
        # What is summed over is told by the other matrix where one is taken for a scalar or a vector.
        ((), (3, 5), 2 * 30 * 3),
        ((7,), (3, 5), 2 * 30 * 3),
        ((6, 3), (), 2 * 30 * 3),
        ((), (), 2 * 30),
    ],
)
def test_a_product_of_a_shape_that_is_an_estimate(op_type, left, right, flops):
    node = node_def_pb2.NodeDef(op=op_type)
    assert work_of(OpView(node, (spec(*left), spec(*right)), (spec(6, 5),))).flops == flops


def test_a_tensor_that_is_parsed_before_a_product():
    weights = tf.Variable(tf.ones([4, 5]))
    item = Item.from_function(lambda text: tf.io.parse_tensor(text, tf.float32) @ weights, tf.constant(b""))
    costs = analytic_costs(item, Cluster.preset("k40x2"))
    op = next(op for op, name in enumerate(item.index.op_types) if "MatMul" in name)
    (product,) = item.outputs[op]
    assert product.shape[-1] == 5 and product.rule
    assert costs.work.flops[op] == 2 * np.prod(product.shape) * 4


def test_the_same_in_a_branch():
    weights = tf.Variable(tf.ones([4, 5]))

    def parsed(text: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            text == b"",
            lambda: tf.reduce_sum(tf.io.parse_tensor(text, tf.float32) @ weights),
            lambda: tf.reduce_sum(tf.io.parse_tensor(text, tf.float32) * weights),
        )

    costs = analytic_costs(Item.from_function(parsed, tf.constant(b"")), Cluster.preset("k40x2"))
    assert (costs.compute_ns >= 0).all() and costs.guessed


def test_a_ragged_tensor_that_does_not_say_how_it_is_cut():
    node = node_def_pb2.NodeDef(op="RaggedTensorToTensor")
    output = Unsized(
        node, tf.TensorShape([None, None]), ((2,), (6,), (), (3,)), (None,) * 4, lambda k: None, 32
    )
    assert sized(output) == ((3, 2), RAGGED)
