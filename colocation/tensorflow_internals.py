"""What the project takes from TensorFlow beside its public API: nothing else imports or reads a private name of it.

TensorFlow may move these in any release. Each is exercised by ``tests/colocation/tensorflow_internals_test.py``, so an
upgrade that moves one fails there by name. It is in the lowest band because ``colocation`` reads op definitions, and it
imports nothing that ``import tensorflow`` has not loaded.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import device_attributes_pb2, function_pb2, kernel_def_pb2, op_def_pb2
from tensorflow.python.client import device_lib
from tensorflow.python.eager import context, lift_to_graph
from tensorflow.python.eager.polymorphic_function import function_type_utils, tracing_compilation
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework import function_def_to_graph, kernels, op_def_registry, ops, tensor_util
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_util
from tensorflow.python.ops.handle_data_util import copy_handle_data, get_resource_handle_data
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable
from tensorflow.python.util import tf_decorator

__all__ = [
    "BaseResourceVariable",
    "ConcreteFunction",
    "FuncGraph",
    "Function",
    "Initializers",
    "WrappingFunction",
    "add_function",
    "call_flat",
    "called_graph",
    "concrete_function_like",
    "copy_handle_data",
    "eager_mode",
    "first_run",
    "first_trace",
    "folded_constant",
    "get_resource_handle_data",
    "graph_of_function_def",
    "host_address_space",
    "is_compiled",
    "is_deterministic",
    "is_inside_xla",
    "local_devices",
    "process_config",
    "registered_kernels",
    "registered_op",
    "replace_captures",
    "set_storage",
    "storage",
    "trace",
    "untraced",
]


def registered_op(op_type: str) -> op_def_pb2.OpDef | None:
    """Returns the definition of an op type, or None for one that is not registered."""
    return op_def_registry.get(op_type)


def registered_kernels(op_type: str) -> tuple[kernel_def_pb2.KernelDef, ...]:
    """Returns the kernels of an op type on every kind of device, present or not."""
    return tuple(kernels.get_registered_kernels_for_op(op_type).kernel)


def local_devices() -> list[device_attributes_pb2.DeviceAttributes]:
    """Returns this process's devices with ``memory_limit`` in bytes and a description, which the public API lacks."""
    return list(device_lib.list_local_devices())


def process_config() -> tf.compat.v1.ConfigProto:
    """Returns the options that eager calls in this process run with: threads, graph optimizations."""
    return context.context().config


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """Executes eagerly inside, also where the program has eager execution off, which ``tf.init_scope`` leaves off."""
    return context.eager_mode()


def add_function(function: function_pb2.FunctionDef) -> None:
    """Makes a function known to this process, so that graphs can call it by name."""
    context.context().add_function_def(function)


def graph_of_function_def(
    function: function_pb2.FunctionDef, input_shapes: Sequence[tf.TensorShape | None]
) -> FuncGraph:
    """Returns the body of a library function as a graph, with shapes inferred from those of its arguments.

    Args:
      function: what it calls must be known to the current graph.
      input_shapes: one for each argument; None for one that is not known.

    Raises:
      ValueError, RuntimeError, tf.errors.OpError: TensorFlow does not accept it.
    """
    return function_def_to_graph.function_def_to_graph(function, input_shapes=input_shapes)


def folded_constant(tensor: tf.Tensor) -> np.ndarray | None:
    """Returns the value of a graph's tensor that depends on constants only, by the ops' own kernels; else None.

    ``tf.get_static_value`` knows a handful of ops only.
    """
    return tensor_util.try_evaluate_constant(tensor)


# Variables, each with the tensor of its first value, as TensorFlow collects them in a function's first trace.
Initializers = list[tuple[tf.Variable, tf.Tensor]]


