"""Source of a program: a workload, a SavedModel, a MetaGraphDef, or a function or Keras model of a script."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import operator
import pathlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, Function
from tf_placer import workloads
from tf_placer.automatic.auto_placed import AutoPlaced
from tf_placer.base.arguments import InputError, named, shown
from tf_placer.base.eager import eagerly
from tf_placer.command_line.script import Called, Script
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import (
    SERVING,
    GraphFile,
    InputShapes,
    SavedModel,
    read_meta_graph_file,
    read_saved_model,
)
from tf_placer.planning.forecast import Program
from tf_placer.report.views import FUNCTION, MODEL, PLAIN, WRAPPED
from tf_placer.transform.split import split
from tf_placer.workloads.registry import is_kept

_EXAMPLE_ARGS = "example_args"
_FOR_GOOD = contextlib.ExitStack()  # for the rest of the process


@dataclasses.dataclass(frozen=True)
class Source(Program):
    """Program to place: exactly one of five kinds."""

    workload: str | None = None  # a name of ``tf_placer.workloads.names()``
    saved_model: str | None = None  # folder of a SavedModel; with ``signature``
    signature: str = "serving_default"
    meta_graph: str | None = None  # file of a MetaGraphDef or GraphDef; with ``fetches``
    fetches: tuple[str, ...] = ()  # tensors ("node:i") and ops ("node")
    batch_size: int = 32  # stands for dimensions of any size
    model: SavedModel | None = None  # the SavedModel, once read for all signatures
    script: str | None = None  # ``FILE.py:NAME`` or ``package.module:NAME``; with ``args``
    args: str | None = None  # name in the script of the arguments
    input_shapes: InputShapes = dataclasses.field(default_factory=dict)  # input -> shape, where open
    tags: tuple[str, ...] = SERVING  # of the graph of a SavedModel
    # positions of ops that are not split, of those that are done again, and of those parked, as a plan has them
    kept_whole: tuple[int, ...] = ()
    recomputed: tuple[int, ...] = ()
    parked: tuple[tuple[int, int], ...] = ()
    # Of a script that ran.
    items: list[Item] = dataclasses.field(default_factory=list, compare=False, repr=False)

    @property
    def is_anew(self) -> bool:
        """True if the graph must still be traced, which takes long; a traced one is kept."""
        return self.workload is not None and not is_kept(self.workload)

    @property
    def name(self) -> str:
        """Name in reports."""
        if self.script:
            return Script.named(self.script).name
        path = pathlib.Path(self.saved_model or self.meta_graph or self.graph or "")
        return self.workload or path.resolve().name

    @property
    def called(self) -> str:
        """Kind of a script's program in Python, once the script has run (``kind_of``); else empty."""
        return kind_of(Script.named(self.script)) if self.script and self.items else ""

    def read_model(self) -> SavedModel:
        """Its SavedModel, unless ``model`` is that already."""
        return self.model or read_saved_model(self.saved_model or "", self.tags)

    def item(self) -> Item:
        """Reads or builds the program, and splits its batch."""
        if self.workload:
            item = workloads.build(self.workload)
        elif self.script:
            if not self.items:  # it runs once
                self.items.append(script_item(Script.named(self.script), self.args, self.batch_size))
            item = self.items[0]
        elif self.saved_model:
            model = self.read_model()
            item = Item.from_saved_model(model, self.signature, self.batch_size, self.name, self.input_shapes)
        else:
            graph = self.read_meta_graph().meta_graph
            item = Item.from_meta_graph(graph, self.fetches, self.name, self.batch_size, self.input_shapes)
        names = item.index.names
        # A plan of another program is refused where it is applied, and says what it is of.
        kept_whole = [names[op] for op in self.kept_whole if op < len(names)]
        with named("the plan's split") if self.recomputed or self.parked else contextlib.nullcontext():
            return split(item, self.parts, self.batch_statistics, kept_whole, self.recomputed, self.parked)

    def read_meta_graph(self) -> GraphFile:
        """The file of a graph, parsed."""
        return read_meta_graph_file(pathlib.Path(self.meta_graph or ""), f"--meta_graph={self.meta_graph}")


