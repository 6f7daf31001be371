"""Private names of TensorFlow that the project uses: no other module imports or reads one.

TensorFlow may move these in any release. Each is exercised by ``tests/colocation/tensorflow_internals_test.py``, so an
upgrade that moves one fails there by name. It is in the lowest band because ``colocation`` reads op definitions, and it
imports nothing that ``import tensorflow`` has not loaded.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import (
    device_attributes_pb2,
    function_pb2,
    graph_debug_info_pb2,
    kernel_def_pb2,
    op_def_pb2,
)
from tensorflow.python.client import device_lib, pywrap_tf_session
from tensorflow.python.eager import context, forwardprop, lift_to_graph
from tensorflow.python.eager.polymorphic_function import function_type_utils, tracing_compilation
from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework import function_def_to_graph, kernels, op_def_registry, ops, tensor_util
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_util
from tensorflow.python.ops.handle_data_util import copy_handle_data as copy_handle_data
from tensorflow.python.ops.handle_data_util import get_resource_handle_data as get_resource_handle_data
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, eager_safe_variable_handle
from tensorflow.python.util import _pywrap_util_port, object_identity, tf_decorator, tf_stack

# Variables, each with the tensor of its first value, as TensorFlow collects them in a function's first trace.
Initializers = list[tuple[tf.Variable, tf.Tensor]]
_OTHER_SEED = 0x7F_9AC3_51D7


# Definition of an op type, or None for one that is not registered.
registered_op: Callable[[str], op_def_pb2.OpDef | None] = op_def_registry.get
# True if CPUs of this process use oneDNN kernels, by environment and processor.
is_onednn_on: Callable[[], bool] = _pywrap_util_port.IsMklEnabled
# This process's devices with ``memory_limit`` in bytes and a description, which the public API lacks.
local_devices: Callable[[], list[device_attributes_pb2.DeviceAttributes]] = device_lib.list_local_devices
# Waits until every op and function that this process has called is done, on other processes' devices, too.
wait_for_ops: Callable[[], None] = context.async_wait
# Executes eagerly inside, also where the program has eager execution off, which ``tf.init_scope`` leaves off.
eager_mode: Callable[[], contextlib.AbstractContextManager[None]] = context.eager_mode
# Value of a graph's tensor that depends on constants only, by the ops' own kernels; else None.
# ``tf.get_static_value`` knows a handful of ops only.
folded_constant: Callable[[tf.Tensor], np.ndarray | None] = tensor_util.try_evaluate_constant
# Whether this process asked for ops that give the same each time: some are traced to others then.
is_deterministic: Callable[[], bool] = framework_config.is_op_determinism_enabled


def registered_kernels(op_type: str) -> tuple[kernel_def_pb2.KernelDef, ...]:
    """Returns the kernels of an op type on every kind of device, present or not."""
    return tuple(kernels.get_registered_kernels_for_op(op_type).kernel)


@functools.cache
def has_xla() -> bool:
    """Returns whether this build of TensorFlow compiles with XLA; the first call compiles one op."""
    with context.eager_mode():
        try:
            tf.function(tf.negative, jit_compile=True)(1.0)
        except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
            return False
    return True


def process_config() -> tf.compat.v1.ConfigProto:
    """Returns the options that eager calls in this process run with: threads, graph optimizations."""
    return context.context().config


def add_function(function: function_pb2.FunctionDef) -> None:
    """Registers a function in this process, so that graphs can call the function by name."""
    context.context().add_function_def(function)


def graph_of_function_def(
    function: function_pb2.FunctionDef, input_shapes: Sequence[tf.TensorShape | None]
) -> FuncGraph:
    """Returns the body of a library function as a graph, with shapes inferred from its arguments' shapes, if known.

    What it calls must be known to the current graph. Raises ValueError, RuntimeError or tf.errors.OpError where
    TensorFlow does not accept it.
    """
    return function_def_to_graph.function_def_to_graph(function, input_shapes=input_shapes)


def first_trace(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Initializers:
    """Traces a function that was never called, which may create variables, and gives these their first values.

    Returns the variables whose first values depend on the arguments, so that only ``first_run`` can give them.
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
    """First call of a function whose variables get their initial values from the arguments, as TensorFlow does."""
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
    """Returns a function of the same Python and options that shares no traces with ``function``."""
    return function._clone(None)


def _bound(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    return function_type_utils.canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values, function._is_pure
    )


def _options(function: Function) -> tracing_compilation.TracingOptions:
    if function._created_variables:
        return function._no_variable_creation_config
    return function._variable_creation_config


