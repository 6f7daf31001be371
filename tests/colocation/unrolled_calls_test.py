"""Steps of unrolled layers, told from the numbers in op names."""

import numpy as np
import pytest
import tensorflow as tf

from colocation.units import default_groups, form_units, unrolled_calls
from tests.colocation.graph_texts import graph, groups, sets

tf1 = tf.compat.v1


def test_each_step_is_a_group():
    # Four mul and two add in two steps: mul, mul_1 and add of the first, mul_2, mul_3 and add_1 of the second.
    index = graph(
        "l/step/mul", "l/step/mul_1", "l/step/mul_2", "l/step/mul_3", "l/step/add", "l/step/add_1", "z"
    )
    first, second = "l/step/mul l/step/mul_1 l/step/add", "l/step/mul_2 l/step/mul_3 l/step/add_1"
    assert groups(index, unrolled_calls(r"/step/")) == sets(first, second, "z")


def test_numbers_are_numbers():
    # Twelve in four steps of three; as text, x_10 and x_11 would come before x_2.
    names = [
        "l/step/x",
        *(f"l/step/x_{k}" for k in range(1, 12)),
        "l/step/y",
        *(f"l/step/y_{k}" for k in (1, 2, 3)),
    ]
    of = {name: group for group in groups(graph(*names), unrolled_calls(r"/step/")) for name in group}
    assert of["l/step/x_9"] == {"l/step/x_9", "l/step/x_10", "l/step/x_11", "l/step/y_3"}


def test_scopes_are_apart_and_what_is_below_an_op_is_with_it():
    index = graph("a/step/x", "a/step/x/read", "a/step/x_1", "b/step/x", "b/step/x_1")
    assert groups(index, unrolled_calls(r"/step/")) == sets(
        "a/step/x a/step/x/read", "a/step/x_1", "b/step/x", "b/step/x_1"
    )


def test_gradients_follow_what_they_differentiate():
    forward = ["l/step/x", "l/step/x_1"]
    index = graph(
        *forward, "gradients/l/step/x_grad/g", "gradients/l/step/x_1_grad/g", "gradients/l/step/x_1_grad/h"
    )
    assert groups(index, unrolled_calls(r"(?:^|/)step/")) == {frozenset([name]) for name in index.names}
    assert groups(index, default_groups, unrolled_calls(r"/step/")) == sets(
        "l/step/x gradients/l/step/x_grad/g",
        "l/step/x_1 gradients/l/step/x_1_grad/g gradients/l/step/x_1_grad/h",
    )


def test_a_scope_that_was_unrolled_by_tensorflow():
    with tf.Graph().as_default() as traced:
        state = tf1.placeholder(tf.float32, (2, 2), name="x")
        for _ in range(3):
            with tf.name_scope("cell/step/"):
                state = tf.tanh(tf.matmul(state, state) + tf.matmul(state, state))
    index = traced.as_graph_def()
    units = form_units(index, [unrolled_calls(r"/step/")])
    assert sorted(np.diff(units.member_offset)) == [1, 4, 4, 4]  # two products, their sum and its tanh


def test_no_expression_is_refused():
    with pytest.raises(ValueError, match=r"^step pattern '\(' is not a regular expression: "):
        unrolled_calls("(")
