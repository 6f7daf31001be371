"""What TensorFlow says reaches a user as one line without TensorFlow's inner names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

from tf_placer.base.arguments import plain, told


def an_eager_op() -> None:
    tf.linalg.matmul(tf.ones((2, 3)), tf.ones((2, 3)))


def a_running_function() -> None:
    tf.function(lambda x: tf.gather(x, 9))(tf.constant([2.0]))


def a_trace() -> None:
    tf.function(lambda x: tf.reshape(x, [7])).get_concrete_function(tf.TensorSpec([2]))


def a_cast() -> None:
    tf.constant("a", tf.float32)


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (an_eager_op, "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]"),
        (a_running_function, "indices = 9 is not in [0, 1)"),
        (
            a_trace,
            "Cannot reshape a tensor with 2 elements to shape [7] (7 elements) for 'Reshape = Reshape[",
        ),
        (a_cast, "Cannot convert 'a' to EagerTensor of dtype float"),
    ],
)
def test_what_is_told_of_an_error(failing: Callable[[], None], said: str) -> None:
    with pytest.raises((ValueError, TypeError, tf.errors.OpError)) as error:
        failing()
    line = told(error.value)
    assert line.startswith(said)
    for inner in ("{{", "[Op:", "\n", "[[", 'File "'):
        assert inner not in line


def test_an_error_that_says_nothing() -> None:
    assert told(ValueError()) == "ValueError"
    assert told(tf.errors.InternalError(None, None, "")) == "InternalError"


def test_what_is_taken_out_of_a_message() -> None:
    assert plain("{{function_node __wrapped__F_device_/job:a}} too large [Op:F] name: ") == "too large"
    assert plain("node {{node a/b}}\n\t [[{{node a/b}}]]") == "node a/b"
    assert plain("{{colocation_node c}} is not") == "c is not"
