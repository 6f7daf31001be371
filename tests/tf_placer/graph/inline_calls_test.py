"""Calls are inlined, in branches and loops too; sizes in loops of TensorFlow 1."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from tests.tf1_programs import PROGRAMS, Tf1Program, made, program
from tf_placer.base.arguments import InputError
from tf_placer.graph.clean import inline_calls, inline_in_functions
from tf_placer.graph.item import Item
from tf_placer.graph.program import flat_tensor, nested_tensor
from tf_placer.graph.read_function import program_of_function
from tf_placer.graph.size_rules import DERIVED, LIST, LOOP


def one_call():
    body = tf.function(lambda x: tf.sin(x))
    program = program_of_function(tf.function(lambda x: body(x)), tf.constant(1.0))
    (call,) = (node for node in program.graph_def.node if node.op == "PartitionedCall")
    return program, call, program.graph_def.library.function[0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda call, _: setattr(call.attr["f"].func, "name", "gone"), "'gone', which the graph's library lacks"),
        (lambda call, _: call.input.append(call.input[0]), "gives 2 tensors .* which takes 1"),
        (lambda _, function: setattr(function.node_def[0], "op", "NoSuchOp"), "unknown op type 'NoSuchOp'"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named(damage, message):
    program, call, function = one_call()
    damage(call, function)
    with pytest.raises(InputError, match=message):
        inline_calls(program)


def test_recursion_is_refused():
    program, call, function = one_call()
    nested = function.node_def.add()
    nested.CopyFrom(call)
    nested.name = "again"
    nested.input[0] = function.signature.input_arg[0].name
    with pytest.raises(InputError, match=r"calls itself.*tf\.while_loop"):
        inline_calls(program)


def test_calls_of_one_function_do_not_share_a_frame():
    body = tf.function(lambda x: tf.raw_ops.Exit(data=tf.raw_ops.Enter(data=x, frame_name="loop")))
    step = tf.function(lambda x: body(x) + body(x + 1.0))
    graph_def = inline_calls(program_of_function(step, tf.constant(1.0))).graph_def
    frames = [node.attr["frame_name"].s for node in graph_def.node if node.op == "Enter"]
    assert len(frames) == len(set(frames)) == 2


def ops_of_functions(program):
    """The types of the ops in every function that the main graph's ops name."""
    functions = {function.signature.name: function for function in program.graph_def.library.function}
    attributes = (
        (node.attr, key) for node in program.graph_def.node for key in ("then_branch", "else_branch")
    )
    branches = [attr[key].func.name for attr, key in attributes if key in attr]
    return {name: [node.op for node in functions[name].node_def] for name in branches}


def function_of(program, substring):
    return next(f for f in program.graph_def.library.function if substring in f.signature.name)


def test_results_and_nested_calls_of_a_branch():
    inner = tf.function(lambda x: (x * 2.0, tf.exp(x)))
    outer = tf.function(lambda x: inner(x)[0] + inner(x + 1.0)[1])
    step = tf.function(lambda x: tf.cond(x > 0.0, lambda: (x, outer(x)), lambda: (outer(x) - x, x)))
    program = program_of_function(step, tf.constant(1.0))
    before = program.graph_def.SerializeToString(deterministic=True)
    inlined = inline_in_functions(program)
    assert program.graph_def.SerializeToString(deterministic=True) == before
    ops = ops_of_functions(inlined)
    assert len(ops) == 2
    assert all(types.count("Exp") == 2 and "PartitionedCall" not in types for types in ops.values())
    branch = function_def_to_graph.function_def_to_graph(function_of(inlined, "cond_true"))
    with branch.as_default(), tf.compat.v1.Session() as session:
        x, result = session.run(branch.outputs, {branch.inputs[0].name: 0.5})
        assert x == 0.5
        assert result == pytest.approx(2 * 0.5 + 4.4816891)  # exp(1.5)


def test_a_function_for_xla_keeps_its_calls():
    inner = tf.function(lambda x: tf.sin(x))
    compiled = tf.function(lambda x: inner(x), jit_compile=True)
    step = tf.function(lambda x: tf.cond(x > 0.0, lambda: compiled(x), lambda: x))
    inlined = inline_in_functions(program_of_function(step, tf.constant(1.0)))
    assert "PartitionedCall" in next(types for types in ops_of_functions(inlined).values() if len(types) > 1)
    body = next(f for f in inlined.graph_def.library.function if "_XlaMustCompile" in f.attr)
    assert "PartitionedCall" in [node.op for node in body.node_def]


