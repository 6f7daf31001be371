"""Variables of this process: their moves to the devices of a plan, and those that hold the state of random ops.

TensorFlow keeps the state of an op that draws random numbers with a seed in the kernel: a function that is made anew
begins anew. The ops of ``tf.random.Generator`` draw the same numbers from a variable. Written with these, a function
and its copies draw from the same variables, each going on where another was.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation import tensorflow_internals as internals
from colocation.op_facts import BRANCHES, CALLS, LOOPS, control_inputs, data_inputs, new_node
from colocation.tensorflow_internals import (
    BaseResourceVariable,
    ConcreteFunction,
    FuncGraph,
    capture_containers,
    is_dataset_function,
    is_identity_key,
    replace_captures,
    storage,
)
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import outside_functions
from tf_placer.graph.program import fresh_name, functions_in, functions_of, is_compiled
from tf_placer.graph.read_function import function_name

# Op type -> the one that draws the same numbers from a variable, bit for bit.
_WITH_VARIABLE = {
    "RandomStandardNormal": "StatefulStandardNormalV2",
    "RandomUniform": "StatefulUniform",
    "RandomUniformInt": "StatefulUniformInt",
    "TruncatedNormal": "StatefulTruncatedNormal",
}
_PHILOX = 1
# A thread that uses a variable again and again is between two uses for less than most of these looks.
_LOOKS, _LOOK_EVERY_S = 20, 0.0005
_TENSORFLOW = ("tensorflow", "keras")
_FOR_LONG_S = 1000.0
PLACED_BEFORE = "a function that was placed before reads it there"
_MOVING = threading.Lock()  # one at a time: what is found to hold a variable must be so until it has moved
_serial = itertools.count()


@functools.cache
def _has_seeds(op_type: str) -> bool:
    definition = internals.registered_op(op_type)
    return (
        definition is not None
        and definition.is_stateful
        and {"seed", "seed2"} <= {attribute.name for attribute in definition.attr}
        and not any(out.is_ref or out.type == tf.resource.as_datatype_enum for out in definition.output_arg)
    )


class SeededDraws:
    """The ops of a function that draw with a seed, in its loops, branches and calls, too.

    What they draw follows from the seed and from how often they have run.

    Attributes:
      carried: name of an op, with those of the nodes around it -> its state before it has run: counter and key.
      lost: types of the others, whose state nothing but the kernel can hold.
    """

    def __init__(self, concrete: ConcreteFunction) -> None:
        graphs = internals.graphs_of(concrete.graph)
        is_drawing = any(_has_seeds(op.type) for graph in graphs for op in graph.get_operations())
        draws = list(_draws(concrete.graph.as_graph_def())) if is_drawing else []
        self.carried = {
            path: (0, node.attr["seed2"].i, node.attr["seed"].i)
            for path, node, _, _ in draws
            if node.op in _WITH_VARIABLE
        }
        self.lost = sorted({node.op for _, node, _, _ in draws} - _WITH_VARIABLE.keys())

    def __bool__(self) -> bool:
        return bool(self.carried or self.lost)


kept_functions: weakref.WeakSet[ConcreteFunction] = weakref.WeakSet()
"""Traced functions whose kernels are not missed, because none has run, or copies run instead."""


def tell_of_lost_state(functions: Iterable[object], why: str) -> None:
    """Warns of functions whose kernels TensorFlow makes anew, so that the numbers that they draw begin anew.

    ``functions`` are traced ones, among others; ``why`` begins the sentence.
    """
    traced = [f for f in functions if isinstance(f, ConcreteFunction) and not is_dataset_function(f)]
    drawing = [function for function in traced if function not in kept_functions and SeededDraws(function)]
    inside = set[str]().union(*(internals.functions_of(function.graph) for function in traced if drawing))
    outer = [function for function in drawing if tf.compat.as_str(function.name) not in inside]
    if outer:
        names = ", ".join(sorted({function_name(function).partition("__placed_")[0] for function in outer}))
        warnings.warn(
            f"{why}: numbers that {names} may have drawn with a seed before begin anew", stacklevel=2
        )


class RandomState:
    """Variables that the copies of one function draw from, reset by ``tf.random.set_seed`` like kernels."""

    def __init__(self, draws: SeededDraws) -> None:
        self._initial = draws.carried
        self._scope = f"tf_placer_random_state_{next(_serial)}"
        self._seeds = internals.seed_source()
        self._handles: dict[str, tuple[str, tf.Tensor]] = {}  # path -> device, and the variable there
        self._home: Mapping[str, str] = {}  # of the first copy

    def written(self, graph_def: tf.compat.v1.GraphDef) -> dict[str, str]:
        """Has the ops of a graph draw from the variables, in place; returns path -> device of each.

        Every node has functions of its own (``with_functions_of_their_own``).
        """
        devices = {}
        # Open fields of a device are filled as TensorFlow fills them for an op that draws.
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        default = tf.DeviceSpec.from_string(f"{internals.host_address_space()}/device:{kind}:0")
        for path, node, nodes, device in list(_draws(graph_def)):
            if path in self._initial:
                spec = tf.DeviceSpec.from_string(device)
                if spec.device_type not in (None, kind) and spec.device_index is None:
                    spec = spec.replace(device_index=0)
                place = devices[path] = str(default.make_merged_spec(spec).to_string())
                names, of_state = {n.name for n in nodes}, {"dtype": tf.int64, "shape": tf.TensorShape([3])}
                name, shared = fresh_name(f"{node.name}/state", names), f"{self._scope}/{path}".encode()
                handle = new_node("VarHandleOp", name, (), place, **of_state, shared_name=shared)
                name = fresh_name(f"{node.name}/algorithm", names)
                value = tf.make_tensor_proto(_PHILOX, tf.int64)
                algorithm = new_node("Const", name, (), place, dtype=tf.int64, value=value)
                # Names of outputs in a graph, and in a body.
                ends = ("", "") if path == node.name else (":resource:0", ":output:0")
                state = [handle.name + ends[0], algorithm.name + ends[1]]
                node.input[:] = [*state, *data_inputs(node), *control_inputs(node)]
                types = ("Tout", "T") if node.op == "RandomUniformInt" else ("dtype", "T")
                dtype, shape_dtype = (node.attr[name].type for name in types)
                node.op, node.device = _WITH_VARIABLE[node.op], place
                for name in ("seed", "seed2", "T", "Tout"):
                    node.attr.pop(name, None)
                node.attr["dtype"].type, node.attr["shape_dtype"].type = dtype, shape_dtype
                nodes.extend([handle, algorithm])
        return devices

    def move(self, devices: Mapping[str, str]) -> None:
        """Makes the variables, or moves them, to where a copy reads them: path -> device (``written``)."""
        self._home = self._home or devices
        for path, device in devices.items():
            before = self._handles.get(path)
            if before is None or before[0] != device:
                value: object = self._initial[path]
                if before is not None:
                    with outside_functions():
                        value = tf.raw_ops.ReadVariableOp(resource=before[1], dtype=tf.int64).numpy()
                self._assign(path, device, value)

    def move_back(self) -> None:
        """Moves the variables to where the first copy reads them."""
        self.move(self._home)

    def follow_seeds(self) -> None:
        """Starts over where the program has set the seed since; for use before each step."""
        if internals.seed_source() is not self._seeds:
            self._seeds = internals.seed_source()
            for path, (device, _) in list(self._handles.items()):
                self._assign(path, device, self._initial[path])

    def _assign(self, path: str, device: str, value: object) -> None:
        with outside_functions(), tf.device(device):
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.int64, shape=[3], shared_name=f"{self._scope}/{path}", container=""
            )
            tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value, tf.int64))
        self._handles[path] = device, handle


_Draw = tuple[str, node_def_pb2.NodeDef, MutableSequence[node_def_pb2.NodeDef], str]


def _draws(graph_def: tf.compat.v1.GraphDef) -> Iterator[_Draw]:
    """Path, node, list of nodes around and device of each op that draws with a seed.

    A call's ops have the paths that they have as inlined ops. A dataset's functions are left out: an iterator has their
    state. So is what XLA compiles.
    """
    library = functions_of(graph_def.library)

    def walk(
        nodes: MutableSequence[node_def_pb2.NodeDef], scope: str, around: str, calls: tuple[str, ...]
    ) -> Iterator[_Draw]:
        for node in nodes:
            path, device = f"{scope}{node.name}", node.device or around
            if _has_seeds(node.op) and (node.attr["seed"].i or node.attr["seed2"].i):
                yield path, node, nodes, device
            if is_compiled(node) or node.op not in library.keys() | CALLS | LOOPS | BRANCHES:
                continue
            bodies = [(f"{path}/", node.op)] + [
                (f"{path}/" if node.op in CALLS else f"{path}/{key}_{i}/", called.name)
                for key, value in node.attr.items()
                for i, called in enumerate(functions_in(value))
            ]
            for inner, name in bodies:
                if name in library and name not in calls and not is_compiled(library[name]):
                    yield from walk(library[name].node_def, inner, device, (*calls, name))

    yield from walk(graph_def.node, "", "", ())


placed_functions: weakref.WeakSet[ConcreteFunction] = weakref.WeakSet()
"""Functions whose ops were put where their variables are."""


class Storages:
    """Handles of variables, and all objects of this process that hold one of them.

    Attributes:
      variables: id of a handle -> the Python variables that have it; a result of ``assign`` is one of its own.
      functions: traced functions and graphs that have captured one.
      reasons: id of a handle that cannot be given another -> its holder, as the end of a sentence.
    """

    def __init__(self, handles: Sequence[tf.Tensor], ours: Sequence[Any] = ()) -> None:
        """Looks through every object of this process, which takes a tenth of a second or so.

        ``ours`` are other containers of the handles that are the caller's own, and hold nothing.
        """
        self._handles = {id(handle): handle for handle in handles}
        self.variables: dict[int, list[BaseResourceVariable]] = {number: [] for number in self._handles}
        self.functions: list[ConcreteFunction | FuncGraph] = []
        self.reasons: dict[int, str] = {}
        self._known: set[int] = {id(self._handles), id(handles), *map(id, ours)}
        gc.collect()  # what is garbage holds nothing
        for held in gc.get_objects():
            self._look_at(held)
        self._look_for_others()

    def is_placed(self, handle: tf.Tensor) -> bool:
        """Whether a placed function has captured a handle: its ops were put on the variable's present device."""
        return any(
            function in placed_functions and any(captured is handle for captured in function.captured_inputs)
            for function in self.functions
            if isinstance(function, ConcreteFunction)
        )

    def _look_at(self, found: Any) -> None:
        # ``type``, not ``isinstance``: that asks an object for its class, which may be anybody's code.
        kind = type(found)
        if issubclass(kind, ConcreteFunction | FuncGraph):
            held = self._captured(found)
            if held:
                self.functions.append(found)
                self._known |= {id(container) for container in capture_containers(found)}
            if held and issubclass(kind, ConcreteFunction) and internals.is_dataset_function(found):
                self._say(held, "a tf.data dataset reads it")
            elif held and issubclass(kind, ConcreteFunction) and is_compiled(found.function_def):
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

    def _captured(self, function: ConcreteFunction | FuncGraph) -> list[tf.Tensor]:
        """Handles that a function has captured."""
        containers = capture_containers(function)
        held = (entry.values() if isinstance(entry, dict) else entry for entry in containers)
        return [value for value in itertools.chain.from_iterable(held) if id(value) in self._handles]

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
                    self.reasons.setdefault(number, f"an object of type {kind} holds its handle")
        for number, references in references_to.items():
            # One more: what is asked about is an argument. Names in functions that run are no objects with references.
            if sys.getrefcount(self._handles[number]) > references + 1:
                self.reasons.setdefault(number, "something holds its handle, a local name, say")

    def _say(self, handles: Iterable[Any], why: str) -> None:
        for handle in handles:
            if id(handle) in self._handles:
                self.reasons.setdefault(id(handle), why)

    def look_at_threads(self, *, for_a_while: bool = False) -> None:
        """Looks whether other threads use the variables, once or for a while; ``reasons`` then say so."""
        for look in range(_LOOKS if for_a_while and len(sys._current_frames()) > 1 else 1):
            if look:
                time.sleep(_LOOK_EVERY_S)
            self.reasons |= self._in_use()

    def _in_use(self) -> dict[int, str]:
        """Id of a handle -> thread that is using the handle right now, as the end of a sentence.

        Another thread that is inside TensorFlow with the handle, its variable or a function that captured it will go on
        with the old storage.
        """
        owners = {number: {number} for number in self._handles}
        for number, variables in self.variables.items():
            owners |= {id(variable): {number} for variable in variables}
        for function in self.functions:
            owners[id(function)] = set(map(id, self._captured(function)))
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


