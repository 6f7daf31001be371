"""Each rule on a graph of a few ops."""

from __future__ import annotations

import pathlib
import subprocess
import sys
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


def test_resource_edges():
    def build() -> None:
        v = variable("v")
        value = raw.ReadVariableOp(resource=v, dtype=tf.float32, name="read")
        raw.AssignAddVariableOp(resource=raw.Identity(input=v, name="alias"), value=value, name="update")

    # The read's value is no handle: "read" and "update" are tied through "v" alone.
    assert pairs(resource_edges, indexed(build)) == {("v", "read"), ("v", "alias"), ("alias", "update")}


def test_an_update_ties_its_variable_and_slots():
    def build() -> None:
        one = tf.constant(1.0)
        raw.ResourceApplyMomentum(
            var=variable("v"), accum=variable("slot"), lr=one, grad=one, momentum=one, name="update"
        )

    assert pairs(resource_edges, indexed(build)) == {("v", "update"), ("slot", "update")}


def test_calls_are_exempt_and_loops_are_not():
    def build() -> None:
        v = variable("v")
        read = tf.function(lambda h: raw.ReadVariableOp(resource=h, dtype=tf.float32))
        body = read.get_concrete_function(tf.TensorSpec((), tf.resource))
        raw.PartitionedCall(args=[v], Tout=[tf.float32], f=body, name="call")
        keep = tf.function(lambda h: raw.Identity(input=h)).get_concrete_function(
            tf.TensorSpec((), tf.resource)
        )
        true = tf.function(lambda h: tf.constant(False)).get_concrete_function(tf.TensorSpec((), tf.resource))
        raw.While(input=[v], cond=true, body=keep, name="loop")

    index = indexed(build)
    assert pairs(resource_edges, index) == {("v", "loop")}
    assert pairs(forwarded_resources, index) == set()  # the call returns a float


def test_forwarded_resources():
    def build() -> None:
        out, _ = raw.IdentityN(input=[variable("v"), tf.constant(1.0, name="c")], name="pass")
        raw.ReadVariableOp(resource=out, dtype=tf.float32, name="read")
        raw.IdentityN(input=[tf.constant(1.0, name="d")], name="plain")

    index = indexed(build)
    assert pairs(forwarded_resources, index) == {("v", "pass")}
    assert pairs(resource_edges, index) == {("pass", "read")}


def test_ref_edges():
    def build() -> None:
        v = raw.VariableV2(shape=(), dtype=tf.float32, name="v")
        raw.Assign(ref=v, value=tf.constant(1.0), name="assign")
        raw.Identity(input=v, name="read")  # expects a value: may be elsewhere

    assert pairs(ref_edges, indexed(build)) == {("v", "assign")}


def test_reference_readers_see_what_the_buffer_holds_when_they_run():
    def build() -> None:
        v = raw.VariableV2(shape=(), dtype=tf.float32, name="v")
        read = raw.Identity(input=v, name="read")
        raw.Neg(x=read, name="early")
        written = raw.AssignAdd(ref=v, value=raw.Exp(x=read, name="change"), name="write")
        with tf.control_dependencies([written.op]):
            raw.Abs(x=read, name="late")
            again = raw.Identity(input=v, name="again")
        raw.Neg(x=again, name="of_again")  # the value is taken after the write, wherever it is then
        raw.Log(x=written, name="of_written")

    assert pairs(reference_readers, indexed(build)) == {
        ("v", "read"),
        ("v", "again"),
        ("write", "of_written"),
        ("read", "late"),
    }


def test_class_lists():
    def build() -> None:
        a, b = tf.constant(1.0, name="a"), tf.constant(1.0, name="b")
        with tf1.colocate_with(a.op), tf1.colocate_with(b.op):
            tf.negative(a, name="c")

    assert pairs(class_lists, indexed(build)) == {("a", "c"), ("b", "c")}


def test_class_lists_meet_in_a_name_that_is_not_there():
    graph_def = tf1.GraphDef()
    for name, classes in {"x": [b"loc:@gone"], "y": [b"other", b"loc:@gone"], "z": [b"loc:@z"]}.items():
        graph_def.node.add(name=name, op="NoOp").attr["_class"].list.s.extend(classes)
    assert pairs(class_lists, index_graph(graph_def)) == {("x", "y")}


def test_dataset_variant_edges():
    def build() -> None:
        source = raw.RangeDataset(
            start=tf.constant(0, tf.int64), stop=tf.constant(5, tf.int64), step=tf.constant(1, tf.int64),
            output_types=[tf.int64], output_shapes=[()], name="range",
        )  # fmt: skip
        raw.BatchDatasetV2(
            input_dataset=source, batch_size=tf.constant(2, tf.int64), drop_remainder=tf.constant(True),
            output_types=[tf.int64], output_shapes=[(2,)], name="batch",
        )  # fmt: skip
        iterator = raw.IteratorV2(shared_name="", container="", **_SPEC, name="iterator")
        raw.MakeIterator(dataset=source, iterator=iterator, name="make")  # takes the variant, is no dataset
        empty = raw.EmptyTensorList(
            element_shape=tf.constant(-1), max_num_elements=tf.constant(-1), element_dtype=tf.float32
        )
        raw.TensorListPushBack(input_handle=empty, tensor=tf.constant(1.0))  # a variant, but no dataset

    assert pairs(dataset_variant_edges, indexed(build)) == {("range", "batch")}


def test_variant_readers():
    def build() -> None:
        given = tf1.placeholder(tf.variant, [], name="given")
        source = raw.RangeDataset(
            start=tf.constant(0, tf.int64), stop=tf.constant(5, tf.int64), step=tf.constant(1, tf.int64),
            output_types=[tf.int64], output_shapes=[()], name="range",
        )  # fmt: skip
        raw.DatasetCardinality(input_dataset=source, name="count")
        raw.DatasetCardinality(input_dataset=given, name="count_given")
        optional = raw.OptionalFromValue(components=[tf.constant(1.0)], name="optional")
        raw.OptionalHasValue(optional=optional, name="has")
        empty = raw.EmptyTensorList(
            element_shape=tf.constant(-1), max_num_elements=tf.constant(-1), element_dtype=tf.float32
        )
        raw.TensorListPushBack(input_handle=empty, tensor=tf.constant(1.0))  # a list can be sent

    expected = {("range", "count"), ("given", "count_given"), ("optional", "has")}
    assert pairs(variant_readers, indexed(build)) == expected


def test_dataset_names():
    assert is_dataset_op("MapDataset")
    assert is_dataset_op("BatchDatasetV2")
    assert not is_dataset_op("ReduceDataset")  # its output is not a variant
    assert not is_dataset_op("EmptyTensorList")
    assert not is_dataset_op("no_such_Dataset")


def test_switch_inputs():
    def build() -> None:
        data, pred = tf.constant(1.0, name="data"), tf.constant(True, name="pred")
        on_false, on_true = raw.Switch(data=data, pred=pred, name="switch")
        raw.Merge(inputs=[on_false, on_true], name="merge")

    assert pairs(switch_inputs, indexed(build)) == {("data", "switch")}


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
def test_exempt_ops_are_those_of_the_installed_tensorflow(tmp_path: pathlib.Path):
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
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    registered = {line.split()[1] for line in output.splitlines() if line.startswith("exempt ")}
    assert registered == EXEMPT_OP_TYPES
