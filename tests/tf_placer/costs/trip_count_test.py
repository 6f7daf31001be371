"""How often a loop runs is read off its graph, of which nothing runs."""

import tensorflow as tf

from colocation.op_facts import index_graph
from tf_placer.costs.analytic import trip_count
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