def watch_calls(hook: Callable[..., Any]) -> Callable[[], None]:
    """Has a hook called in place of every ``tf.function`` of this process; returns what ends that.

    The hook gets the function, what calls it as TensorFlow does, the arguments and the keyword arguments.
    """
    original = Function.__call__

    @functools.wraps(original)
    def watched(self: Function, *args: Any, **kwargs: Any) -> Any:
        return hook(self, functools.partial(original, self), args, kwargs)

    def end() -> None:
        Function.__call__ = original

    Function.__call__ = watched
    return end


def seed_source() -> object:
    """Returns what seeds of ops come from: another object after each ``tf.random.set_seed``, which resets kernels."""
    return getattr(context.context(), "_rng", None)  # there is none without


@contextlib.contextmanager
def gradients_forgotten() -> Iterator[None]:
    """Forgets the gradients of ``tf.custom_gradient`` that the block registers, for graphs that are used no more.

    TensorFlow keeps them for ever, and with each the tensors that it closes over, their graph, and the variables that
    this has captured: ``tf.distribute`` registers one wherever an optimizer sums gradients. What another thread
    registers meanwhile is forgotten, too.
    """
    before = set(ops.gradient_registry.list())
    try:
        yield
    finally:
        for name in set(ops.gradient_registry.list()) - before:
            del ops.gradient_registry._registry[name]


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Keeps what the block draws from the seeds of this process: Python's, NumPy's, and TensorFlow's of ops."""
    of_ops = getattr(context.context(), "_rng", None)  # there is none without tf.random.set_seed
    states = random.getstate(), np.random.get_state(), None if of_ops is None else of_ops.getstate()
    if of_ops is not None:
        # Other seeds than the program's: an op of the same seed would go on where this one was.
        of_ops.seed(_OTHER_SEED)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if of_ops is not None:
            of_ops.setstate(states[2])


def host_address_space() -> str:
    """Returns the job, replica and task of this process, the prefix of device strings; connecting changes them."""
    return str(context.context().host_address_space())


def is_compiled(function: Function) -> bool:
    """Returns whether a function was made with ``jit_compile=True``."""
    return bool(function._jit_compile)


