"""What a call of a ``tf.function`` would run: its concrete function and that one's tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.eager.polymorphic_function import (
    concrete_function,
    function_type_utils,
    polymorphic_function,
    tracing_compilation,
)
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

# Variables and the tensors of their first values, as TensorFlow collects them in a function's first trace.
Initializers = list[tuple[tf.Variable, tf.Tensor]]


def traced(
    function: polymorphic_function.Function, args: tuple, kwargs: dict
) -> tuple[concrete_function.ConcreteFunction, list[tf.Tensor]]:
    """The concrete function that a call would run, and its tensors: what ``Function.__call__`` does before it runs.

    The function is initialized (``first_trace``).
    """
    bound = function_type_utils.canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values, function._is_pure
    )
    concrete = tracing_compilation.trace_function(bound.args, bound.kwargs, _options(function))
    bound = concrete.function_type.bind(*bound.args, **bound.kwargs)
    return concrete, concrete.function_type.unpack_inputs(bound)


def first_trace(function: polymorphic_function.Function, args: tuple, kwargs: dict) -> Initializers:
    """Traces a function that was never called, which may create variables, and gives these their first values.

    Returns:
      The variables whose first values depend on the arguments, so that only ``first_run`` can give them; mostly none.
    """
    with function._lock:
        if function._variable_creation_config is not None:
            return []
        bound = function_type_utils.canonicalize_function_inputs(
            args, kwargs, function._function_type, function._default_values, function._is_pure
        )
        initializers: Initializers = []
        function._initialize(bound.args, bound.kwargs, add_initializers_to=initializers)
        try:
            function._initialize_uninitialized_variables(initializers)
        except lift_to_graph.UnliftableError:
            return initializers
        return []


def first_run(
    function: polymorphic_function.Function, args: tuple, kwargs: dict, initializers: Initializers
) -> Any:
    """The first call of a function whose variables get their first values from its arguments, as TensorFlow does it."""
    bound = function_type_utils.canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values, function._is_pure
    )

    def conditionally(inner_args: tuple, inner_kwargs: dict) -> Any:
        are_there = [tf.raw_ops.VarIsInitializedOp(resource=v.handle) for v, _ in initializers]
        return tf.cond(
            tf.reduce_all(are_there),
            lambda: tracing_compilation.call_function(inner_args, inner_kwargs, _options(function)),
            lambda: function._concrete_variable_creation_fn(*inner_args, **inner_kwargs),
        )

    options = tracing_compilation.TracingOptions(conditionally, "conditionally")
    return tracing_compilation.call_function((bound.args, bound.kwargs), {}, options)


def run(concrete: concrete_function.ConcreteFunction, flat_inputs: list[tf.Tensor]) -> Any:
    """Calls a concrete function with what ``traced`` gave, in whatever context this is: tapes, other functions."""
    return concrete._call_flat(flat_inputs, concrete.captured_inputs)


def symbolic_inputs(concrete: concrete_function.ConcreteFunction) -> list[tf.Tensor]:
    """The placeholders of a traced function's arguments, without its captures."""
    captured = {id(tensor) for tensor in concrete.graph.internal_captures}
    return [tensor for tensor in concrete.inputs if id(tensor) not in captured]


def is_inside_xla() -> bool:
    """Whether a function that XLA compiles as one piece is being traced."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()))


def is_compiled(function: polymorphic_function.Function) -> bool:
    """Whether it was made with ``jit_compile=True``."""
    return bool(function._jit_compile)


def _options(function: polymorphic_function.Function) -> tracing_compilation.TracingOptions:
    if function._created_variables:
        return function._no_variable_creation_config
    return function._variable_creation_config