def script_item(script: Script, args: str | None, batch_size: int) -> Item:
    """Imports a script and makes a program of the named function or model.

    The arguments are, in this order: what ``args`` names; the function's own ``input_signature``; ``NAME_args`` in the
    script; ``example_args`` there; the script's first call of the function, where the script ends. Each is a tuple of
    arguments, a single argument, or a function without parameters that gives one of these; a ``tf.TensorSpec`` stands
    for zeros, ``batch_size`` for dimensions of any size. A script that makes no call when it is imported is run as
    ``__main__`` for it.
    """
    first_call = _FirstCall(script, args is None)
    with first_call.awaited():
        module = script.imported()
        if first_call.may_be_in_main(module):
            module = script.run_as_main()
    # What comes after the program, up to the last file, is ours, and the script may have switched all of this off.
    _FOR_GOOD.enter_context(eagerly())
    program = script.find(module)
    if isinstance(program, AutoPlaced):
        program = program.unplaced
    if isinstance(program, type) or not callable(program):
        kind = f"the class {program.__name__}" if isinstance(program, type) else shown(program)
        raise InputError(
            f"{script.said}: {script.name} is {kind}; name a tf.function, a Python function or a Keras model"
        )

    def sized(value: Any) -> Any:
        """A spec with ``batch_size`` for each open size; other values unchanged."""
        if not isinstance(value, tf.TensorSpec):
            return value
        if value.shape.rank is None:
            remedy = "give a tensor, or a tf.TensorSpec with a rank"
            raise InputError(f"{script.said}: {shown(value)} says nothing of the shape; {remedy}")
        sizes = [batch_size if size is None else size for size in value.shape]
        return tf.TensorSpec(sizes, value.dtype, value.name)

    with script.errors_told("it must run when it is traced with its example arguments"):
        function = program
        names = [name for name in (script.args_name, _EXAMPLE_ARGS) if hasattr(module, name)]
        if args is not None:
            stated: tuple | None = _as_arguments(script.find(module, args))
        else:
            stated = _signature(program)
        if stated is None and names:
            stated = _as_arguments(getattr(module, names[0]))
        if stated is None:  # only a call can tell
            function, stated = first_call.of(program)
        example_args = tf.nest.map_structure(sized, stated)
        if _is_trained(program):  # the step does what ``fit`` does with a batch
            if not program.built:
                batch = tf.nest.map_structure(
                    lambda x: tf.zeros(x.shape, x.dtype) if isinstance(x, tf.TensorSpec) else x,
                    example_args[0],
                )
                program(batch)
            program.optimizer.build(program.trainable_variables)

            @tf.function
            def train_step(*data: Any) -> Any:
                return program.train_step(data)

            function = train_step
        return Item.from_function(function, *example_args, name=script.name)


