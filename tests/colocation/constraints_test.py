"""Each rule on a graph of a few ops."""

import subprocess
from collections.abc import Callable

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry

from colocation import constraints, op_facts
from colocation.op_facts import FACTS, GraphIndex, having, index_graph, values
from tests.colocation.random_graphs import control_flow, random_graph
from tests.own_process import python

tf1 = tf.compat.v1
raw = tf.raw_ops
_SPEC = {"output_types": [tf.float32], "output_shapes": [()]}


def indexed(build: Callable[[], None]) -> GraphIndex:
    with tf.Graph().as_default() as graph:
        build()
    return index_graph(graph.as_graph_def())


def pairs(rule: Callable, index: GraphIndex) -> set[tuple[str, str]]:
    return {(index.names[m.op_a], index.names[m.op_b]) for m in rule(index)}


def variable(name: str) -> tf.Tensor:
    return raw.VarHandleOp(dtype=tf.float32, shape=(), name=name)


def an_update_by_way_of_an_alias() -> None:
    v = variable("v")
    value = raw.ReadVariableOp(resource=v, dtype=tf.float32, name="read")
    raw.AssignAddVariableOp(resource=raw.Identity(input=v, name="alias"), value=value, name="update")


def an_update_with_a_slot() -> None:
    one = tf.constant(1.0)
    raw.ResourceApplyMomentum(
        var=variable("v"), accum=variable("slot"), lr=one, grad=one, momentum=one, name="update"
    )


def a_call_and_a_loop() -> None:
    """The call returns a float."""
    v, handle = variable("v"), tf.TensorSpec((), tf.resource)
    read = tf.function(lambda h: raw.ReadVariableOp(resource=h, dtype=tf.float32))
    raw.PartitionedCall(args=[v], Tout=[tf.float32], f=read.get_concrete_function(handle), name="call")
    keep = tf.function(lambda h: raw.Identity(input=h)).get_concrete_function(handle)
    true = tf.function(lambda h: tf.constant(False)).get_concrete_function(handle)
    raw.While(input=[v], cond=true, body=keep, name="loop")


def an_identity_of_several() -> None:
    out, _ = raw.IdentityN(input=[variable("v"), tf.constant(1.0, name="c")], name="pass")
    raw.ReadVariableOp(resource=out, dtype=tf.float32, name="read")
    raw.IdentityN(input=[tf.constant(1.0, name="d")], name="plain")


def a_reference_variable() -> None:
    v = raw.VariableV2(shape=(), dtype=tf.float32, name="v")
    raw.Assign(ref=v, value=tf.constant(1.0), name="assign")
    raw.Identity(input=v, name="read")  # expects a value: may be elsewhere


def readers_of_a_buffer() -> None:
    v = raw.VariableV2(shape=(), dtype=tf.float32, name="v")
    read = raw.Identity(input=v, name="read")
    raw.Neg(x=read, name="early")
    written = raw.AssignAdd(ref=v, value=raw.Exp(x=read, name="change"), name="write")
    with tf.control_dependencies([written.op]):
        raw.Abs(x=read, name="late")
        again = raw.Identity(input=v, name="again")
    raw.Neg(x=again, name="of_again")  # the value is taken after the write, wherever it is then
    raw.Log(x=written, name="of_written")


def classes() -> None:
    a, b = tf.constant(1.0, name="a"), tf.constant(1.0, name="b")
    with tf1.colocate_with(a.op), tf1.colocate_with(b.op):
        tf.negative(a, name="c")


def test_class_lists_meet_in_a_name_that_is_not_there():
    graph_def = tf1.GraphDef()
    for name, classes in {"x": [b"loc:@gone"], "y": [b"other", b"loc:@gone"], "z": [b"loc:@z"]}.items():
        graph_def.node.add(name=name, op="NoOp").attr["_class"].list.s.extend(classes)
    assert pairs(constraints.class_lists, index_graph(graph_def)) == {("x", "y")}


