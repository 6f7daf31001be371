"""Captured variables: one node for each, however often the function reaches it."""

import numpy as np
import tensorflow as tf

from colocation.units import form_units
from tf_placer.graph.item import Item


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
