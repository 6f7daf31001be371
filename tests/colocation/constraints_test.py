"""Each rule on a graph of a few ops."""

import subprocess
from collections.abc import Callable

import pytest
import tensorflow as tf

from colocation.constraints import (
    EXEMPT_OP_TYPES,
    RULES,
    class_lists,
    dataset_variant_edges,
    forwarded_resources,
    is_dataset_op,
    loop_frames,
    ref_edges,
    reference_readers,
    resource_edges,
    switch_inputs,
    variant_readers,
)
from colocation.op_facts import GraphIndex, index_graph
from tests.colocation.random_graphs import control_flow
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
    assert pairs(class_lists, index_graph(graph_def)) == {("x", "y")}


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
    assert is_dataset_op("MapDataset")
    assert is_dataset_op("BatchDatasetV2")
    assert not is_dataset_op("ReduceDataset")  # its output is not a variant
    assert not is_dataset_op("EmptyTensorList")
    assert not is_dataset_op("no_such_Dataset")


def a_switch() -> None:
    data, pred = tf.constant(1.0, name="data"), tf.constant(True, name="pred")
    on_false, on_true = raw.Switch(data=data, pred=pred, name="switch")
    raw.Merge(inputs=[on_false, on_true], name="merge")


@pytest.mark.parametrize(
    ("rule", "build", "expected"),
    [
        # The read's value is no handle: "read" and "update" are tied through "v" alone.
        (resource_edges, an_update_by_way_of_an_alias, "v-read v-alias alias-update"),
        (resource_edges, an_update_with_a_slot, "v-update slot-update"),
        (resource_edges, a_call_and_a_loop, "v-loop"),
        (forwarded_resources, a_call_and_a_loop, ""),
        (forwarded_resources, an_identity_of_several, "v-pass"),
        (resource_edges, an_identity_of_several, "pass-read"),
        (ref_edges, a_reference_variable, "v-assign"),
        (reference_readers, readers_of_a_buffer, "v-read v-again write-of_written read-late"),
        (class_lists, classes, "a-c b-c"),
        (dataset_variant_edges, datasets, "range-batch"),
        (variant_readers, readers_of_variants, "range-count given-count_given optional-has"),
        (switch_inputs, a_switch, "data-switch"),
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
    tied = pairs(loop_frames, index)
    inside = {name for name in index.names if name.startswith("loop/")}
    # A star over the ops of the frame: one merge less than ops.
    assert {name for pair in tied for name in pair} == inside
    assert len(tied) == len(inside) - 1


def test_no_rule_speaks_on_a_plain_or_empty_graph():
    plain = indexed(lambda: tf.negative(tf.constant(1.0)))
    for rule in RULES:
        assert not list(rule(plain))
        assert not list(rule(index_graph(tf1.GraphDef())))


def test_every_merge_names_its_rule_and_a_reason():
    index = indexed(lambda: raw.ReadVariableOp(resource=variable("v"), dtype=tf.float32, name="read"))
    (merge,) = resource_edges(index)
    assert merge.rule == "resource_edges"
    assert merge.reason == "read takes a resource handle from v"


def test_too_many_inputs_are_a_damaged_graph():
    graph_def = tf1.GraphDef()
    graph_def.node.add(name="v", op="VarHandleOp")
    graph_def.node.add(name="read", op="ReadVariableOp", input=["v", "v"])
    with pytest.raises(ValueError, match=r"'read' .ReadVariableOp. has more than the 1 inputs"):
        list(resource_edges(index_graph(graph_def)))


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
    assert registered == EXEMPT_OP_TYPES
