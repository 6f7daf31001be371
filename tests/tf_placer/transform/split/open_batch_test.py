"""Split programs for a batch that only a run knows."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.graph.item import Item
from tf_placer.transform.split.open_batch import NotOpen, telling_batches, with_open_batch
from tf_placer.transform.split.split_batch import SplitProgram, split_program
from tf_placer.transform.split.states import Batch

ROWS = tf.TensorSpec([None, 3])


def programs_of(
    function: Callable, *specs: tf.TensorSpec, parts: int = 3, batch: int = 8
) -> list[SplitProgram]:
    concrete = tf.function(function, input_signature=specs).get_concrete_function()
    return [
        split_program(
            Item.from_function(
                concrete, *(tf.zeros([size or batch for size in spec.shape]) for spec in specs)
            ),
            parts,
        )
        for batch in telling_batches(batch, parts)
    ]


def opened(programs: Sequence[SplitProgram]) -> tf.compat.v1.GraphDef:
    return with_open_batch(programs[0].item.graph_def, programs, "")


def run(graph_def: tf.compat.v1.GraphDef, item: Item, x: np.ndarray) -> list[np.ndarray]:
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        tf.import_graph_def(graph_def, name="")
        return session.run(list(item.fetches), {f"{item.feeds[0].node}:0": x})


def everything(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
    count = tf.shape(x)[0]
    wide = tf.reshape(tf.tanh(tf.tile(x, [1, 4])), [count, 2, 6])
    return (
        wide,
        tf.reduce_mean(wide, [0, 1]),
        tf.reduce_max(wide),
        tf.reshape(wide, [count * 2, 6]),
        count - 1,
    )


@pytest.mark.parametrize(("batch", "parts"), [(8, 3), (8, 2), (7, 7), (9, 4)])
def test_batches_tell_the_sizes_of_parts_apart(batch: int, parts: int):
    found = telling_batches(batch, parts)
    assert found[0] == batch and found == sorted(set(found))
    sizes = np.array([Batch.divided(one, parts).sizes for one in found])
    assert len({tuple(column) for column in sizes.T.tolist()}) == parts


@pytest.mark.parametrize(("batch", "parts"), [(8, 3), (6, 2)])
def test_any_batch_computes_what_the_program_does(batch: int, parts: int):
    programs = programs_of(everything, ROWS, parts=parts, batch=batch)
    graph_def = opened(programs)
    for count in (8, 9, 10, 17, 4, 2):  # also fewer than parts
        x = np.random.default_rng(count).normal(size=[count, 3]).astype(np.float32)
        expected = everything(tf.constant(x))
        for one, other in zip(expected, run(graph_def, programs[0].item, x), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def recurrent(x: tf.Tensor) -> tf.Tensor:
    """A loop that is written out, with a list, and sizes of the batch in its body."""
    kept, state = tf.TensorArray(tf.float32, 3), tf.zeros(tf.shape(x))
    for t in tf.range(3):
        state = tf.tanh(state * 2 + x * tf.ones([tf.shape(state)[0], 1]))
        kept = kept.write(t, state)
    return tf.transpose(kept.stack(), [1, 0, 2])


def test_a_loop_for_any_batch():
    programs = programs_of(recurrent, ROWS, parts=2, batch=6)
    graph_def = opened(programs)
    assert not any(node.op.endswith("While") for node in graph_def.node)
    for count in (6, 7, 3):
        x = np.random.default_rng(count).normal(size=[count, 3]).astype(np.float32)
        (found,) = run(graph_def, programs[0].item, x)
        np.testing.assert_allclose(found, recurrent(tf.constant(x)), rtol=1e-5, atol=1e-6)


def test_parts_are_as_even_as_there_are():
    """The split of the input at run time, of 11 examples in 3 parts."""
    programs = programs_of(everything, ROWS)
    (divided,) = (node.name for node in programs[0].item.graph_def.node if node.op == "SplitV")
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        tf.import_graph_def(opened(programs), name="")
        feed = {f"{programs[0].item.feeds[0].node}:0": np.zeros([11, 3], np.float32)}
        pieces = session.run([f"{divided}:{c}" for c in range(3)], feed)
    assert [len(piece) for piece in pieces] == [4, 4, 3]


def test_what_is_not_a_size_is_refused():
    def numbered(x):
        return tf.cast(x, tf.int32) + tf.range(tf.shape(x)[0])[:, tf.newaxis]

    with pytest.raises(NotOpen, match="has another shape or type for another batch"):
        opened(programs_of(numbered, ROWS))
    with pytest.raises(NotOpen, match="not only the batch of input 'x' is open"):
        opened(programs_of(lambda x: tf.reduce_mean(x, 1), tf.TensorSpec([None, None, 3], name="x")))


def test_a_constant_that_no_formula_gives_is_refused():
    programs = programs_of(everything, ROWS)
    (node,) = (
        node
        for node in programs[2].item.graph_def.node
        if node.op == "Const" and node.name.startswith("split/") and node.name.endswith("/sizes")
    )
    value = tf.make_ndarray(node.attr["value"].tensor)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value + np.array([1, 0, 0])))
    with pytest.raises(NotOpen, match="neither a size nor a ratio of sizes of the batch"):
        opened(programs)
    with pytest.raises(NotOpen, match="another batch is split into other ops"):
        opened([programs[0], *programs_of(tf.tanh, ROWS)[1:]])