def is_inside_xla() -> bool:
    """Returns whether a function that XLA compiles as one program is being traced."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()))


class WrappingFunction(Function):
    """A ``tf.function`` that runs replacements of the wrapped function's concrete functions.

    Modules, ``tf.saved_model.save`` and whoever else asks for a ``tf.function`` take it as such. Its state is in the
    one that it wraps: what is not here is looked up there, and then in the Python function or object behind it (a Keras
    model's ``summary``, say). A subclass says what stands for a concrete function (``_of_concrete``), and calls it.
    """

    unplaced: Function  # the function that is wrapped

    def __init__(self, function: Function, **state: Any) -> None:
        """Wraps a function; ``state`` is what the subclass keeps. ``Function.__init__`` would make a second one."""
        # What unwraps decorators, as strategies do, must find this one and not go past it to the wrapped function; and
        # what it then puts in the place of the innermost one must not reach into the wrapped function.
        inner = getattr(function, "_tf_decorator", None)
        target = function.python_function if inner is None else inner.decorated_target
        decorator = tf_decorator.TFDecorator("auto_place", target)
        self.__dict__.update(state, unplaced=function, _tf_decorator=decorator)
        functools.update_wrapper(self, function.python_function, updated=())

    def _of_concrete(self, concrete: ConcreteFunction) -> ConcreteFunction:
        raise NotImplementedError

    def _bypassed(self, why: str) -> None:
        """Called when TensorFlow takes the wrapped function instead of this one."""

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
        """Function that runs for such arguments; no tensor need have a value."""
        return self._of_concrete(self.unplaced.get_concrete_function(*args, **kwargs))

    get_initialization_function = property(lambda self: self.unplaced.get_initialization_function)
    experimental_get_compiler_ir = property(lambda self: self.unplaced.experimental_get_compiler_ir)

    # What TensorFlow asks of a function that is saved, or that a module decorates.

    def _get_concrete_function_garbage_collected(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        return self._of_concrete(self.unplaced._get_concrete_function_garbage_collected(*args, **kwargs))

    def _list_all_concrete_functions(self) -> list[ConcreteFunction]:
        return [self._of_concrete(concrete) for concrete in self.unplaced._list_all_concrete_functions()]

    def _list_all_concrete_functions_for_serialization(self) -> list[ConcreteFunction]:
        concretes = self.unplaced._list_all_concrete_functions_for_serialization()
        return [self._of_concrete(concrete) for concrete in concretes]

    _decorate = property(lambda self: self.unplaced._decorate)

    def _clone(self, python_function: Callable | None) -> Function:
        # A strategy makes one function of all its replicas of this one.
        self._bypassed(
            "a tf.distribute strategy runs replicas of it; a strategy splits the batch and placing splits the step: "
            "use one of them, and call it outside of the strategy for this one"
        )
        return self.unplaced._clone(python_function)


def copy_stack_trace(origin: tf.Operation, op: tf.Operation) -> None:
    """Gives an op the source lines of another."""
    if origin.traceback is not None:  # of an imported op
        pywrap_tf_session.TF_SetOpStackTrace(op._c_op, origin.traceback.get_user_frames()[:])


class _ToldFunction(AtomicFunction):
    """A function whose errors name the lines of ops in its loops and branches, too: functions by themselves."""

    origins: Mapping[str, tf.Operation]  # name of such an op -> an op that was traced at the same line

    @property
    def graph_debug_info(self) -> graph_debug_info_pb2.GraphDebugInfo:
        """Looked up when an error is reported, and not before."""
        builder = tf_stack.GraphDebugInfoBuilder()
        builder.AppendGraphDebugInfo("", super().graph_debug_info)
        for name, origin in self.origins.items():
            if origin.traceback is not None:
                builder.AccumulateStackTrace("", name, origin.traceback.get_user_frames())
        result = builder.Build()
        for listed, trace in dict(result.name_to_trace_id).items():
            name = listed.removesuffix("@")  # "name@function"
            if name not in result.name_to_trace_id:
                result.name_to_trace_id[name] = trace
        return result


def tell_stack_traces(concrete: ConcreteFunction, origins: Mapping[str, tf.Operation]) -> None:
    """Makes a concrete function's errors name the source lines of ops in its loops and branches.

    ``origins`` is name of an op there -> an op that was traced at the same line.
    """
    function = concrete._inference_function
    function.__class__ = _ToldFunction
    function.origins = dict(origins)


def functions_of(graph: FuncGraph) -> dict[str, Any]:
    """Returns each function that a traced graph calls, directly or not, by name; a ``Defun`` keeps no graph."""
    functions: dict[str, Any] = {}
    frontier = [graph]
    while frontier:
        for name, function in frontier.pop()._functions.items():
            if name not in functions:
                functions[name] = function
                frontier.extend([function.graph] if hasattr(function, "graph") else [])
    return functions


def graphs_of(graph: FuncGraph) -> list[FuncGraph]:
    """Returns a traced graph, then the graphs of the functions called there, directly or not."""
    return [graph, *(f.graph for f in functions_of(graph).values() if hasattr(f, "graph"))]


def call_gradients(graph: FuncGraph) -> dict[str, Callable[..., Any]]:
    """Function name -> gradient of its calls, for all functions called directly or indirectly."""
    return {
        op.get_attr("f").name: op._gradient_function
        for body in graphs_of(graph)
        for op in body.get_operations()
        if op.type in ("PartitionedCall", "StatefulPartitionedCall") and op._gradient_function is not None
    }


def set_call_gradient(call: tf.Operation, gradient: Callable[..., Any]) -> None:
    """Gives a call the gradient of another call of its function; an imported one has none."""
    call._gradient_function = gradient


def has_python_gradient(function: Any) -> bool:
    """Returns whether what a graph calls is a ``Defun`` whose gradient is written in Python."""
    return getattr(function, "python_grad_func", None) is not None


def registered_gradient(name: str) -> Callable[..., Any] | None:
    """Returns the gradient that is registered for an op type, or for ops that bear a name of their own."""
    try:
        return ops.gradient_registry.lookup(name)
    except LookupError:
        return None


def call_flat(
    concrete: ConcreteFunction, tensors: Sequence[tf.Tensor], captures: Sequence[tf.Tensor] | None = None
) -> Any:
    """Calls a concrete function with its flat tensors and, if given, other captures; the outputs come structured."""
    return concrete._call_flat(tensors, concrete.captured_inputs if captures is None else captures)


def concrete_function_like(concrete: ConcreteFunction, graph: FuncGraph) -> ConcreteFunction:
    """Returns a graph with the inputs, captures and outputs of ``concrete``'s as a concrete function.

    It can be called, differentiated and saved as ``concrete`` can, and waits for what ``concrete`` waits for in the
    functions that call it.
    """
    graph.function_captures.control.update(concrete.graph.function_captures.control)
    graph.collective_manager_ids_used = getattr(concrete.graph, "collective_manager_ids_used", {})
    result = ConcreteFunction.from_func_graph(graph, concrete.function_type, {})
    result.set_variables(concrete.graph.variables)
    result._arg_keywords = concrete._arg_keywords  # what saving asks for
    result._num_positional_args = concrete._num_positional_args
    return result


def called_graph(graph: FuncGraph, name: str) -> FuncGraph | None:
    """Returns the traced body of a function that a graph calls; None for an unknown function or one without body.

    A ``Defun`` (``tf.nn.ctc_loss`` makes some) keeps none.
    """
    return getattr(graph._get_function(name), "graph", None)


def storage(variable: BaseResourceVariable) -> tf.Tensor | None:
    """Returns the handle of a variable's storage; None for one whose construction did not end."""
    return getattr(variable, "_handle", None)


def set_storage(variable: BaseResourceVariable, handle: tf.Tensor) -> None:
    """Gives a variable other storage; functions traced before still have the old one (``replace_captures``)."""
    variable._handle = handle


def new_storage(variable: BaseResourceVariable, value: tf.Tensor) -> tf.Tensor:
    """Returns a handle of fresh storage for a variable, on the current device, that holds a value.

    Not made as a variable: where a function is being traced, its scope would take it for one of its own.
    """
    name = variable.name.partition(":")[0]
    handle = eager_safe_variable_handle(value, variable.shape, None, name, graph_mode=False)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle


def capture_containers(function: ConcreteFunction | FuncGraph) -> list[Any]:
    """The containers in which a function keeps its captured tensors, which ``replace_captures`` makes anew."""
    if isinstance(function, ConcreteFunction):
        return [function._captured_inputs]
    captures = function.function_captures
    return [captures._by_val_external, *captures.by_val_capture_tuples]


def is_dataset_function(function: ConcreteFunction) -> bool:
    """True for a function of a dataset, which gets captured tensors when the dataset is made."""
    return "_tf_data_function" in function.function_def.attr


def live_variables(graph: FuncGraph) -> list[tf.Variable]:
    """The variables that a graph has read and that still live; ``graph.variables`` raises where one does not."""
    return [
        variable for variable in (reference() for reference in graph._weak_variables) if variable is not None
    ]


def live_resources() -> list[tf.Tensor]:
    """The eager handles of resources, one each, that some object of this process holds."""
    # ``type``, not ``isinstance``: that asks an object for its class, which may be anybody's code.
    tensors = [candidate for candidate in gc.get_objects() if type(candidate) is ops.EagerTensor]
    return [tensor for tensor in tensors if tensor.dtype == tf.resource and not tensor.is_packed]


def connect_to_servers(addresses: Mapping[str, Mapping[int, str]]) -> None:
    """Connects the eager context to servers, job -> task -> address, and registers this process's functions there.

    ``tf.config.experimental_connect_to_cluster`` tells them of later ones alone, but asks them to remove earlier ones,
    too, which they then print as an error each. Those that are added to a cluster are told of all.
    """
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({}))
    server_def = context.get_server_def()
    for job, tasks in addresses.items():
        server_def.cluster.job.add(name=job, tasks=tasks)
    context.update_server_def(server_def)


