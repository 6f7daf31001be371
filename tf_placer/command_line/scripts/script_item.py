"""Program of a script: a function or a Keras model, with example arguments that the script gives."""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, Function
from tf_placer.automatic.auto_placed import AutoPlaced
from tf_placer.base.arguments import InputError, shown
from tf_placer.base.eager import eagerly_from_here
from tf_placer.command_line.scripts.script import Called, Script
from tf_placer.graph.item import Item
from tf_placer.report.page import FUNCTION, MODEL, PLAIN, WRAPPED

_EXAMPLE_ARGS = "example_args"


def script_item(script: Script, args: str | None, batch_size: int) -> Item:
    """Imports a script and makes a program of the named function or model.

    The arguments are, in this order: what ``args`` names; the function's own ``input_signature``; ``NAME_args`` in the
    script; ``example_args`` there; the script's first call of the function, where the script ends. Each is a tuple of
    arguments, a single argument, or a function without parameters that gives one of these; a ``tf.TensorSpec`` stands
    for zeros. A script that makes no call when it is imported is run as ``__main__`` for it.

    Args:
      script: what of which script.
      args: a name in the script, or None.
      batch_size: stands for dimensions of any size.

    Raises:
      InputError: the script fails, has no such name, does not say its arguments, or what it names cannot be traced.
    """
    first_call = _FirstCall(script, args is None)
    with first_call.awaited():
        module = script.imported()
        if first_call.may_be_in_main(module):
            module = script.run_as_main()
    eagerly_from_here()  # what comes after the program, up to the last file, is ours
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
        function, stated = program, _arguments(script, module, program, args)
        if stated is None:
            function, stated = first_call.of(program)
        example_args = tf.nest.map_structure(sized, stated)
        if _is_trained(program):
            function = _train_step(program, example_args)
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
        """Watches calls meanwhile."""
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
        bound = _parameters(named).bind(*args, **by_name)
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
        if self._arguments is not None or not self._is_wanted() or not self._script.names_its_own_as_main():
            return False
        if named is None:
            return not hasattr(module, self._script.name.partition(".")[0])
        is_function = callable(named) and not isinstance(named, type)
        return is_function and _signature(named) is None and not _needs_no_arguments(named)

    def of(self, function: Any) -> tuple[Any, tuple]:
        """The function, callable with arguments by position, and the call's arguments.

        Raises:
          InputError: there was no call, or it was in a graph where a size is not known.
        """
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
    found = script.find(module)
    if _is_trained(found):
        return MODEL
    return WRAPPED if isinstance(found, AutoPlaced) else FUNCTION if isinstance(found, Function) else PLAIN


def _is_trained(value: Any) -> bool:
    """True for a Keras model compiled with a loss, whose step trains."""
    return isinstance(value, keras.Model) and value.compiled and value.loss is not None


def _arguments(script: Script, module: types.ModuleType, function: Any, args: str | None) -> tuple | None:
    """The example arguments that a script states, with sizes that are open; None where only a call can tell."""
    if args is not None:
        return _as_arguments(script.find(module, args))
    signature = _signature(function)
    if signature is not None:
        return signature
    for name in (script.args_name, _EXAMPLE_ARGS):
        if hasattr(module, name):
            return _as_arguments(getattr(module, name))
    return None


def _as_arguments(value: Any) -> tuple:
    """A tuple of arguments from a script's value."""
    if callable(value) and not isinstance(value, tf.TypeSpec):
        value = value()
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _signature(function: Any) -> tuple | None:
    """Input signature of a function, or None."""
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


def _parameters(function: Any) -> inspect.Signature:
    return inspect.signature(function.python_function if isinstance(function, Function) else function)


def _needs_no_arguments(function: Any) -> bool:
    """True if a function can be called without arguments."""
    if isinstance(function, keras.Model):
        return False
    return all(one.default is not one.empty for one in _parameters(function).parameters.values())


def _train_step(model: keras.Model, batch: tuple) -> Callable[..., Any]:
    """A function of a batch that does what ``fit`` does with one: forward, loss, gradients, update, metrics."""
    if not model.built:
        as_value = lambda x: tf.zeros(x.shape, x.dtype) if isinstance(x, tf.TensorSpec) else x  # noqa: E731
        model(tf.nest.map_structure(as_value, batch[0]))
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(*data: Any) -> Any:
        return model.train_step(data)

    return train_step
