"""How often loops run, those of TensorFlow 1 included, is read off the graph, of which nothing runs."""

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import index_graph
from tests.tf1_programs import made, program
from tests.tf_placer.problem.small_problems import without_overheads
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs, frame_trips, trip_count
from tf_placer.graph.item import Item


def count(make_maximum) -> int | None:
    """Iterations of a loop whose maximum is computed in the graph."""

    @tf.function
    def program():
        return tf.while_loop(lambda i: i < 9, lambda i: (i + 1,), [0], maximum_iterations=make_maximum())[0]

    index = index_graph(program.get_concrete_function().graph.as_graph_def())
    (loop,) = (op for op, op_type in enumerate(index.op_types) if op_type in ("While", "StatelessWhile"))
    return trip_count(index, loop)


def test_a_constant_expression_is_computed():
    assert count(lambda: tf.minimum(tf.constant(3), 8) + 1) == 4


def test_data_is_not_known():
    assert count(lambda: tf.random.uniform([], maxval=5, dtype=tf.int32)) is None


def test_what_the_count_waits_for_does_not_run(tmp_path):
    def after_writing() -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "written"), "x")]):
            return tf.identity(tf.constant(4)) + 1

    assert count(after_writing) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_function_of_python_is_not_called():
    called = []

    def most(value):
        called.append(value)
        return value

    def computed() -> tf.Tensor:
        value = tf.numpy_function(most, [tf.constant(4)], tf.int32, stateful=False)
        called.clear()
        return tf.ensure_shape(value, [])

    assert count(computed) is None
    assert called == []


def test_how_many_rows_a_ragged_tensor_has_is_not_known():
    @tf.function
    def program(sentences):
        words = tf.strings.split(sentences)
        return tf.map_fn(lambda row: tf.size(row), words, fn_output_signature=tf.int32)

    item = Item.from_function(program, tf.constant(["a b", "c"]))
    (loop,) = (op for op, kind in enumerate(item.index.op_types) if kind in ("While", "StatelessWhile"))
    assert trip_count(item.index, loop, item.outputs) is None


v1 = tf.compat.v1


def item_of(name: str) -> Item:
    found = program(name)
    return Item.from_meta_graph(found.meta_graph, found.fetches)


def runs(item: Item) -> dict[str, float]:
    counts, unknown = frame_trips(item.index, item.outputs)
    assert unknown == 0
    return dict(zip(item.index.names, counts.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("counter", {1, 10}),
        ("powers", {1, 5}),
        ("nested", {1, 4, 4 * 3}),
        ("arrays", {1, 6}),
        ("any_batch", {1, 12}),  # by the shape of what is fed
        ("loop_in_branch", {1, 3}),
        ("recurrent_training", {1, 5}),
        ("nested_training", {1, 3, 3 * 2}),
        ("branches", {1}),
    ],
)
def test_every_op_of_a_loop_runs_as_often_as_the_loop_counts(name, counts):
    assert set(runs(item_of(name)).values()) == counts


def test_gradients_run_as_often_as_what_they_are_the_gradients_of():
    found = runs(item_of("nested_training"))
    products = {
        name: count for name, count in found.items() if name.endswith(("matmul", "/MatMul", "/MatMul_1"))
    }
    assert len(products) == 3  # forward, and by both factors
    assert set(products.values()) == {6.0}


@pytest.mark.parametrize(
    ("holds", "following", "start", "count"),
    [
        (lambda i: i < 10, lambda i: i + 3, 0, 4),
        (lambda i: i <= 9, lambda i: i + 3, 0, 4),
        (lambda i: i > 0, lambda i: i - 2, 9, 5),
        (lambda i: i >= 1, lambda i: i + (-2), 9, 5),
        (lambda i: tf.constant(10) > i, lambda i: 3 + i, 0, 4),
        (lambda i: tf.logical_and(i < 10, i < 5), lambda i: i + 1, 0, 5),
        (lambda i: i < 3, lambda i: i + 1, 7, 0),
    ],
)
def test_counts_up_and_down(holds, following, start, count):
    found = made(lambda: [v1.while_loop(holds, following, [tf.constant(start)], name="loop")])
    item = Item.from_meta_graph(found.meta_graph, found.fetches)
    assert runs(item)["loop/Merge"] == count


@pytest.mark.parametrize(
    ("holds", "following"),
    [
        (lambda i: tf.reduce_sum(i) < 10, lambda i: i + 1),  # no comparison of the counter itself
        (lambda i: i < 10, lambda i: i * 2 + 1),
        (lambda i: i < 10, lambda i: i - 1),  # never ends
        (lambda i: tf.random.uniform([]) < 0.5, lambda i: i + 1),
    ],
)
def test_a_loop_of_unknown_count_is_one_iteration_and_a_guess(holds, following):
    found = made(lambda: [v1.while_loop(holds, following, [tf.constant(1)], name="loop")])
    item = Item.from_meta_graph(found.meta_graph, found.fetches)
    counts, unknown = frame_trips(item.index, item.outputs)
    assert unknown == 1
    assert set(counts) == {1.0}
    assert analytic_costs(item, Cluster.preset("k40x2")).guessed["LoopCond"] == 1


def test_an_op_costs_its_runs_or_the_host_s_time_to_feed_them():
    def step(count: int, cluster: Cluster) -> np.ndarray:
        body = lambda i, y: (i + 1, tf.matmul(y, y, name="product"))  # noqa: E731
        x = lambda: v1.placeholder(tf.float32, [64, 64], name="x")  # noqa: E731
        found = made(lambda: [v1.while_loop(lambda i, _: i < count, body, (0, x()), name="loop")[1]])
        item = Item.from_meta_graph(found.meta_graph, found.fetches)
        return analytic_costs(item, cluster).compute_ns[item.index.id_of_name["loop/product"]]

    fed = Cluster.preset("k40x2")
    unfed = without_overheads(fed)
    np.testing.assert_array_equal(step(9, unfed), 9 * step(1, unfed))
    # The simulator counts the first run; a CPU feeds itself.
    np.testing.assert_array_equal(step(9, fed)[:2], 8 * fed.dispatch_ns()[:2])
    assert step(9, fed)[2] == step(9, unfed)[2]
