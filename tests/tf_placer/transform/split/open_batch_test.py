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
    return with_open_batch(programs[0].item.graph_def, programs, "").graph_def


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

    with pytest.raises(NotOpen, match="for another batch"):
        opened(programs_of(numbered, ROWS))
    with pytest.raises(NotOpen, match="not only the batch of input 'x' is open"):
        opened(programs_of(lambda x: tf.reduce_mean(x, 1), tf.TensorSpec([None, None, 3], name="x")))


def size(x: tf.Tensor) -> tf.Tensor:
    return tf.shape(x)[0]


def trips(x: tf.Tensor) -> tf.Tensor:
    """As many as the batch has examples, up to five, which all telling batches have."""
    for _ in tf.range(tf.minimum(size(x), 5)):
        x = tf.tanh(x @ tf.eye(3))
    return x


def trips_by_condition(x: tf.Tensor) -> tf.Tensor:
    """The size is compared inside of the loop."""
    i = tf.constant(0)
    while i < 4 and i < size(x):
        i, x = i + 1, tf.tanh(x @ tf.eye(3))
    return x


ENDS: dict[str, Callable] = {
    "a slice": lambda x: tf.tanh(x[:100] @ tf.eye(3)),
    "a slice to a minimum": lambda x: tf.tanh(x[: tf.minimum(size(x), 60)]),
    "top_k": lambda x: tf.nn.top_k(tf.tanh(x), tf.minimum(size(x), 3))[0],
    "tile": lambda x: tf.tile(tf.tanh(x), [1, tf.maximum(1, size(x) - 50)]),
    "pad": lambda x: tf.pad(tf.tanh(x), [[0, 0], [0, tf.maximum(0, size(x) - 40)]]),
    "one_hot": lambda x: tf.one_hot(tf.argmax(x, 1), tf.maximum(3, size(x) // 20)),
    "an axis": lambda x: tf.reduce_sum(tf.tanh(x), tf.where(size(x) > 70, 0, 1), keepdims=True),
    "a reshape": lambda x: tf.reshape(tf.tanh(x), [tf.minimum(size(x), 80), -1]),
    "trips": trips,
    "trips by a condition": trips_by_condition,
    "a quotient": lambda x: tf.tile(tf.tanh(x), [1, 1 + size(x) // 40]),
    "a rest": lambda x: tf.tanh(x) + tf.tanh(x)[:, : 1 + size(x) // 1000],
}


@pytest.mark.medium
@pytest.mark.parametrize("use", ENDS)
def test_a_size_that_clips_or_counts_ends_the_proof(use: str):
    """Though it does neither for the batches that are looked at."""
    with pytest.raises(NotOpen, match=r"for another batch|depends? on the batch"):
        opened(programs_of(ENDS[use], ROWS, parts=2))


HOLDS: dict[str, Callable] = {
    "all but the first": lambda x: tf.concat([x[:1], x[1:]], 0) * tf.tanh(x),
    "to its size": lambda x: tf.tanh(x[: size(x)]),
    "clipped number": lambda x: tf.tanh(x) * tf.cast(tf.minimum(size(x), 20), tf.float32),
    "at least one": lambda x: tf.reshape(tf.tanh(x), [tf.maximum(size(x), 1), 3]),
    "half of twice": lambda x: tf.reshape(tf.tanh(x), [2 * size(x) // 2, 3]),
    "root": lambda x: tf.tanh(x) / tf.sqrt(tf.cast(size(x), tf.float32)),
    "branch of numbers": lambda x: tf.tanh(x) * tf.cond(size(x) > 20, lambda: 2.0, lambda: 3.0),
    "last": lambda x: tf.tanh(x) + tf.gather(x, size(x) - 1) + x[-1],
}


@pytest.mark.medium
@pytest.mark.parametrize("use", HOLDS)
def test_a_size_that_is_a_number_holds(use: str):
    programs = programs_of(HOLDS[use], ROWS, parts=2)
    graph_def = opened(programs)
    for count in (2, 3, 8, 21, 150):
        x = np.random.default_rng(count).normal(size=[count, 3]).astype(np.float32)
        (found,) = run(graph_def, programs[0].item, x)
        np.testing.assert_allclose(found, HOLDS[use](tf.constant(x)), rtol=1e-5, atol=1e-5)


def descent(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Gradients of a mean loss: of one example there are more axes of length one."""
    weight = tf.reshape(tf.range(9.0), [3, 3]) / 9.0
    with tf.GradientTape() as tape:
        tape.watch(weight)
        loss = tf.reduce_mean((tf.tanh(x @ weight) - x * tf.reduce_mean(x, 0)) ** 2)
    return loss, tape.gradient(loss, weight)


@pytest.mark.medium
def test_gradients_hold_from_an_example_for_each_part_on():
    programs = programs_of(descent, ROWS, parts=2)
    form = with_open_batch(programs[0].item.graph_def, programs, "")
    assert form.least == 2 and list(form.examples.values()) == [0]
    for count in (2, 3, 8, 150):
        x = np.random.default_rng(count).normal(size=[count, 3]).astype(np.float32)
        for one, other in zip(descent(tf.constant(x)), run(form.graph_def, programs[0].item, x), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


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
    with pytest.raises(NotOpen, match="another batch is another program"):
        opened([programs[0], *programs_of(tf.tanh, ROWS)[1:]])
