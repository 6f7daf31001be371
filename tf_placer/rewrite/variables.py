"""Moves of eager variables to the devices that a plan gives them."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation import tensorflow_internals as internals
from colocation.tensorflow_internals import (
    BaseResourceVariable,
    ConcreteFunction,
    FuncGraph,
    capture_containers,
    is_identity_key,
    replace_captures,
    storage,
)
from tf_placer.base.arguments import InputError
from tf_placer.rewrite.random_state import tell_of_lost_state

# A thread that uses a variable again and again is between two uses for less than most of these looks.
_LOOKS, _LOOK_EVERY_S = 20, 0.0005
_TENSORFLOW = ("tensorflow", "keras")


_placed: weakref.WeakSet[ConcreteFunction] = weakref.WeakSet()


def mark_as_placed(function: ConcreteFunction) -> None:
    """Remembers that a function's ops were put where its variables are."""
    _placed.add(function)


class Storages:
    """Handles of variables, and all objects of this process that hold one of them.

    Attributes:
      variables: id of a handle -> the Python variables that have it; a result of ``assign`` is one of its own.
      functions: traced functions and graphs that have captured one.
    """

    def __init__(self, handles: Sequence[tf.Tensor], ours: Sequence[Any] = ()) -> None:
        """Looks through every object of this process, which takes a tenth of a second or so.

        ``ours`` are other containers of the handles that are the caller's own, and hold nothing.
        """
        self._handles = {id(handle): handle for handle in handles}
        self.variables: dict[int, list[BaseResourceVariable]] = {number: [] for number in self._handles}
        self.functions: list[ConcreteFunction | FuncGraph] = []
        self._reasons: dict[int, str] = {}
        self._known: set[int] = {id(self._handles), id(handles), *map(id, ours)}
        gc.collect()  # what is garbage holds nothing
        for held in gc.get_objects():
            self._look_at(held)
        self._look_for_others()

    def why_held(self, handle: tf.Tensor) -> str:
        """Holder of a handle that cannot be given another, as the end of a sentence; empty without one."""
        return self._reasons.get(id(handle), "")

    def is_placed(self, handle: tf.Tensor) -> bool:
        """Whether a placed function has captured a handle: its ops were put on the variable's present device."""
        return any(
            function in _placed and any(captured is handle for captured in function.captured_inputs)
            for function in self.functions
            if isinstance(function, ConcreteFunction)
        )

    def _look_at(self, found: Any) -> None:
        # ``type``, not ``isinstance``: that asks an object for its class, which may be anybody's code.
        kind = type(found)
        if issubclass(kind, ConcreteFunction | FuncGraph):
            containers = capture_containers(found)
            held = [h for container in containers for h in _held_in(container) if id(h) in self._handles]
            if held:
                self.functions.append(found)
                self._known |= {id(container) for container in containers}
            if held and issubclass(kind, ConcreteFunction) and internals.is_dataset_function(found):
                self._say(held, "a tf.data dataset reads it")
            elif held and issubclass(kind, ConcreteFunction) and internals.is_compiled_function(found):
                self._say(
                    held, "a function with jit_compile=True, which is one program for one device, reads it"
                )
        elif issubclass(kind, BaseResourceVariable):
            if id(storage(found)) in self._handles:
                self.variables[id(storage(found))].append(found)
                self._known |= {id(found), id(vars(found))}
        elif issubclass(kind, tf.GradientTape):
            for variable in internals.watched_variables(found):
                self._say(
                    [storage(variable)], "a tf.GradientTape that has read it can still be asked for gradients"
                )
        elif issubclass(kind, tf.autodiff.ForwardAccumulator) and internals.is_recording_forward(found):
            self._say(self._handles.values(), "a tf.autodiff.ForwardAccumulator is recording")

    def _look_for_others(self) -> None:
        references_to = dict.fromkeys(self._handles, 0)
        for holder in gc.get_referrers(*self._handles.values()):
            held = [number for number in map(id, gc.get_referents(holder)) if number in references_to]
            for number in held:
                references_to[number] += 1
            is_ours = (
                id(holder) in self._known or isinstance(holder, types.FrameType) or is_identity_key(holder)
            )
            if not is_ours:
                kind = f"{type(holder).__module__}.{type(holder).__qualname__}".removeprefix("builtins.")
                for number in held:
                    self._reasons.setdefault(number, f"an object of type {kind} holds its handle")
        for number, references in references_to.items():
            # One more: what is asked about is an argument. Names in functions that run are no objects with references.
            if sys.getrefcount(self._handles[number]) > references + 1:
                self._reasons.setdefault(number, "something holds its handle, a local name, say")

    def _say(self, handles: Iterable[Any], why: str) -> None:
        for handle in handles:
            if id(handle) in self._handles:
                self._reasons.setdefault(id(handle), why)

    def look_at_threads(self, *, for_a_while: bool = False) -> None:
        """Looks whether other threads use the variables, once or for a while; ``why_held`` then says so."""
        for look in range(_LOOKS if for_a_while and len(sys._current_frames()) > 1 else 1):
            if look:
                time.sleep(_LOOK_EVERY_S)
            self._reasons |= self._in_use()

    def _in_use(self) -> dict[int, str]:
        """Id of a handle -> thread that is using the handle right now, as the end of a sentence.

        Another thread that is inside TensorFlow with the handle, its variable or a function that captured it will go on
        with the old storage.
        """
        owners = {number: {number} for number in self._handles}
        for number, variables in self.variables.items():
            owners |= {id(variable): {number} for variable in variables}
        for function in self.functions:
            held = {id(h) for container in capture_containers(function) for h in _held_in(container)}
            owners[id(function)] = held & self._handles.keys()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        users: dict[int, str] = {}
        for ident, innermost in list(sys._current_frames().items()):
            frame: types.FrameType | None = innermost if ident != threading.get_ident() else None
            while frame is not None:
                if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _TENSORFLOW:
                    values = list(frame.f_locals.values())
                    # What lists and tuples hold is used, too.
                    values += [held for value in values if type(value) in (list, tuple) for held in value]
                    for number in itertools.chain.from_iterable(
                        owners.get(id(value), ()) for value in values
                    ):
                        users[number] = f"thread {names.get(ident, str(ident))!r} is using it"
                frame = frame.f_back
        return users


