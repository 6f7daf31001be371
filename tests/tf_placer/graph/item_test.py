"""An Item is the same program: same numbers, all shapes known, nothing hidden in calls."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import parse_input
from tf_placer import workloads
from tf_placer.graph.item import Item
from tf_placer.workloads.spec import train_step

PROGRAMS = (
    "branches_small", "captures", "cond_and_while", "dense_small", "loop_with_side_effects",
    "lstm_lm_small", "nested", "random_numbers", "random_numbers_in_a_branch", "transformer_small",
    "unknown_batch",
)  # fmt: skip


@pytest.mark.medium
def test_every_program_was_run(runs):
    assert sorted(runs) == sorted(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_three_steps_are_bitwise_those_of_the_function(runs, name):
    item, eager = runs[name]["item"], runs[name]["eager"]
    assert item["variables"].keys() == eager["variables"].keys() != set()
    for variable, value in eager["variables"].items():
        np.testing.assert_array_equal(item["variables"][variable], value, err_msg=variable)
    for step in range(3):
        for got, expected in zip(item["fetches"][step], eager["fetches"][step], strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=f"step {step}")
    # A step that does nothing would pass the above.
    assert any(
        not np.array_equal(first, last)
        for first, last in zip(eager["fetches"][0], eager["fetches"][2], strict=True)
    )


@pytest.fixture(scope="module")
def item() -> Item:
    return workloads.build("dense_small")


@pytest.mark.medium
@pytest.mark.parametrize("name", ["dense_small", "lstm_lm_small", "transformer_small"])
def test_fingerprint_is_equal_in_another_process(runs, name):
    assert workloads.build(name).fingerprint == runs[name]["fingerprint"]


def test_fingerprint_is_equal_after_other_models():
    def layers_and_item():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)])
        step = train_step(model, keras.optimizers.Adam())
        item = Item.from_function(step, tf.zeros((2, 4)), tf.zeros(2, tf.int32))
        return [layer.name for layer in model.layers], item

    first_layers, first = layers_and_item()
    second_layers, second = layers_and_item()
    # Keras counts layers per process, so the names differ and the test is not empty.
    assert first_layers != second_layers
    assert first.index.names != second.index.names
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("overrides", [{"width": 31}, {"layers": 2}, {"optimizer": "sgd"}, {"batch": 9}])
def test_fingerprint_tells_programs_apart(item, overrides):
    assert workloads.build("dense_small", **overrides).fingerprint != item.fingerprint


def test_fingerprint_ignores_names_and_values():
    def program(name, start):
        v = tf.Variable(start, name=name)

        @tf.function
        def step(x):
            return v.assign_add(x)

        return Item.from_function(step, tf.constant(1.0))

    assert program("a", 1.0).fingerprint == program("b", 2.0).fingerprint
    assert program("a", 1.0).variables[0].node == "a"


def test_graph_is_topological_and_free_of_calls_and_devices(item):
    position = {name: i for i, name in enumerate(item.index.names)}
    for i, node in enumerate(item.graph_def.node):
        assert all(position[parse_input(text)[1]] < i for text in node.input)
        assert node.op not in ("PartitionedCall", "StatefulPartitionedCall", "IdentityN")
        assert node.device == ""
    assert len(item.outputs) == item.index.num_ops


def test_variables_are_handles_with_the_values_behind_them(item):
    # 4 dense layers: 4 kernels + 4 biases; momentum slots for each (8); learning rate, iterations.
    assert len(item.variables) == 8 + 8 + 2
    node_of = {node.name: node for node in item.graph_def.node}
    assert len({node_of[v.node].attr["shared_name"].s for v in item.variables}) == 18
    kernel = next(v for v in item.variables if v.shape == (32, 10) and np.any(v.value))
    assert node_of[kernel.node].op == "VarHandleOp"
    assert kernel.num_bytes == 32 * 10 * 4
    step, args = workloads.function("dense_small")
    assert any(np.array_equal(kernel.value, v.value) for v in Item.from_function(step, *args).variables)


def test_bytes_of_outputs(item):
    by_name = dict(zip(item.index.names, item.outputs, strict=True))
    feed = item.feeds[0]
    assert by_name[feed.node][0].num_bytes == 8 * 32 * 4  # batch x width x float32
    assert by_name[item.variables[0].node][0].num_bytes == 0  # a handle
    assert by_name[parse_input(item.fetches[0])[1]][0].shape == ()


def test_requested_devices_are_dropped():
    @tf.function
    def step(x):
        with tf.device("/cpu:0"):
            return tf.cond(x > 0.0, lambda: x * 2.0, lambda: x)

    item = Item.from_function(step, tf.constant(1.0))
    assert all(node.device == "" for node in item.graph_def.node)
    assert all(node.device == "" for f in item.graph_def.library.function for node in f.node_def)


def test_a_loop_is_one_node_with_its_functions():
    @tf.function
    def step(x):
        _, x = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))
        return tf.cond(x > 0.0, lambda: x, lambda: -x)

    item = Item.from_function(step, tf.constant(1.0))
    assert sum(op in ("While", "StatelessWhile") for op in item.index.op_types) == 1
    assert sum(op in ("If", "StatelessIf") for op in item.index.op_types) == 1
    assert len(item.graph_def.library.function) == 4  # condition, body, two branches


def test_compiled_function_stays_a_call():
    compiled = tf.function(lambda x: tf.sin(x), jit_compile=True)

    @tf.function
    def step(x):
        return compiled(x) + 1.0

    item = Item.from_function(step, tf.constant(1.0))
    assert "Sin" not in item.index.op_types
    assert sum("PartitionedCall" in op for op in item.index.op_types) == 1
    assert len(item.graph_def.library.function) == 1


def looped(x):
    """A loop's output has the shape that was known when it was traced, whatever the example's."""
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))[1]


@pytest.mark.parametrize("traced", [None, [None], [3]])
def test_a_loop_returns_what_is_as_large_as_what_enters(traced):
    anything = tf.function(input_signature=[tf.TensorSpec(traced, tf.float32)])
    item = Item.from_function(anything(looped), tf.constant([1.0, -1.0, 3.0]))
    [loop] = [i for i, op_type in enumerate(item.index.op_types) if op_type in ("While", "StatelessWhile")]
    assert [output.shape for output in item.outputs[loop]].count((3,)) == 1


def test_gradient_taken_before_does_not_matter():
    step, args = workloads.function("dense_small")
    concrete = step.get_concrete_function(*args)
    first = Item.from_function(concrete, *args).fingerprint
    with tf.GradientTape() as tape:
        loss = concrete(*args)
    assert tape.gradient(loss, args[0]) is None
    assert Item.from_function(concrete, *args).fingerprint == first


@pytest.mark.slow
@pytest.mark.parametrize(
    # Inception-V3 with RMSprop has 6,745 ops, ResNet-50 with SGD 3,220.
    ("name", "ops", "image"),
    [("inception_v3", 6_700, (32, 299, 299, 3)), ("resnet50", 3_200, (32, 224, 224, 3))],
)
def test_large_training_steps_are_built_within_a_minute(name, ops, image):
    begin_s = time.process_time()
    item = workloads.build(name)
    elapsed_s = time.process_time() - begin_s
    assert item.index.num_ops > ops
    assert [feed.shape for feed in item.feeds] == [image, image[:1]]
    assert elapsed_s < 60.0


def test_strings_are_values_like_others():
    prefix = tf.Variable("ab", name="prefix")
    item = Item.from_function(tf.function(lambda x: tf.strings.join([prefix, x])), tf.constant("c"))
    (variable,), (feed,) = item.variables, item.feeds
    for value, expected in [(variable.value, b"ab"), (feed.value, b"c")]:
        assert value.shape == () and value.dtype == object and value.item() == expected
