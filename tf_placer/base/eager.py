"""Modes of the process during a call: eager execution as in TensorFlow 2, and no garbage collection."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import tensorflow as tf

from colocation.tensorflow_internals import eager_mode

# Behavior that tf.compat.v1 can enable and disable -> whether it is on.
_BEHAVIORS: dict[str, Callable[[], bool]] = {
    "v2_tensorshape": lambda: isinstance(tf.TensorShape([1])[0], int),
    "tensor_equality": lambda: isinstance(tf.constant(0) == tf.constant(0), tf.Tensor),  # compared by value
    "resource_variables": tf.compat.v1.resource_variables_enabled,
    "control_flow_v2": tf.compat.v1.control_flow_v2_enabled,
}


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Runs the block, or as a decorator the function, with TensorFlow 2's defaults; restores the modes afterwards.

    Behaviors that ``tf.compat.v1.disable_v2_behavior`` has switched off for the process are on meanwhile. Inside a
    ``tf.function`` nothing changes: its trace belongs to the caller.
    """
    if tf.executing_eagerly() or tf.inside_function():
        yield
        return
    with eager_mode(), contextlib.ExitStack() as restored:
        for name, is_on in _BEHAVIORS.items():
            if not is_on():
                getattr(tf.compat.v1, f"enable_{name}")()
                restored.callback(getattr(tf.compat.v1, f"disable_{name}"))
        yield


@contextlib.contextmanager
def outside_functions() -> Iterator[None]:
    """Runs the block as in ``tf.init_scope``, and hides its variables from a function that is being traced.

    In ``tf.init_scope`` the variable creators of that function still see each new variable. The function would be
    traced a second time for it, and may not make another one then. But the variables of a search are its own.
    """
    with tf.init_scope():
        graph = tf.compat.v1.get_default_graph()
        if tf.executing_eagerly() and graph.building_function:
            with tf.Graph().as_default(), eager_mode():
                yield
        else:
            yield


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Runs the block, or as a decorator the function, without Python's search for cycles of garbage.

    A program of 50,000 ops is millions of objects, all of which stay. Yet each time their number has grown by a
    quarter, all are searched again. That was a fifth of the time of splitting such a program, and a third of describing
    it to a planner. Objects outside of cycles are freed at once, as always.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