def _held_in(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


_FOR_LONG_S = 1000.0
PLACED_BEFORE = "a function that was placed before reads it there"
_MOVING = threading.Lock()  # one at a time: what is found to hold a variable must be so until it has moved


def move_to_devices(variables: Iterable[tuple[tf.Variable, str]]) -> None:
    """Gives variables storage on other devices, each a full device string, with their values.

    They stay the same Python objects: checkpoints, Keras and optimizers go on reading and writing them. Functions
    traced earlier know their storage, not the objects; every one that lives gets the new one, so that none goes on
    with what is left behind. The variables have values and can be moved (``check_movable``).

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
        _check_can_follow(
            Storages([variable.handle for variable, _ in elsewhere]), elsewhere, is_watched=True
        )
        with tf.init_scope():
            moves = [_Move(variable, device) for variable, device in elsewhere]
            switch_s = sys.getswitchinterval()
            # Keeps the interpreter's lock as long as nothing below releases the lock, as an op would.
            sys.setswitchinterval(_FOR_LONG_S)
            try:
                # Once more: other threads have run since. From here to the last function none does.
                ours = [*moves, *map(vars, moves)]
                storages = Storages([move.old for move in moves], ours)
                _check_can_follow(storages, elsewhere)
                for move in moves:
                    for variable in storages.variables[id(move.old)]:
                        internals.set_storage(variable, move.new)
                new_of = {id(move.old): move.new for move in moves}
                tell_of_lost_state(storages.functions, "variables move to other devices")
                for function in storages.functions:
                    replace_captures(function, lambda captured: new_of.get(id(captured), captured))
            finally:
                sys.setswitchinterval(switch_s)
            for move in moves:
                move.catch_up()


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
            self.new = internals.new_storage(variable, self._copied)

    def _read_old(self) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=self.old, dtype=self.variable.dtype)

    def catch_up(self) -> None:
        """Copies a value again that a thread changed during the copy; nothing holds the old storage now."""
        latest, copied = self._read_old(), self._copied
        is_same = latest.shape == copied.shape
        if is_same and latest.dtype == tf.string:
            is_same = bool(tf.reduce_all(latest == copied))
        elif is_same:
            new, old = np.asarray(latest.numpy()), np.asarray(copied.numpy())
            # As long as a read value is kept, an update has to make a new buffer: the same one has the same bytes.
            is_same = new.__array_interface__["data"] == old.__array_interface__["data"]
            is_same = is_same or new.tobytes() == old.tobytes()
        if not is_same:
            self.variable.assign(latest)


def why_variables_stay(handles: Mapping[str, tf.Tensor]) -> dict[str, str]:
    """Name -> why the variable of a handle should not move, as the end of a sentence; movable ones are left out.

    Something holds it that cannot follow when it moves, or a function was placed around it.
    """
    if not handles:
        return {}
    storages = Storages(list(handles.values()), ours=[handles])
    storages.look_at_threads(for_a_while=True)
    reasons = {
        name: storages.why_held(handle) or (PLACED_BEFORE if storages.is_placed(handle) else "")
        for name, handle in handles.items()
    }
    return {name: why for name, why in reasons.items() if why}


def check_movable(variables: Iterable[tf.Variable]) -> None:
    """Raises InputError where one is a distribution strategy's: whole, or a copy that must stay with its replica."""
    by_id: dict[int, tf.Variable] = {}
    for variable in variables:
        if not isinstance(variable, BaseResourceVariable) or variable.handle.is_packed:
            raise InputError(
                f"variable {variable.name!r} is a {type(variable).__name__}, which cannot be moved; "
                'create it outside of tf.distribute strategies, or place with variables="stay"'
            )
        by_id[id(variable)] = variable
    if not by_id:
        return
    for held in gc.get_objects():
        # ``type``, not ``isinstance``: that asks an object for its class, which may be anybody's code.
        if issubclass(type(held), tf.distribute.DistributedValues):
            for component in getattr(held, "values", ()):
                if id(component) in by_id:
                    raise InputError(
                        f"variable {component.name!r} is a copy that a tf.distribute strategy keeps for one replica, "
                        "so it cannot be moved; a strategy splits the batch and placing splits the step: use one of "
                        'them, and make the model outside of the scope for this one, or place with variables="stay"'
                    )


def variables_of_handles(
    handles: Iterable[tf.Tensor], likely: Iterable[tf.Variable] = ()
) -> dict[int, tf.Variable]:
    """Id of a handle -> its variable in this process; handles without a variable are left out.

    ``likely`` variables are looked at first. A traced function lists those that it read as such: not the state of a
    ``tf.random.Generator``, say, whose ops take the handle. The others are found by looking through everything.
    """
    handle_ids = {id(handle) for handle in handles}
    variables = {id(variable.handle): variable for variable in likely}
    if handle_ids <= variables.keys():
        return variables
    living = [held for held in gc.get_objects() if isinstance(held, BaseResourceVariable)]
    return variables | {id(storage(held)): held for held in living if id(storage(held)) in handle_ids}