def first_trace(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Initializers:
    """Traces a function that was never called, which may create variables, and gives these their first values.

    Returns:
      The variables whose first values depend on the arguments, so that only ``first_run`` can give them; mostly none.
    """
    with function._lock:
        if function._variable_creation_config is not None:
            return []
        bound = _bound(function, args, kwargs)
        initializers: Initializers = []
        function._initialize(bound.args, bound.kwargs, add_initializers_to=initializers)
        try:
            function._initialize_uninitialized_variables(initializers)
        except lift_to_graph.UnliftableError:
            return initializers
        return []


def first_run(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], initializers: Initializers
) -> Any:
    """The first call of a function whose variables get their first values from its arguments, as TensorFlow does it."""
    bound = _bound(function, args, kwargs)

    def conditionally(inner_args: tuple, inner_kwargs: dict) -> Any:
        are_there = [tf.raw_ops.VarIsInitializedOp(resource=variable.handle) for variable, _ in initializers]
        return tf.cond(
            tf.reduce_all(are_there),
            lambda: tracing_compilation.call_function(inner_args, inner_kwargs, _options(function)),
            lambda: function._concrete_variable_creation_fn(*inner_args, **inner_kwargs),
        )

    options = tracing_compilation.TracingOptions(conditionally, "conditionally")
    return tracing_compilation.call_function((bound.args, bound.kwargs), {}, options)