def a_range() -> tf.Tensor:
    return raw.RangeDataset(
        start=tf.constant(0, tf.int64), stop=tf.constant(5, tf.int64), step=tf.constant(1, tf.int64),
        output_types=[tf.int64], output_shapes=[()], name="range",
    )  # fmt: skip


def a_list() -> None:
    """A variant, but no dataset: it can be sent."""
    empty = raw.EmptyTensorList(
        element_shape=tf.constant(-1), max_num_elements=tf.constant(-1), element_dtype=tf.float32
    )
    raw.TensorListPushBack(input_handle=empty, tensor=tf.constant(1.0))


def datasets() -> None:
    source = a_range()
    raw.BatchDatasetV2(
        input_dataset=source, batch_size=tf.constant(2, tf.int64), drop_remainder=tf.constant(True),
        output_types=[tf.int64], output_shapes=[(2,)], name="batch",
    )  # fmt: skip
    iterator = raw.IteratorV2(shared_name="", container="", **_SPEC, name="iterator")
    raw.MakeIterator(dataset=source, iterator=iterator, name="make")  # takes the variant, is no dataset
    a_list()


def readers_of_variants() -> None:
    raw.DatasetCardinality(input_dataset=a_range(), name="count")
    raw.DatasetCardinality(input_dataset=tf1.placeholder(tf.variant, [], name="given"), name="count_given")
    optional = raw.OptionalFromValue(components=[tf.constant(1.0)], name="optional")
    raw.OptionalHasValue(optional=optional, name="has")
    a_list()


def test_dataset_names():
    assert constraints.is_dataset_op("MapDataset")
    assert constraints.is_dataset_op("BatchDatasetV2")
    assert not constraints.is_dataset_op("ReduceDataset")  # its output is not a variant
    assert not constraints.is_dataset_op("EmptyTensorList")
    assert not constraints.is_dataset_op("no_such_Dataset")


def a_switch() -> None:
    data, pred = tf.constant(1.0, name="data"), tf.constant(True, name="pred")
    on_false, on_true = raw.Switch(data=data, pred=pred, name="switch")
    raw.Merge(inputs=[on_false, on_true], name="merge")


@pytest.mark.parametrize(
    ("rule", "build", "expected"),
    [
        # The read's value is no handle: "read" and "update" are tied through "v" alone.
        (constraints.resource_edges, an_update_by_way_of_an_alias, "v-read v-alias alias-update"),
        (constraints.resource_edges, an_update_with_a_slot, "v-update slot-update"),
        (constraints.resource_edges, a_call_and_a_loop, "v-loop"),
        (constraints.forwarded_resources, a_call_and_a_loop, ""),
        (constraints.forwarded_resources, an_identity_of_several, "v-pass"),
        (constraints.resource_edges, an_identity_of_several, "pass-read"),
        (constraints.ref_edges, a_reference_variable, "v-assign"),
        (constraints.reference_readers, readers_of_a_buffer, "v-read v-again write-of_written read-late"),
        (constraints.class_lists, classes, "a-c b-c"),
        (constraints.dataset_variant_edges, datasets, "range-batch"),
        (constraints.variant_readers, readers_of_variants, "range-count given-count_given optional-has"),
        (constraints.switch_inputs, a_switch, "data-switch"),
    ],
)
def test_a_rule_ties(rule, build, expected):
    assert pairs(rule, indexed(build)) == {tuple(pair.split("-")) for pair in expected.split()}


def test_loop_frames_tie_a_loop_and_nothing_around_it():
    def build() -> None:
        out = tf1.while_loop(lambda i: i < 9, lambda i: i + 1, [tf.constant(0, name="start")], name="loop")
        tf.negative(out, name="after")

    with control_flow(functional=False):
        index = indexed(build)
    tied = pairs(constraints.loop_frames, index)
    inside = {name for name in index.names if name.startswith("loop/")}
    # A star over the ops of the frame: one merge less than ops.
    assert {name for pair in tied for name in pair} == inside
    assert len(tied) == len(inside) - 1


