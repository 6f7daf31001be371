"""Finds what holds a variable's storage and cannot follow when the variable moves.

A variable's Python object, and every traced function that captured its handle, can be given new storage. A dataset, a
gradient tape and a call that another thread is making keep the old handle: they would go on with the values of before.
What XLA compiles finds its variables on its own device only. So a variable that one of these holds stays where it is.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from colocation.tensorflow_internals import (
    BaseResourceVariable,
    ConcreteFunction,
    FuncGraph,
    capture_containers,
    is_compiled_function,
    is_dataset_function,
    is_identity_key,
    is_recording_forward,
    storage,
    watched_variables,
)

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

        Args:
          handles: of eager variables.
          ours: other containers of handles that are the caller's own, and hold nothing.
        """
        self._handles = {id(handle): handle for handle in handles}
        self.variables: dict[int, list[BaseResourceVariable]] = {number: [] for number in self._handles}
        self.functions: list[ConcreteFunction | FuncGraph] = []
        self._reasons: dict[int, str] = {}
        self._known: set[int] = {id(self._handles), id(handles), *map(id, ours)}
        gc.collect()  # what is garbage holds nothing
        for found in gc.get_objects():
            self._look_at(found)
        self._look_for_others()

    def why_held(self, handle: tf.Tensor) -> str:
        """What holds a handle and cannot be given another, as the end of a sentence; empty where nothing does."""
        return self._reasons.get(id(handle), "")

    def is_placed(self, handle: tf.Tensor) -> bool:
        """Whether a placed function has a handle: it could follow, but its ops were put where the variable is now."""
        return any(
            function in _placed and any(captured is handle for captured in function.captured_inputs)
            for function in self.functions
            if isinstance(function, ConcreteFunction)
        )

    def _look_at(self, found: Any) -> None:
        # ``type``, not ``isinstance``: that asks an object for its class, which may be anybody's code.
        kind = type(found)
        if issubclass(kind, ConcreteFunction | FuncGraph):
            self._look_at_function(found)
        elif issubclass(kind, BaseResourceVariable):
            if id(storage(found)) in self._handles:
                self.variables[id(storage(found))].append(found)
                self._known |= {id(found), id(vars(found))}
        elif issubclass(kind, tf.GradientTape):
            for variable in watched_variables(found):
                self._say(
                    [storage(variable)], "a tf.GradientTape that has read it can still be asked for gradients"
                )
        elif issubclass(kind, tf.autodiff.ForwardAccumulator) and is_recording_forward(found):
            self._say(self._handles.values(), "a tf.autodiff.ForwardAccumulator is recording")

    def _look_at_function(self, function: ConcreteFunction | FuncGraph) -> None:
        containers = capture_containers(function)
        held = [one for container in containers for one in _held_in(container) if id(one) in self._handles]
        if not held:
            return
        self.functions.append(function)
        self._known |= {id(container) for container in containers}
        if not isinstance(function, ConcreteFunction):
            return
        if is_dataset_function(function):
            self._say(held, "a tf.data dataset reads it")
        elif is_compiled_function(function):
            self._say(held, "a function with jit_compile=True, which is one program for one device, reads it")

    def _look_for_others(self) -> None:
        found = dict.fromkeys(self._handles, 0)
        for holder in gc.get_referrers(*self._handles.values()):
            held = [number for number in map(id, gc.get_referents(holder)) if number in found]
            for number in held:
                found[number] += 1
            is_ours = (
                id(holder) in self._known or isinstance(holder, types.FrameType) or is_identity_key(holder)
            )
            if not is_ours:
                kind = f"{type(holder).__module__}.{type(holder).__qualname__}".removeprefix("builtins.")
                for number in held:
                    self._reasons.setdefault(number, f"an object of type {kind} holds its handle")
        for number, references in found.items():
            # One more: what is asked about is an argument. Names in functions that run are no objects with references.
            if sys.getrefcount(self._handles[number]) > references + 1:
                self._reasons.setdefault(number, "something holds its handle, a local name, say")

    def _say(self, handles: Iterable[Any], why: str) -> None:
        for handle in handles:
            if id(handle) in self._handles:
                self._reasons.setdefault(id(handle), why)

    def look_at_threads(self, *, for_a_while: bool = False) -> None:
        """Looks whether other threads use the variables; ``why_held`` then says so.

        Args:
          for_a_while: look again and again, with time for the threads to go on; otherwise once, at this moment.
        """
        for look in range(_LOOKS if for_a_while and len(sys._current_frames()) > 1 else 1):
            if look:
                time.sleep(_LOOK_EVERY_S)
            self._reasons |= self._in_use()

    def _in_use(self) -> dict[int, str]:
        """Id of a handle -> the thread that is using it at this moment, as the end of a sentence.

        Another thread that is inside TensorFlow with the handle, its variable or a function that captured it will go on
        with the old storage.
        """
        owners = {number: {number} for number in self._handles}
        for number, variables in self.variables.items():
            owners |= {id(variable): {number} for variable in variables}
        for function in self.functions:
            held = {id(one) for container in capture_containers(function) for one in _held_in(container)}
            owners[id(function)] = held & self._handles.keys()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        found: dict[int, str] = {}
        for ident, frame in list(sys._current_frames().items()):
            if ident != threading.get_ident():
                for value in _values_within_tensorflow(frame):
                    for number in owners.get(id(value), ()):
                        found[number] = f"thread {names.get(ident, str(ident))!r} is using it"
        return found


def _held_in(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _values_within_tensorflow(frame: types.FrameType | None) -> Iterator[Any]:
    """The local values of a thread's calls within TensorFlow and Keras, and what lists and tuples among them hold."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _TENSORFLOW:
            for value in list(frame.f_locals.values()):
                yield value
                if type(value) in (list, tuple):
                    yield from value
        frame = frame.f_back
