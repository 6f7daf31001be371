"""Moves eager variables to the devices that a plan gives them."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import (
    BaseResourceVariable,
    new_storage,
    replace_captures,
    set_storage,
    storage,
)
from tf_placer.errors import InputError
from tf_placer.rewrite.holders import Storages

_FOR_LONG_S = 1000.0
PLACED_BEFORE = "a function that was placed before reads it there"
_MOVING = threading.Lock()  # one at a time: what is found to hold a variable must be so until it has moved


def move_to_devices(variables: Iterable[tuple[tf.Variable, str]]) -> None:
    """Gives variables storage on other devices, with their values.

    They stay the same Python objects: checkpoints, Keras and optimizers go on reading and writing them. Functions
    traced earlier know their storage, not the objects; every one that lives gets the new one, so that none goes on
    with what is left behind.

    Args:
      variables: eager variables that have values and can be moved (``check_movable``), each with a full device string.

    Raises:
      InputError: something that cannot follow holds a variable (``holders``); none has moved then.
    """
    elsewhere = [
        (variable, device)
        for variable, device in variables
        if tf.DeviceSpec.from_string(variable.handle.device) != tf.DeviceSpec.from_string(device)
    ]
    if not elsewhere:
        return
    with _MOVING:
        _move(elsewhere)


def _move(variables: Sequence[tuple[tf.Variable, str]]) -> None:
    _check_can_follow(Storages([variable.handle for variable, _ in variables]), variables, is_watched=True)
    with tf.init_scope():
        moves = [_Move(variable, device) for variable, device in variables]
        with _no_other_thread_runs():
            # Once more: other threads have run since. From here to the last function none does.
            ours = [*moves, *map(vars, moves)]
            storages = Storages([move.old for move in moves], ours)
            _check_can_follow(storages, variables)
            for move in moves:
                for variable in storages.variables[id(move.old)]:
                    set_storage(variable, move.new)
            new_of = {id(move.old): move.new for move in moves}
            _hand_over(storages, new_of)
        for move in moves:
            move.catch_up()


def _hand_over(storages: Storages, new_of: Mapping[int, tf.Tensor]) -> None:
    """Replaces captured handles in every function of this process, traced or being traced."""
    for function in storages.functions:
        replace_captures(function, lambda captured: new_of.get(id(captured), captured))


def _check_can_follow(
    storages: Storages, variables: Sequence[tuple[tf.Variable, str]], is_watched: bool = False
) -> None:
    """Raises InputError where something holds a variable that cannot follow, or another thread uses one now."""
    storages.look_at_threads(for_a_while=is_watched)
    for variable, _ in variables:
        why = storages.why_held(variable.handle)
        if why:
            raise InputError(
                f"variable {variable.name!r} cannot move now: {why}; place first, before it is used there"
            )


class _Move:
    """One variable's old and new storage, and the value that was copied from one to the other."""

    def __init__(self, variable: tf.Variable, device: str) -> None:
        self.variable, self.old = variable, variable.handle
        self._copied = self._read_old()
        with tf.device(device):
            self.new = new_storage(variable, self._copied)

    def _read_old(self) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=self.old, dtype=self.variable.dtype)

    def catch_up(self) -> None:
        """Copies the value again where a thread changed it while it was copied; nothing holds the old storage now."""
        latest = self._read_old()
        if not _same_bytes(latest, self._copied):
            self.variable.assign(latest)


def _same_bytes(left: tf.Tensor, right: tf.Tensor) -> bool:
    if left.shape != right.shape:
        return False
    if left.dtype == tf.string:
        return bool(tf.reduce_all(left == right))
    old, new = np.asarray(left.numpy()), np.asarray(right.numpy())
    # As long as a read value is kept, an update has to make a new buffer: the same one has the same bytes.
    is_same = old.__array_interface__["data"] == new.__array_interface__["data"]
    return is_same or old.tobytes() == new.tobytes()


@contextlib.contextmanager
def _no_other_thread_runs() -> Iterator[None]:
    """Keeps the interpreter's lock for as long as nothing within gives it up, as an op would."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_FOR_LONG_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def why_variables_stay(handles: Mapping[str, tf.Tensor]) -> dict[str, str]:
    """Name -> why a variable should stay where it is, as the end of a sentence, of those that should.

    Something holds it that cannot follow when it moves, or a function was placed around it.

    Args:
      handles: name -> the variable's handle.
    """
    if not handles:
        return {}
    storages = Storages(list(handles.values()), ours=[handles])
    storages.look_at_threads(for_a_while=True)
    found = {}
    for name, handle in handles.items():
        why = storages.why_held(handle)
        if not why and storages.is_placed(handle):
            why = PLACED_BEFORE
        if why:
            found[name] = why
    return found


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