class _FirstCall:
    """Ends a script at its first call of the placed function, and keeps the arguments; nothing is placed meanwhile."""

    def __init__(self, script: Script, may_end: bool) -> None:
        self._script, self._may_end = script, may_end
        self._arguments: tuple | None = None  # those by position first
        self._keywords: tuple[str, ...] = ()  # of the last ones
        self._code_names = {"__call__", script.name.rpartition(".")[2]}

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        profiles, tell = (sys.getprofile(), threading.getprofile()), threading.excepthook
        make = keras.Model.make_train_function

        def make_train_function(model: keras.Model, force: bool = False) -> None:
            """A model's function of batches for ``fit``; the placed model's ends the script."""
            make(model, force)
            if model is self._named() and self._is_wanted():
                model.train_function = lambda batches: self._end(_as_arguments(next(batches)), ())

        with contextlib.ExitStack() as restored:
            for owner, name, substitute in (
                (AutoPlaced, "__call__", lambda placed, *args, **kwargs: placed.unplaced(*args, **kwargs)),
                (keras.Model, "make_train_function", make_train_function),
                (threading, "excepthook", lambda error: error.exc_type is Called or tell(error)),
            ):
                restored.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, substitute)
            threading.setprofile(self._entered)
            sys.setprofile(self._entered)
            try:
                yield
            finally:
                sys.setprofile(profiles[0])
                threading.setprofile(profiles[1])

    def _entered(self, frame: types.FrameType, event: str, _: Any) -> None:
        """Looks at a call as a profiler does: a ``tf.function`` is an object whose ``__call__`` is called."""
        code = frame.f_code
        if event != "call" or code.co_name not in self._code_names or not self._may_end:
            return
        named = self._named()
        is_python = isinstance(named, types.FunctionType | types.MethodType)
        is_own = is_python and inspect.unwrap(named).__code__ is code  # decorators are no part of it
        is_object = code.co_name == "__call__" and callable(named) and not isinstance(named, keras.Model)
        if not is_own and not is_object:
            return  # a call of a model may come before it is compiled
        passed = inspect.getargvalues(frame)
        args = [passed.locals[name] for name in passed.args[: code.co_argcount]]
        owner = getattr(named, "__self__", None) if is_own else named
        if owner is not None and args.pop(0) is not owner:
            return
        args += passed.locals[passed.varargs] if passed.varargs else ()
        by_name = {name: passed.locals[name] for name in passed.args[code.co_argcount :]}
        by_name |= passed.locals[passed.keywords] if passed.keywords else {}
        signature = inspect.signature(getattr(named, "python_function", named))  # of a tf.function
        bound = signature.bind(*args, **by_name)
        bound.apply_defaults()
        keywords = tuple(name for name in bound.kwargs if name in by_name)
        self._end((*bound.args, *(by_name[name] for name in keywords)), keywords)

    def _named(self) -> Any:
        """The name's current value; None before its assignment."""
        try:
            value = operator.attrgetter(self._script.name)(sys.modules.get(self._script.module))
        except AttributeError:
            return None
        return value.unplaced if isinstance(value, AutoPlaced) else value

    def _is_wanted(self) -> bool:
        """False where the script states the arguments itself, perhaps further down."""
        names = {self._script.args_name, _EXAMPLE_ARGS}
        self._may_end = self._may_end and names.isdisjoint(self._script.code().co_names)
        return self._may_end

    def _end(self, arguments: tuple, keywords: tuple[str, ...]) -> None:
        if self._is_wanted():
            if self._arguments is None:
                self._arguments, self._keywords = arguments, keywords
            raise Called(sys.modules[self._script.module])

    def may_be_in_main(self, module: types.ModuleType) -> bool:
        """True where an imported script leaves the arguments open, and may make the call as ``__main__``."""
        named = self._named()
        code, owner = self._script.code(), self._script.name.partition(".")[0]
        # It has ``if __name__ == "__main__":``, and the name that is meant outside functions.
        has_main = "__main__" in code.co_consts and {"__name__", owner} <= set(code.co_names)
        if self._arguments is not None or not self._is_wanted() or not has_main:
            return False
        if named is None:
            return not hasattr(module, owner)
        is_function = callable(named) and not isinstance(named, type)
        return is_function and _signature(named) is None and not _needs_no_arguments(named)

    def of(self, function: Any) -> tuple[Any, tuple]:
        """The function, callable with arguments by position, and the call's arguments."""
        if self._arguments is None and _needs_no_arguments(function):
            return function, ()
        if self._arguments is None:
            raise self._unknown(function, f"the arguments of {self._script.name} are not known")

        def example(value: Any) -> Any:
            if not any(map(tf.is_symbolic_tensor, tf.nest.flatten(value, expand_composites=True))):
                return value
            if isinstance(value, tf.Tensor) and value.shape.is_fully_defined():
                return tf.TensorSpec(value.shape, value.dtype)
            why = f"{self._script.name} is called in a graph, where {shown(value)} has no known size"
            raise self._unknown(function, why)

        values = tf.nest.map_structure(example, self._arguments)
        names, count = self._keywords, len(values) - len(self._keywords)

        @tf.function
        def call(*values: Any) -> Any:
            return function(*values[:count], **dict(zip(names, values[count:], strict=True)))

        return (call if names else function), values

    def _unknown(self, function: Any, why: str) -> InputError:
        is_trained, name = _is_trained(function), self._script.args_name
        own = "" if isinstance(function, keras.Model) else "give it an input_signature, or "
        batch, call = ("a batch (x, y)", "its fit") if is_trained else ("a tuple", "it")
        return InputError(
            f"{self._script.said}: {why}; {own}set {name} in the script to {batch} (--args=NAME for another name), "
            f"or call {call} in the script"
        )


def kind_of(script: Script) -> str:
    """What a script's name stands for, after ``script_item``: ``MODEL``, ``WRAPPED``, ``FUNCTION`` or ``PLAIN``.

    Empty where it is there in ``__main__`` only, so that no other program can import it.
    """
    module = sys.modules[script.module]
    if not hasattr(getattr(module, "__imported__", module), script.name.partition(".")[0]):
        return ""
    program = script.find(module)
    if _is_trained(program):
        return MODEL
    return (
        WRAPPED if isinstance(program, AutoPlaced) else FUNCTION if isinstance(program, Function) else PLAIN
    )


def _is_trained(value: Any) -> bool:
    """True for a Keras model compiled with a loss, whose step trains."""
    return isinstance(value, keras.Model) and value.compiled and value.loss is not None


def _as_arguments(value: Any) -> tuple:
    if callable(value) and not isinstance(value, tf.TypeSpec):
        value = value()
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _signature(function: Any) -> tuple | None:
    if isinstance(function, ConcreteFunction):
        count = len(function.inputs) - len(function.captured_inputs)
        return tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in function.inputs[:count])
    if isinstance(function, Function):
        return function.input_signature
    # A model of layers has inputs; one that is a Python class, or has not been built, has none.
    inputs = getattr(function, "inputs", None) if isinstance(function, keras.Model) else None
    if not inputs or _is_trained(function):
        return None
    structure = inputs[0] if len(inputs) == 1 else function.input
    return (tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), structure),)


def _needs_no_arguments(function: Any) -> bool:
    if isinstance(function, keras.Model):
        return False
    parameters = inspect.signature(getattr(function, "python_function", function)).parameters.values()
    return all(parameter.default is not parameter.empty for parameter in parameters)
