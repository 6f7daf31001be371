"""A placed function reads the tables, iterators and datasets of this process, whatever its sizes depend on.

tests/corpus has more such programs, each placed as a user would.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.placed_function import placed_function

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact=True)]

CPU_2 = "/job:localhost/replica:0/task:0/device:CPU:2"

Build = Callable[[], tuple[Any, tuple]]


def spread(function, args: tuple, seed: int = 0) -> tuple[Any, dict[str, str]]:
    """``function`` at a random legal placement on all devices, and the device of each op."""
    concrete = function.get_concrete_function(*args)
    problem = analytic_problem(Item.from_function(concrete, *args), Cluster.logical(NUM_DEVICES))
    generator = np.random.default_rng(seed)
    placement = Placement(problem, [generator.choice(np.flatnonzero(allowed)) for allowed in problem.allowed])
    return placed_function(concrete, placement, *args), placement.device_names


def bits(result: Any) -> list:
    """A result's structure, and all its tensors: dtype, shape, and bytes or strings."""
    structure = str(tf.nest.map_structure(lambda leaf: type(leaf).__name__, result))
    leaves = tf.nest.flatten(result, expand_composites=True)
    arrays = [np.asarray(leaf) for leaf in leaves if leaf is not None]
    return [structure] + [
        (one.dtype.str, one.shape, one.tolist() if one.dtype == object else one.tobytes()) for one in arrays
    ]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return bits(call())
    except tf.errors.OpError as error:
        return type(error).__name__


CASES: dict[str, tuple[Build, int]] = {}


def case(calls: int = 1) -> Callable[[Build], Build]:
    """Adds what makes a function with state of its own, and its arguments; both are called so often."""

    def add(build: Build) -> Build:
        CASES[build.__name__] = build, calls
        return build

    return add


def is_same(build: Build, calls: int) -> bool:
    """Whether a function does the same placed: what it returns, call after call, and the errors that it raises."""
    (unplaced, args), (traced, other_args) = build(), build()
    placed, devices = spread(traced, other_args)
    expected = [outcome(lambda: unplaced(*args)) for _ in range(calls)]
    assert len(set(devices.values())) > 1, "nothing was spread"
    return [outcome(lambda: placed(*other_args)) for _ in range(calls)] == expected


def numbers() -> tf.Tensor:
    return tf.reshape(tf.range(12.0), [4, 3])


def test_a_table_elsewhere():
    """It stays where it is, and what looks it up goes there."""
    entries = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
    with tf.device(CPU_2):
        table = tf.lookup.StaticHashTable(entries, 0)
    placed, devices = spread(
        tf.function(lambda words: tf.cast(table.lookup(words), tf.float32) * 2.0), (tf.constant(["b"]),)
    )
    lookups = {
        device for name, device in devices.items() if "Lookup" in name and "default" not in name.lower()
    }
    assert CPU_2 in lookups
    assert placed(tf.constant(["b"])).numpy().tolist() == [4.0]


@case(5)
def an_optional_of_an_iterator():
    rows = iter(tf.data.Dataset.from_tensor_slices(numbers()))

    @tf.function
    def f(x):
        row = rows.get_next_as_optional()
        return tf.cond(row.has_value(), lambda: row.get_value() * x, lambda: tf.zeros([3])), tf.sin(x)

    return f, (tf.constant(2.0),)


@case()
def a_dataset_made_inside():
    @tf.function
    def f(x):
        total = tf.zeros([3])
        for row in tf.data.Dataset.from_tensor_slices(x).filter(lambda row: row[0] > 0.0):
            total += row
        return total * 2.0

    return f, (numbers(),)


def test_functions_of_python():
    """In order, with what they return, inside of a loop too, and on the host."""
    seen: list[list[float]] = [[], []]

    def build():
        mine = seen[0] if not builds else seen[1]
        builds.append(1)

        def tell(value):
            mine.append(float(value))
            return np.float32(2.0) * value

        @tf.function
        def f(x):
            for i in tf.range(3):
                x += tf.ensure_shape(tf.numpy_function(tell, [x + tf.cast(i, tf.float32)], tf.float32), [])
            return tf.py_function(tell, [x], tf.float32) * 3.0, tf.exp(x)

        return f, (tf.constant(1.0),)

    builds: list[int] = []
    function, args = build()
    builds.clear()
    seen[0].clear()
    _, devices = spread(function, args)
    on_host = {device for name, device in devices.items() if "PyFunc" in name or name == "while"}
    assert is_same(build, 2)
    assert seen[0] == seen[1] != []
    assert on_host == {CPU_2.replace("2", "0")}