def move_to_devices(variables: Iterable[tuple[tf.Variable, str]]) -> None:
    """Gives variables storage on other devices, each a full device string, with their values.

    They stay the same Python objects: checkpoints, Keras and optimizers go on reading and writing them. Functions
    traced earlier know their storage, not the objects; every one that lives gets the new one, so that none goes on
    with what is left behind. The variables have values and can be moved (``check_movable``).

    Raises:
      InputError: something that cannot follow holds a variable (``Storages``); none has moved then.
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
        why = storages.reasons.get(id(variable.handle))
        if why:
            raise InputError(
                f"variable {variable.name!r} cannot move now: {why}; place first, before it is used there"
            )


class _Move:
    """One variable's old and new storage, and the value that was copied from one to the other."""

    def __init__(self, variable: tf.Variable, device: str) -> None:
        self.variable, self.old = variable, variable.handle
        self._copied = tf.raw_ops.ReadVariableOp(resource=self.old, dtype=variable.dtype)
        with tf.device(device):
            self.new = internals.new_storage(variable, self._copied)

    def catch_up(self) -> None:
        """Copies a value again that a thread changed during the copy; nothing holds the old storage now."""
        latest = tf.raw_ops.ReadVariableOp(resource=self.old, dtype=self.variable.dtype)
        copied = self._copied
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
        name: storages.reasons.get(id(handle)) or (PLACED_BEFORE if storages.is_placed(handle) else "")
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