def test_no_rule_speaks_on_a_plain_or_empty_graph():
    plain = indexed(lambda: tf.negative(tf.constant(1.0)))
    for rule in constraints.RULES:
        assert not list(rule(plain))
        assert not list(rule(index_graph(tf1.GraphDef())))


def test_every_merge_names_its_rule_and_a_reason():
    index = indexed(lambda: raw.ReadVariableOp(resource=variable("v"), dtype=tf.float32, name="read"))
    (merge,) = constraints.resource_edges(index)
    assert merge.rule == "resource_edges"
    assert merge.reason == "read takes a resource handle from v"


def test_too_many_inputs_are_a_damaged_graph():
    graph_def = tf1.GraphDef()
    graph_def.node.add(name="v", op="VarHandleOp")
    graph_def.node.add(name="read", op="ReadVariableOp", input=["v", "v"])
    with pytest.raises(ValueError, match=r"'read' .ReadVariableOp. has more than the 1 inputs"):
        list(constraints.resource_edges(index_graph(graph_def)))


@pytest.mark.medium
def test_exempt_ops_are_those_of_the_installed_tensorflow(tmp_path):
    """Reads the registry itself, through a few lines of C++, in a process of its own."""
    source = tmp_path / "dump.cc"
    source.write_text(
        "#include <cstdio>\n"
        '#include "tensorflow/core/common_runtime/input_colocation_exemption_registry.h"\n'
        'extern "C" void dump() {\n'
        "  for (const auto& op : tensorflow::InputColocationExemptionRegistry::Global()->Get())\n"
        '    std::printf("exempt %s\\n", op.c_str());\n'
        "  std::fflush(stdout);\n"
        "}\n"
    )
    library = tmp_path / "dump.so"
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-w", "-DNDEBUG", str(source), "-o", str(library), *flags], check=True
    )
    program = f"import ctypes, tensorflow; ctypes.CDLL({str(library)!r}).dump()"
    output = python("-c", program).stdout
    registered = {line.split()[1] for line in output.splitlines() if line.startswith("exempt ")}
    assert registered == constraints.EXEMPT_OP_TYPES


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
        op_facts._parsed("* loop: again\n* branch: one\nloop | Add\nbranch | Sub Add")


def test_lines_of_op_types_go_on_with_the_row_above():
    legend = "* loop: again\n* view: of an input\n* branch: one\n"
    parsed = op_facts._parsed(f"{legend}# loops\nloop view=1 | A B\n  C\n\nbranch | D")
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
        assert [t % 100 for t in constraints.input_types(op.node_def)] == expected, f"seed {seed}: {op.name}"
        assert constraints.output_types(op.node_def) == [t.dtype.as_datatype_enum for t in op.outputs], (
            f"seed {seed}"
        )
        if any(
            t in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT) or constraints.is_ref(t)
            for t in constraints.input_types(op.node_def)
        ):
            assert constraints.takes_special_inputs(op.type), f"seed {seed}: {op.name}"


def test_ref_is_what_the_consumer_expects():
    assert constraints.input_types(node("Assign", T=types_pb2.DT_FLOAT)) == [
        types_pb2.DT_FLOAT_REF,
        types_pb2.DT_FLOAT,
    ]
    assert constraints.input_types(node("Identity", T=types_pb2.DT_FLOAT)) == [types_pb2.DT_FLOAT]


def test_plain_ops_are_skipped():
    assert not constraints.takes_special_inputs("Conv2D")
    assert constraints.takes_special_inputs("Identity")
    assert not constraints.takes_special_inputs("no_such_op")


def test_stripped_default_attribute():
    # SerializeManySparse's out_type may be absent: its default is DT_STRING.
    bare = node("SerializeManySparse", T=types_pb2.DT_FLOAT)
    assert constraints.output_types(bare) == [types_pb2.DT_STRING]
    assert "out_type" not in bare.attr  # reading must not insert it


def test_damaged_nodes_are_named():
    with pytest.raises(ValueError, match=r"'x' .Identity. lacks the attribute 'T'"):
        constraints.input_types(node("Identity"))
    with pytest.raises(ValueError, match="no_such_op"):
        constraints.input_types(node("no_such_op"))
