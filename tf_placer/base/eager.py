"""Eager execution for public functions, in programs that switched it off or build a graph of TensorFlow 1."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from colocation.tensorflow_internals import eager_mode


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Runs the block, or as a decorator the function, as TensorFlow 2 does by default; afterwards all is as it was.

    What ``tf.compat.v1.disable_v2_behavior`` switches off for the whole process is on meanwhile. Inside a
    ``tf.function`` nothing changes: what is traced there is the caller's.
    """
    if tf.executing_eagerly() or tf.inside_function():
        yield
        return
    with eager_mode(), contextlib.ExitStack() as restored:
        for is_on, enable, disable in _BEHAVIORS:
            if not is_on():
                enable()
                restored.callback(disable)
        yield


_for_good = contextlib.ExitStack()


def eagerly_from_here() -> None:
    """Does as ``eagerly``, for the rest of this thread: a script that has run in it may have switched all that off."""
    _for_good.enter_context(eagerly())


@contextlib.contextmanager
def outside_functions() -> Iterator[None]:
    """Runs the block as ``tf.init_scope`` does, and a variable made there is none of the function being traced.

    In ``tf.init_scope`` the variable creators of that function still see each new variable. It would be traced a second
    time for it, and may not make another then; but what a search makes is its own.
    """
    with tf.init_scope():
        if tf.executing_eagerly() and _is_traced_around():
            with tf.Graph().as_default(), eager_mode():
                yield
        else:
            yield


def _is_traced_around() -> bool:
    graph = tf.compat.v1.get_default_graph()
    return bool(graph.building_function)


def _shapes_are_numbers() -> bool:
    return isinstance(tf.TensorShape([1])[0], int)


def _tensors_are_compared_by_value() -> bool:
    return isinstance(tf.constant(0) == tf.constant(0), tf.Tensor)


_BEHAVIORS: tuple[tuple[Callable[[], bool], Callable[[], None], Callable[[], None]], ...] = (
    (_shapes_are_numbers, tf.compat.v1.enable_v2_tensorshape, tf.compat.v1.disable_v2_tensorshape),
    (
        _tensors_are_compared_by_value,
        tf.compat.v1.enable_tensor_equality,
        tf.compat.v1.disable_tensor_equality,
    ),
    (
        tf.compat.v1.resource_variables_enabled,
        tf.compat.v1.enable_resource_variables,
        tf.compat.v1.disable_resource_variables,
    ),
    (
        tf.compat.v1.control_flow_v2_enabled,
        tf.compat.v1.enable_control_flow_v2,
        tf.compat.v1.disable_control_flow_v2,
    ),
)