@case(2)
def a_table_and_a_variable_in_a_loop():
    entries = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1, 2]), tf.constant([2, 0, 1]))
    table, weights = tf.lookup.StaticHashTable(entries, 0), tf.Variable([1.0, 2.0, 3.0])

    @tf.function
    def f(x, n):
        key = tf.constant(0)
        while tf.reduce_sum(x) < n:
            key = table.lookup(key)
            x = x + tf.random.stateless_uniform([], [1, key]) + weights[key]
            weights.scatter_nd_add([[key]], [0.5])
        return x, key

    return f, (tf.constant([0.0, 1.0]), tf.constant(50.0))


@case()
def a_variable_that_holds_a_list():
    empty = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=3, element_dtype=tf.float32)
    kept = tf.Variable(empty, dtype=tf.variant)
    return tf.function(
        lambda x: (
            tf.cast(x, tf.float32) * 2.0 + tf.cast(tf.raw_ops.TensorListLength(input_handle=kept), tf.float32)
        )
    ), (tf.constant(1),)


def test_gradients_through_what_is_estimated():
    weights = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            kept = tf.boolean_mask(x, x[:, 0] > 2.0) @ weights
            total = tf.scan(lambda a, row: tf.tanh(a + row), kept)
            loss = tf.reduce_sum(tf.map_fn(lambda row: tf.reduce_sum(row**2), total))
        return tape.gradient(loss, weights)

    expected = f(numbers()).numpy()
    assert spread(f, (numbers(),))[0](numbers()).numpy().tobytes() == expected.tobytes()


def test_gradients_from_outside():
    """Through a placed function that looks words up, or takes a row of its own iterator."""
    entries = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
    table, weights = (
        tf.lookup.StaticHashTable(entries, 0),
        tf.Variable(tf.reshape(tf.range(12.0), [3, 4]) / 10.0),
    )

    def build():
        rows = iter(tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(8.0), [2, 4])))

        @tf.function
        def f(words, x):
            found = tf.gather(weights, table.lookup(words))
            looped = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y * x)), [0, found])[1]
            return tf.reduce_sum(looped * tf.stop_gradient(next(rows)))  # which has none

        return f

    def gradients(function) -> list:
        x = tf.constant(0.5)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = function(words, x)
        return bits([tf.convert_to_tensor(one) for one in tape.gradient(loss, [x, weights])])

    words = tf.constant(["b", "c"])
    expected = gradients(build())
    assert gradients(spread(build(), (words, tf.constant(0.5)))[0]) == expected


@case(2)
def more_of_ragged():
    @tf.function
    def f(given, data):
        taken = next(data["rows"])
        return {
            "mapped": tf.map_fn(lambda row: row * 2.0, given),
            "joined": tf.concat([given, given], 1),
            "stacked": tf.ragged.stack([given, given]),
            "sparse": given[1:].to_sparse(),
            "lengths": given.row_lengths(),
            "taken": tf.reduce_sum(taken["ragged"], 1) + data["x"],
        }

    given = tf.ragged.constant([[1.0, 2.0], [], [3.0, 4.0, 5.0]])
    rows = iter(tf.data.Dataset.from_tensor_slices({"ragged": given}).repeat().batch(2))
    return f, (given, {"rows": rows, "x": tf.constant(1.0)})


@case()
def examples_that_are_parsed():
    @tf.function
    def f(serialized):
        ragged = tf.io.RaggedFeature(tf.float32)
        parsed = tf.io.parse_example(serialized, {"r": ragged, "v": tf.io.VarLenFeature(tf.float32)})
        return parsed, tf.sparse.to_dense(parsed["v"]) * 2.0, tf.reduce_sum(parsed["r"], 1)

    def example(count: int) -> bytes:
        values = tf.train.Feature(float_list=tf.train.FloatList(value=[1.5] * count))
        features = tf.train.Features(feature={"r": values, "v": values})
        return tf.train.Example(features=features).SerializeToString()

    return f, (tf.constant([example(1), example(3)]),)


@pytest.mark.parametrize("name", CASES)
def test_a_placed_function_does_the_same(name):
    assert is_same(*CASES[name])


def test_resources_on_two_devices_that_share_one_are_refused():
    tables = []
    for device in ("/device:CPU:1", "/device:CPU:2"):
        with tf.device(device):
            entries = tf.lookup.KeyValueTensorInitializer(tf.constant([0]), tf.constant([1]))
            tables.append(tf.lookup.StaticHashTable(entries, 0))

    @tf.function
    def f(x):
        return tf.while_loop(lambda y: y < 3, lambda y: (tables[0].lookup(y) + tables[1].lookup(y) + 1,), [x])

    with pytest.raises(InputError) as error:
        spread(f, (tf.constant(0),))
    assert "share a device" in str(error.value)
    assert "\n" not in str(error.value)
