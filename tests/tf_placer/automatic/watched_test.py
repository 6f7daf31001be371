"""Functions that are watched in a script: where none is placed, the reason of each is told at the end."""

import functools
import threading
from typing import Any

import pytest
import tensorflow as tf

from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.watched import WATCHED_STEPS, Watcher


class Script:
    def __init__(self) -> None:
        self.said: list[str] = []
        plug_in: Any = None  # no plan is written
        self.watcher = Watcher(plug_in, AutoPlaceConfig(cluster="local"), None, self.said.append)

    def call(self, function: Any, *args: Any) -> Any:
        return self.watcher.call(function, functools.partial(type(function).__call__, function), args, {})


@tf.function
def step(x: tf.Tensor) -> tf.Tensor:
    return x + 1.0


def often(script: Script) -> None:
    for _ in range(WATCHED_STEPS + 1):
        script.call(step, tf.constant(1.0))


def in_a_thread(script: Script) -> None:
    thread = threading.Thread(target=often, args=(script,))
    thread.start()
    thread.join()


def op_by_op(script: Script) -> None:
    tf.config.run_functions_eagerly(True)
    try:
        often(script)
    finally:
        tf.config.run_functions_eagerly(False)


def in_a_session(script: Script) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(script.call(step, tf.constant(1.0)))


def under_a_strategy(script: Script) -> None:
    with tf.distribute.OneDeviceStrategy("/device:CPU:0").scope():
        often(script)


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        (lambda script: script.call(step, tf.constant(1.0)), "step is called fewer than 4 times"),
        (often, "step takes "),
        (in_a_thread, "step is called by another thread than the main one"),
        (op_by_op, "step runs op by op "),
        (in_a_session, "step is called in a graph"),
        (under_a_strategy, "step runs as it is: a tf.distribute strategy "),
    ],
)
def test_why_nothing_is_placed(calls, why):
    script = Script()
    calls(script)
    assert not script.said
    assert script.watcher.nothing_placed().startswith(f"nothing is placed: {why}")
    assert "\n" not in script.watcher.nothing_placed()


def test_a_few_functions_stand_for_all():
    script = Script()
    for name in "abcde":
        function = tf.function(lambda x: x)
        function.__name__ = function._name = name
        script.call(function, tf.constant(1.0))
    assert script.watcher.nothing_placed().endswith("; and 2 more")


def test_what_is_told_of_one_function_is_enough():
    script = Script()
    compiled = tf.function(lambda x: x, jit_compile=True)
    script.watcher.say("<lambda> runs as it is: jit_compile=True")
    script.call(compiled, tf.constant(1.0))
    assert script.watcher.nothing_placed() == ""