def is_identity_key(found: object) -> bool:
    """Returns whether an object is a key of TensorFlow's sets of tensors by identity, which only compare."""
    return type(found) is object_identity._ObjectIdentityWrapper


def watched_variables(tape: tf.GradientTape) -> tuple[tf.Variable, ...]:
    """The variables that a tape has recorded reads of and can still be asked for gradients of."""
    return () if tape._tape is None else tuple(tape._tape.watched_variables())


def is_recording_forward(accumulator: tf.autodiff.ForwardAccumulator) -> bool:
    """True if an accumulator is recording; TensorFlow does not say which variables."""
    assert isinstance(accumulator, forwardprop.ForwardAccumulator)
    return bool(accumulator._recording)


def replace_captures(
    function: ConcreteFunction | FuncGraph, replaced: Callable[[tf.Tensor], tf.Tensor]
) -> None:
    """Gives a function, traced or being traced, other captured tensors, in place.

    ``replaced`` returns what stands for a captured tensor; the tensor itself where nothing changes.
    """
    if isinstance(function, ConcreteFunction):
        function._captured_inputs = [replaced(captured) for captured in function._captured_inputs]
        return
    captures = function.captures
    outers = [replaced(outer) for outer, _ in captures]
    if any(new is not outer for new, (outer, _) in zip(outers, captures, strict=True)):
        function.function_captures.reset_captures(outers, [inner for _, inner in captures])