OFFSETS = {"node": {"none": 0, "first": 0, "second": 2, "no_more": 3}}  # 0, 2, 1 and 0 tensors


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        ("argument", "argument"), ("^argument", "^argument"), ("^node", "^node"),
        ("node:first:0", "node:0"), ("node:first:1", "node:1"), ("node:second:0", "node:2"),
    ],
)  # fmt: skip
def test_names_of_tensors_in_functions_and_graphs(nested, flat):
    assert flat_tensor(nested, OFFSETS) == flat
    assert nested_tensor(flat, OFFSETS) == nested


v1 = tf.compat.v1


def item_of(found: Tf1Program) -> Item:
    return Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=4)


def op_type_of(item: Item, name: str) -> str:
    return item.index.op_types[item.index.id_of_name[name]]


def spec(item: Item, name: str):
    return item.outputs[item.index.id_of_name[name]][0]


@pytest.mark.parametrize(
    "name", ["counter", "powers", "nested", "any_batch", "branches", "branch_in_loop", "two_loops"]
)
def test_what_keeps_its_shape_is_known_in_every_iteration(name):
    assert item_of(program(name)).estimated_sizes == {}


def test_a_loop_variable_that_grows_is_as_large_as_after_one_iteration():
    item = item_of(program("growing"))
    assert item.estimated_sizes.keys() == {LOOP, DERIVED}
    exits = (name for name in item.index.names if op_type_of(item, name) == "Exit")
    assert [spec(item, name).shape for name in exits if spec(item, name).shape] == [(2, 4)]


def test_elements_of_arrays_and_stacks_have_the_size_of_what_is_put_in():
    item = item_of(program("arrays"))
    assert (spec(item, "stacked/stacked").shape, spec(item, "stacked/stacked").rule) == ((6, 4), LIST)
    training = item_of(program("recurrent_training"))
    pops = (name for name in training.index.names if op_type_of(training, name) == "StackPopV2")
    assert {spec(training, name).shape for name in pops} == {
        (),
        (3, 4),
        (3, 12),
    }  # the counter, the state and what was multiplied with the weights


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_as_large_as_when_they_run(name):
    found = program(name)
    item = item_of(found)
    tensors = [fetch for fetch in found.fetches if ":" in fetch]
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(found.meta_graph.graph_def, name="")
        feeds = {f"{feed.node}:0": np.zeros(feed.shape, feed.dtype.as_numpy_dtype) for feed in item.feeds}
        starts = [
            v1.assign(graph.get_tensor_by_name(f"{one.node}:0"), np.zeros(one.shape, np.float32))
            for one in item.variables
        ]
        with v1.Session() as session:
            session.run(starts)
            values = session.run(tensors, feeds)
    shapes = [spec(item, fetch.partition(":")[0]).shape for fetch in tensors]
    assert shapes == [value.shape for value in values]


def test_what_enters_may_contradict_the_body():
    """A body that reads the first row of what is empty at first, which shape inference refuses."""

    def build() -> list[tf.Tensor]:
        x = v1.placeholder(tf.float32, [0, 4], name="x")

        def goes_on(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return tf.logical_and(i < 3, tf.reduce_sum(y[0]) >= 0.0)

        def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, tf.concat([y, tf.ones([1, 4])], 0)

        start, shapes = (
            v1.placeholder_with_default(x, [None, 4]),
            (tf.TensorShape([]), tf.TensorShape([None, 4])),
        )
        return [v1.while_loop(goes_on, body, (0, start), shape_invariants=shapes)[1]]

    found = made(build)
    for node in found.meta_graph.graph_def.node:  # so that what enters is of static shape
        if node.op == "PlaceholderWithDefault":
            node.op = "Identity"
            dtype = node.attr["dtype"].type
            node.attr.clear()
            node.attr["T"].type = dtype
    item = item_of(found)
    assert LOOP in item.estimated_sizes


@pytest.mark.parametrize("merged", ["Identity", "Merge"])
def test_what_tensorflow_refuses_is_told_in_one_line(merged):
    graph_def = v1.GraphDef()
    with tf.Graph().as_default() as graph:
        tf.raw_ops.NextIteration(data=tf.constant(1.0), name="next")
    graph_def.CopyFrom(graph.as_graph_def())
    node = graph_def.node.add(name="around", op=merged, input=["next"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    if merged == "Merge":
        node.attr["N"].i = 1
    next(one for one in graph_def.node if one.name == "next").input[:] = ["around"]
    with pytest.raises(InputError, match=r"^TensorFlow does not accept the graph: 2 nodes in a cycle$"):
        Item.from_meta_graph(v1.MetaGraphDef(graph_def=graph_def), ["around:0"])
