"""Captured variables: one node for each, however often the function reaches it. What may stand for an argument."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from colocation.units import form_units
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.read_function import function_name, program_of_function


def test_a_variable_that_is_reached_twice_is_one_variable():
    weight = tf.Variable([1.0, 2.0], name="weight")

    @tf.function
    def closed_over(given):
        given.assign_add([1.0, 1.0])
        return weight.read_value()

    @tf.function
    def passed_twice(first, second):
        first.assign_add([1.0, 1.0])
        return second.read_value()

    for function, arguments in ((closed_over, [weight]), (passed_twice, [weight, weight])):
        item = Item.from_function(function, *arguments)
        assert len(item.variables) == 1
        assert item.index.op_types.count("VarHandleOp") == 1
        np.testing.assert_array_equal(item.variables[0].value, [1.0, 2.0])


def test_a_compiled_call_shares_a_device_with_the_variables_it_reads():
    weight = tf.Variable(3.0, name="weight")

    @tf.function(jit_compile=True)
    def compiled(x):
        return x * weight

    @tf.function
    def step(x):
        return compiled(x) + 1.0

    item = Item.from_function(step, tf.constant(1.0))
    unit_of_op = form_units(item.index).unit_of_op
    call = next(op for op, kind in enumerate(item.index.op_types) if "PartitionedCall" in kind)
    assert unit_of_op[call] == unit_of_op[item.index.id_of_name["weight"]]


@tf.function
def scaled(x, parts):
    return x * parts["scale"] + parts["shift"]


def test_a_tensor_spec_stands_for_zeros_of_its_shape():
    spec = tf.TensorSpec([2, 3])
    parts = {"scale": tf.TensorSpec([]), "shift": tf.TensorSpec([3])}
    of_specs = program_of_function(scaled, spec, parts)
    of_zeros = program_of_function(scaled, tf.zeros([2, 3]), {"scale": tf.zeros([]), "shift": tf.zeros([3])})
    assert of_specs.graph_def == of_zeros.graph_def
    assert [feed.shape for feed in of_specs.feeds] == [(2, 3), (), (3,)]
    assert not any(feed.value.any() for feed in of_specs.feeds)


def test_a_tensor_spec_of_every_type():
    for dtype in (tf.float32, tf.bfloat16, tf.int8, tf.bool, tf.string, tf.complex64):
        program = program_of_function(tf.function(tf.identity), tf.TensorSpec([2], dtype))
        assert program.feeds[0].dtype == dtype


@pytest.mark.parametrize(
    "spec",
    [
        tf.TensorSpec([None, 3]),
        tf.TensorSpec(None),
        tf.TensorSpec([], tf.variant),
        tf.SparseTensorSpec([2, 3]),
        tf.data.DatasetSpec(tf.TensorSpec([])),
    ],
)
def test_a_spec_that_leaves_something_open_is_named(spec):
    with pytest.raises(
        InputError, match=r"example_args\[1\] is .*; give a tensor, or a tf.TensorSpec with every size"
    ):
        program_of_function(scaled, tf.zeros([2, 3]), {"scale": tf.zeros([]), "shift": spec})


def test_what_tf_function_can_trace_is_traced():
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.v = tf.Variable([1.0, 2.0])

        def call(self, x):
            return x * self.v

    layer = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    for fn, spec in (
        (Model().call, tf.TensorSpec([2])),
        (layer, tf.TensorSpec([5, 3])),
        (lambda x: x, tf.TensorSpec([])),
    ):
        assert program_of_function(fn, spec).feeds[0].shape == tuple(spec.shape)


def test_names_are_those_that_users_gave():
    concrete = scaled.get_concrete_function(
        tf.TensorSpec([3]), {"scale": tf.TensorSpec([]), "shift": tf.TensorSpec([])}
    )
    assert function_name(scaled) == function_name(concrete) == "scaled"
    assert function_name(keras.Sequential(name="net")) == "net"
    with pytest.raises(InputError, match="function 'scaled' takes 3 tensors, but example_args hold 1"):
        program_of_function(concrete, tf.zeros([3]))
