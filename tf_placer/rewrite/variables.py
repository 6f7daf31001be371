"""Moves eager variables to the devices that a plan gives them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from colocation.tensorflow_internals import (
    BaseResourceVariable,
    ConcreteFunction,
    FuncGraph,
    replace_captures,
    set_storage,
    storage,
)
from tf_placer.errors import InputError


def move_to_devices(variables: Iterable[tuple[tf.Variable, str]]) -> None:
    """Gives variables storage on other devices, with their values.

    They stay the same Python objects: checkpoints, Keras and optimizers go on reading and writing them. Functions
    traced earlier know their storage, not the objects; every one that lives gets the new one, so that none goes on
    with what is left behind.

    Args:
      variables: eager variables that have values and can be moved (``check_movable``), each with a full device string.
    """
    # Id -> the old handle, kept so that nothing else gets the id, and the new one. The functions that have captured
    # them are looked for once for all: that goes through every object of the process.
    new_of: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}
    elsewhere = [
        (variable, device)
        for variable, device in variables
        if tf.DeviceSpec.from_string(variable.handle.device) != tf.DeviceSpec.from_string(device)
    ]
    if not elsewhere:
        return
    for variable, device in elsewhere:
        old = variable.handle
        set_storage(variable, _new_storage(variable, device))
        new_of[id(old)] = (old, variable.handle)
    _hand_over(new_of)


def check_movable(variables: Iterable[tf.Variable]) -> None:
    """Raises InputError where one is a distribution strategy's: whole, or a copy that must stay with its replica."""
    wanted: dict[int, tf.Variable] = {}
    for variable in variables:
        if not isinstance(variable, BaseResourceVariable) or variable.handle.is_packed:
            raise InputError(
                f"variable {variable.name!r} is a {type(variable).__name__}, which cannot be moved; "
                'create it outside of tf.distribute strategies, or place with variables="stay"'
            )
        wanted[id(variable)] = variable
    if not wanted:
        return
    for found in gc.get_objects():
        # ``type``, not ``isinstance``: that asks an object for its class, which may be anybody's code.
        if issubclass(type(found), tf.distribute.DistributedValues):
            for component in getattr(found, "values", ()):
                if id(component) in wanted:
                    raise InputError(
                        f"variable {component.name!r} is a copy that a tf.distribute strategy keeps for one replica, "
                        "so it cannot be moved; a strategy splits the batch and placing splits the step: use one of "
                        'them, and make the model outside of the scope for this one, or place with variables="stay"'
                    )


def _new_storage(variable: tf.Variable, device: str) -> tf.Tensor:
    with tf.init_scope(), tf.device(device):
        moved = tf.Variable(
            variable.read_value(),
            trainable=variable.trainable,
            name=variable.name.partition(":")[0],
            shape=variable.shape,
        )
    return moved.handle


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
    everything = (one for one in gc.get_objects() if isinstance(one, BaseResourceVariable))
    return found | {id(storage(one)): one for one in everything if id(storage(one)) in wanted}


def _hand_over(new_of: Mapping[int, tuple[tf.Tensor, tf.Tensor]]) -> None:
    """Replaces captured handles in every function of this process, traced or being traced."""

    def replaced(captured: Any) -> Any:
        return new_of[id(captured)][1] if id(captured) in new_of else captured

    for found in gc.get_objects():
        if isinstance(found, ConcreteFunction | FuncGraph):
            replace_captures(found, replaced)
