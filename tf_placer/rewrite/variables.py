"""Moves eager variables to the devices that a plan gives them."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import resource_variable_ops

from tf_placer.errors import InputError


def move_variable(variable: tf.Variable, device: str) -> bool:
    """Gives a variable storage on another device, with its value, and says whether it had to.

    It stays the same Python object: checkpoints, Keras and optimizers go on reading and writing it. Functions traced
    earlier know its storage, not the object; every one that lives gets the new one, so that none goes on with
    what is left behind.

    Args:
      variable: an ordinary eager variable that has a value.
      device: a full device string.

    Raises:
      InputError: a variable of a distribution strategy, which has storage on several devices.
    """
    if not isinstance(variable, resource_variable_ops.BaseResourceVariable) or variable.handle.is_packed:
        raise InputError(
            f"variable {variable.name!r} is a {type(variable).__name__}, which cannot be moved; "
            'create it outside of tf.distribute strategies, or place with variables="stay"'
        )
    old = variable.handle
    if tf.DeviceSpec.from_string(old.device) == tf.DeviceSpec.from_string(device):
        return False
    with tf.init_scope(), tf.device(device):
        moved = tf.Variable(
            variable.read_value(),
            trainable=variable.trainable,
            name=variable.name.partition(":")[0],
            shape=variable.shape,
        )
    variable._handle = moved.handle
    _hand_over(old, moved.handle)
    return True


def variables_of_handles(
    handles: Iterable[tf.Tensor], likely: Iterable[tf.Variable] = ()
) -> dict[int, tf.Variable]:
    """Id of a handle -> the variable of this process that it belongs to; without those that belong to none.

    Args:
      handles: of variables.
      likely: variables to look at first. A traced function lists those that it read as such: not the state of a
        ``tf.random.Generator``, say, whose ops take the handle. The others are found by looking through everything.
    """
    wanted = {id(handle) for handle in handles}
    found = {id(variable.handle): variable for variable in likely}
    if wanted <= found.keys():
        return found
    everything = (
        one for one in gc.get_objects() if isinstance(one, resource_variable_ops.BaseResourceVariable)
    )
    return found | {id(one._handle): one for one in everything if id(getattr(one, "_handle", None)) in wanted}


def _hand_over(old: tf.Tensor, new: tf.Tensor) -> None:
    """Replaces a captured handle in every function of this process, traced or being traced."""
    for found in gc.get_objects():
        if isinstance(found, concrete_function.ConcreteFunction):
            found._captured_inputs = [
                new if captured is old else captured for captured in found._captured_inputs
            ]
        elif isinstance(found, func_graph.FuncGraph):
            captures = found.captures
            if any(outer is old for outer, _ in captures):
                outers = [new if outer is old else outer for outer, _ in captures]
                found.function_captures.reset_captures(outers, [inner for _, inner in captures])
