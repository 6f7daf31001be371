"""Program of a script: a function or a Keras model, with example arguments that the script gives."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, Function
from tf_placer.automatic.auto_placed import AutoPlaced
from tf_placer.base.arguments import InputError, shown
from tf_placer.base.eager import eagerly_from_here
from tf_placer.command_line.scripts.script import Script
from tf_placer.graph.item import Item
from tf_placer.report.page import FUNCTION, MODEL, PLAIN, WRAPPED

_EXAMPLE_ARGS = "example_args"


def script_item(script: Script, args: str | None, batch_size: int) -> Item:
    """Imports a script and makes a program of what it names.

    The arguments are, in this order: what ``args`` names; the function's own ``input_signature``; ``NAME_args`` in the
    script; ``example_args`` there. Each is a tuple of arguments, a single argument, or a function without parameters
    that gives one of these; a ``tf.TensorSpec`` stands for zeros.

    Args:
      script: what of which script.
      args: a name in the script, or None.
      batch_size: stands for dimensions of any size.

    Raises:
      InputError: the script fails, has no such name, does not say its arguments, or what it names cannot be traced.
    """
    module = script.imported()
    eagerly_from_here()  # what comes after the program, up to the last file, is ours
    found = script.find(module)
    if isinstance(found, AutoPlaced):
        found = found.unplaced
    if isinstance(found, type) or not callable(found):
        raise InputError(
            f"{script.said}: {script.name} is {_kind(found)}; name a tf.function, a Python function or a Keras model"
        )
    with script.errors_told("it must run when it is traced with its example arguments"):
        given = _arguments(script, module, found, args)
        example_args = tf.nest.map_structure(lambda value: _sized(script, value, batch_size), given)
        function = _train_step(found, example_args) if _is_trained(found) else found
        return Item.from_function(function, *example_args, name=script.name)


def kind_of(script: Script) -> str:
    """What a script's name stands for, after ``script_item``: ``MODEL``, ``WRAPPED``, ``FUNCTION`` or ``PLAIN``."""
    found = script.find(sys.modules[script.module])
    if _is_trained(found):
        return MODEL
    return WRAPPED if isinstance(found, AutoPlaced) else FUNCTION if isinstance(found, Function) else PLAIN


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else shown(value)


def _is_trained(value: Any) -> bool:
    """True for a Keras model that was compiled with a loss: a step of it trains."""
    return isinstance(value, keras.Model) and value.compiled and value.loss is not None


def _arguments(script: Script, module: types.ModuleType, function: Any, args: str | None) -> tuple:
    """The example arguments, with sizes that are open."""
    if args is not None:
        return _as_arguments(script.find(module, args))
    signature = _signature(function)
    if signature is not None:
        return signature
    for name in (f"{script.name.replace('.', '_')}_args", _EXAMPLE_ARGS):
        if hasattr(module, name):
            return _as_arguments(getattr(module, name))
    if _needs_no_arguments(function):
        return ()
    batch = "a batch (x, y)" if _is_trained(function) else "a tuple"
    own = "" if isinstance(function, keras.Model) else "give it an input_signature, or "
    raise InputError(
        f"{script.said}: the arguments of {script.name} are not known; {own}set {script.name.replace('.', '_')}_args "
        f"in the script to {batch}, or name what gives them: --args=NAME"
    )


def _as_arguments(value: Any) -> tuple:
    """A tuple of arguments, of what a script has for it."""
    if callable(value) and not isinstance(value, tf.TypeSpec):
        value = value()
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _signature(function: Any) -> tuple | None:
    """Input signature of a function; None where it states none."""
    if isinstance(function, ConcreteFunction):
        count = len(function.inputs) - len(function.captured_inputs)
        return tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in function.inputs[:count])
    if isinstance(function, Function):
        return function.input_signature
    if isinstance(function, keras.Model) and not _is_trained(function):
        return _inputs_of_model(function)
    return None


def _inputs_of_model(model: keras.Model) -> tuple | None:
    """Input specs of a model of layers; None for one that is a Python class, or has not been built."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return None
    structure = inputs[0] if len(inputs) == 1 else model.input
    return (tf.nest.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), structure),)


def _needs_no_arguments(function: Any) -> bool:
    """True if a function can be called without arguments."""
    if isinstance(function, keras.Model):
        return False
    python = function.python_function if isinstance(function, Function) else function
    parameters = inspect.signature(python).parameters.values()
    return all(one.default is not one.empty for one in parameters)


def _sized(script: Script, value: Any, batch_size: int) -> Any:
    """A spec with ``batch_size`` for each size that it leaves open; anything else as it is."""
    if not isinstance(value, tf.TensorSpec):
        return value
    if value.shape.rank is None:
        raise InputError(
            f"{script.said}: {shown(value)} says nothing of the shape; give a tensor, or a tf.TensorSpec with a rank"
        )
    return tf.TensorSpec(
        [batch_size if size is None else size for size in value.shape], value.dtype, value.name
    )


def _train_step(model: keras.Model, batch: tuple) -> Callable[..., Any]:
    """A function of a batch that does what ``fit`` does with one: forward, loss, gradients, update, metrics."""
    if not model.built:
        model(tf.nest.map_structure(_zeros, batch[0]))
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(*data: Any) -> Any:
        return model.train_step(data)

    return train_step


def _zeros(value: Any) -> Any:
    return tf.zeros(value.shape, value.dtype) if isinstance(value, tf.TensorSpec) else value
