"""Sizes in loops of TensorFlow 1: known where an iteration keeps a shape, estimates by a rule elsewhere."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf1_programs import PROGRAMS, Tf1Program, made, program
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.size_rules import DERIVED, LIST, LOOP

v1 = tf.compat.v1


def item_of(found: Tf1Program) -> Item:
    return Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=4)


def spec(item: Item, name: str):
    return item.outputs[item.index.id_of_name[name]][0]


@pytest.mark.parametrize(
    "name", ["counter", "powers", "nested", "any_batch", "branches", "branch_in_loop", "two_loops"]
)
def test_what_keeps_its_shape_is_known_in_every_iteration(name: str):
    assert item_of(program(name)).estimated_sizes == {}


def test_a_loop_variable_that_grows_is_as_large_as_after_one_iteration():
    item = item_of(program("growing"))
    assert item.estimated_sizes.keys() == {LOOP, DERIVED}
    (exit_name,) = (
        name
        for name, op_type in zip(item.index.names, item.index.op_types, strict=True)
        if op_type == "Exit" and spec(item, name).shape
    )
    assert spec(item, exit_name).shape == (2, 4)


def test_elements_of_arrays_and_stacks_have_the_size_of_what_is_put_in():
    item = item_of(program("arrays"))
    assert (spec(item, "stacked/stacked").shape, spec(item, "stacked/stacked").rule) == ((6, 4), LIST)
    training = item_of(program("recurrent_training"))
    popped = {
        spec(training, name).shape
        for name, op_type in zip(training.index.names, training.index.op_types, strict=True)
        if op_type == "StackPopV2"
    }
    assert popped == {(), (3, 4), (3, 12)}  # the counter, the state and what was multiplied with the weights


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_as_large_as_when_they_run(name: str):
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
    assert [spec(item, fetch.partition(":")[0]).shape for fetch in tensors] == [
        value.shape for value in values
    ]


def test_what_enters_may_contradict_the_body():
    """A body that reads the first row of what is empty at first, which shape inference refuses."""

    def build() -> list[tf.Tensor]:
        x = v1.placeholder(tf.float32, [0, 4], name="x")

        def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = tf.concat([y, tf.ones([1, 4])], 0)
            return i + 1, y

        start = v1.placeholder_with_default(x, [None, 4])
        return [
            v1.while_loop(
                lambda i, y: tf.logical_and(i < 3, tf.reduce_sum(y[0]) >= 0.0),
                body,
                (0, start),
                shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
            )[1]
        ]

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
def test_what_tensorflow_refuses_is_told_in_one_line(merged: str):
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