def trace(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[ConcreteFunction, list[tf.Tensor]]:
    """Returns the concrete function that a call would run, from the function's own cache, and the call's tensors.

    It is what ``Function.__call__`` does before it runs, so it costs what a call costs. ``first_trace`` comes before.
    """
    bound = _bound(function, args, kwargs)
    concrete = tracing_compilation.trace_function(bound.args, bound.kwargs, _options(function))
    bound = concrete.function_type.bind(*bound.args, **bound.kwargs)
    return concrete, concrete.function_type.unpack_inputs(bound)


def untraced(function: Function) -> Function:
    """Returns a function of the same Python and options; what it traces is neither kept nor saved with ``function``."""
    return function._clone(None)


def _bound(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    return function_type_utils.canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values, function._is_pure
    )


def _options(function: Function) -> tracing_compilation.TracingOptions:
    if function._created_variables:
        return function._no_variable_creation_config
    return function._variable_creation_config


def host_address_space() -> str:
    """Returns job, replica and task of this process, as device strings begin; connecting to others changes it."""
    return str(context.context().host_address_space())


def is_compiled(function: Function) -> bool:
    """Returns whether a function was made with ``jit_compile=True``."""
    return bool(function._jit_compile)


def is_deterministic() -> bool:
    """Returns whether this process asked for ops that give the same each time: some are traced to others then."""
    return bool(framework_config.is_op_determinism_enabled())


def is_inside_xla() -> bool:
    """Returns whether a function that XLA compiles as one program is being traced."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()))


class WrappingFunction(Function):
    """A ``tf.function`` that runs other concrete functions than the one that it wraps, and is it otherwise.

    Modules, ``tf.saved_model.save`` and whoever else asks for a ``tf.function`` take it as such. Its state is in the
    one that it wraps: what is not here is looked up there, and then in the Python function or object behind it (a Keras
    model's ``summary``, say). A subclass says what stands for a concrete function (``_of_concrete``), and calls it.

    Attributes:
      unplaced: the function that is wrapped.
    """

    unplaced: Function

    def __init__(self, function: Function, **state: Any) -> None:
        """Wraps a function; ``state`` is what the subclass keeps. ``Function.__init__`` would make a second one."""
        decorator = tf_decorator.TFDecorator("auto_place", function.python_function)
        # What unwraps decorators, as strategies do, must find this one and not go past it to the wrapped function.
        self.__dict__.update(state, unplaced=function, _tf_decorator=decorator)
        functools.update_wrapper(self, function.python_function, updated=())

    def _of_concrete(self, concrete: ConcreteFunction) -> ConcreteFunction:
        raise NotImplementedError

    def _bypassed(self, why: str) -> None:
        """Is told when TensorFlow takes the wrapped function instead of this one."""

    def __getattr__(self, name: str) -> Any:
        unplaced = self.__dict__.get("unplaced")
        if unplaced is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if hasattr(unplaced, name):
            return getattr(unplaced, name)
        return getattr(unplaced.python_function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # What is set on a wrapped model is meant for the model; a plain function has no state of its own.
        wrapped = self.unplaced.python_function
        is_own = name.startswith("_") or hasattr(type(self), name) or name in self.__dict__
        if not is_own and not inspect.isroutine(wrapped) and hasattr(wrapped, name):
            setattr(wrapped, name, value)
        else:
            super().__setattr__(name, value)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """What runs for such arguments; no tensor need have a value."""
        return self._of_concrete(self.unplaced.get_concrete_function(*args, **kwargs))

    def get_initialization_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """As of the wrapped function: what gives the variables that it creates their first values."""
        return self.unplaced.get_initialization_function(*args, **kwargs)

    def experimental_get_compiler_ir(self, *args: Any, **kwargs: Any) -> Callable:
        """As of the wrapped function."""
        return self.unplaced.experimental_get_compiler_ir(*args, **kwargs)

    # What TensorFlow asks of a function that is saved, or that a module decorates.

    def _get_concrete_function_garbage_collected(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        return self._of_concrete(self.unplaced._get_concrete_function_garbage_collected(*args, **kwargs))

    def _list_all_concrete_functions(self) -> list[ConcreteFunction]:
        return [self._of_concrete(concrete) for concrete in self.unplaced._list_all_concrete_functions()]

    def _list_all_concrete_functions_for_serialization(self) -> list[ConcreteFunction]:
        concretes = self.unplaced._list_all_concrete_functions_for_serialization()
        return [self._of_concrete(concrete) for concrete in concretes]

    def _decorate(self, decorator: Callable) -> None:
        self.unplaced._decorate(decorator)

    def _clone(self, python_function: Callable | None) -> Function:
        # A strategy makes one function of all its replicas of this one.
        self._bypassed(
            "a tf.distribute strategy runs replicas of it; a strategy splits the batch and placing splits the step: "
            "use one of them, and call it outside of the strategy for this one"
        )
        return self.unplaced._clone(python_function)


def call_flat(concrete: ConcreteFunction, tensors: Sequence[tf.Tensor]) -> Any:
    """Calls a concrete function with its flat tensors; captures are added, and the outputs come structured."""
    return concrete._call_flat(tensors, concrete.captured_inputs)


def concrete_function_like(concrete: ConcreteFunction, graph: FuncGraph) -> ConcreteFunction:
    """Returns a graph with the inputs, captures and outputs of ``concrete``'s as a concrete function.

    It can be called, differentiated and saved as ``concrete`` can.
    """
    result = ConcreteFunction.from_func_graph(graph, concrete.function_type, {})
    result.set_variables(concrete.graph.variables)
    result._arg_keywords = concrete._arg_keywords  # what saving asks for
    result._num_positional_args = concrete._num_positional_args
    return result


def called_graph(graph: FuncGraph, name: str) -> FuncGraph | None:
    """Returns the traced body of a function that a graph calls, or None where there is no such function."""
    function = graph._get_function(name)
    return None if function is None else function.graph


def storage(variable: BaseResourceVariable) -> tf.Tensor | None:
    """Returns the handle of a variable's storage; None for one whose construction did not end."""
    return getattr(variable, "_handle", None)


def set_storage(variable: BaseResourceVariable, handle: tf.Tensor) -> None:
    """Gives a variable other storage; functions traced before still have the old one (``replace_captures``)."""
    variable._handle = handle


def replace_captures(
    function: ConcreteFunction | FuncGraph, replaced: Callable[[tf.Tensor], tf.Tensor]
) -> None:
    """Gives a function, traced or being traced, other captured tensors.

    Args:
      function: changed in place.
      replaced: returns what stands for a captured tensor; the tensor itself where nothing changes.
    """
    if isinstance(function, ConcreteFunction):
        function._captured_inputs = [replaced(captured) for captured in function._captured_inputs]
        return
    captures = function.captures
    outers = [replaced(outer) for outer, _ in captures]
    if any(new is not outer for new, (outer, _) in zip(outers, captures, strict=True)):
        function.function_captures.reset_captures(outers, [inner for _, inner in captures])
