"""A placed graph as a callable again: the same arguments, captures, outputs and side effects."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import re
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from colocation import tensorflow_internals as internals
from colocation.op_facts import CALLS, parse_input
from colocation.tensorflow_internals import ConcreteFunction, FuncGraph, live_variables
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.program import functions_of
from tf_placer.graph.read_function import example_tensors, function_name, traced
from tf_placer.ops.library import keep_compilations
from tf_placer.problem.analytic_problem import units_of
from tf_placer.problem.placement import Placement
from tf_placer.rewrite import functions
from tf_placer.rewrite.rewrite import check_placement, program_of_plan, rewrite
from tf_placer.rewrite.variables import (
    RandomState,
    check_movable,
    kept_functions,
    move_to_devices,
    placed_functions,
    tell_of_lost_state,
    variables_of_handles,
)
from tf_placer.transform.fusion import PREFIX, check_clusters
from tf_placer.workers.local_workers import attach, is_attached


def with_host_ops_here(item: Item, device_of_op: Mapping[str, str]) -> Mapping[str, str]:
    """The devices of a plan, a full string for each op, with the ops that need this process on its CPU.

    A cluster of workers has no device in this process, so a plan puts these ops on a substitute (``Cluster.host``). Ops
    that share a device with them go along. A resource is where its handle says.
    """
    process = internals.host_address_space()
    home = tf.DeviceSpec.from_string(process)

    def is_of_process(device: str) -> bool:
        spec = tf.DeviceSpec.from_string(device)
        return (spec.job, spec.replica, spec.task) == (home.job, home.replica, home.task)

    to_move = [name for name in item.host_ops if not is_of_process(device_of_op[name])]
    if not to_move:
        return device_of_op
    unit_of_op = units_of(item).unit_of_op
    fixed = {capture.node: capture.device for capture in item.host_captures if is_of_process(capture.device)}
    fixed |= {variable.node: variable.device for variable in item.variables if variable.stays}
    device_of_unit: dict[int, str] = {}
    for name in sorted(to_move, key=lambda name: name not in fixed):
        device = fixed.get(name, f"{process}/device:CPU:0")
        device_of_unit.setdefault(int(unit_of_op[item.index.id_of_name[name]]), device)
    return {
        name: device_of_unit.get(int(unit), device_of_op[name])
        for name, unit in zip(item.index.names, unit_of_op, strict=True)
    }


def shapes_behind_handles(
    graph_def: tf.compat.v1.GraphDef, inputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.TensorShape]:
    """Tensor ("node:i") -> shape that inference finds with the variables behind the graph's handles known.

    TensorFlow infers shapes as it imports nodes, and a handle can be given its variable only afterwards. So tensors
    read from variables have no shape, and forward-mode differentiation fails where it needs zeros of the shape of a
    gradient. Therefore the handles are imported before the rest, into a graph of their own.

    This process knows the functions of ``graph_def``; ``inputs`` are node -> a tensor with the shape, and the variable,
    of the node's tensor. Without a handle among them, nothing is inferred.
    """
    if all(tensor.dtype != tf.resource for tensor in inputs.values()):
        return {}
    handles, rest = tf.compat.v1.GraphDef(versions=graph_def.versions), tf.compat.v1.GraphDef()
    rest.CopyFrom(graph_def)
    del rest.node[:]
    # Fresh names: an op ``a`` cannot be imported after ``a/b``, which is how the capture of an op ``a`` is called.
    new_name = {name: f"input_{number}" for number, name in enumerate(inputs)}
    for node in graph_def.node:  # a ``_class`` may name a node of the other graph
        copy = (handles if node.name in inputs else rest).node.add()
        copy.CopyFrom(node)
        copy.attr.pop("_class", None)
        copy.name = new_name.get(node.name, node.name)
    with FuncGraph("shapes").as_default() as graph:
        tf.import_graph_def(handles, name="inputs")
        copy_of = {name: graph.get_tensor_by_name(f"inputs/{new_name[name]}:0") for name in inputs}
        for name, tensor in inputs.items():
            _copy_shape(tensor, copy_of[name])
        # A tensor is also given where its op is waited for ("^node").
        texts = {text for node in rest.node for text in node.input}
        input_map = {text: copy_of[parse_input(text)[1]] for text in texts if parse_input(text)[1] in copy_of}
        tf.import_graph_def(rest, input_map=input_map, name="rest")
    return {
        f"{node.name}:{tensor.value_index}": tensor.shape
        for node in rest.node
        for tensor in graph.get_operation_by_name(f"rest/{node.name}").outputs
        if tensor.dtype not in (tf.resource, tf.variant) and tensor.shape.rank is not None
    }


def _copy_shape(source: tf.Tensor, target: tf.Tensor) -> None:
    """Gives a tensor the shape of another one, or for a handle the variable's."""
    if source.dtype in (tf.resource, tf.variant):
        internals.copy_handle_data(source, target)
    # A handle's own shape hides the variable's where a loop is differentiated.
    if source.dtype != tf.resource:
        target.set_shape(source.shape)


class _Origins:
    """Ops of a traced function and its callees, whose stack traces name the user's program."""

    def __init__(self, graph: FuncGraph) -> None:
        called = internals.functions_of(graph).items()
        self._graphs = {name: function.graph for name, function in called if hasattr(function, "graph")}
        self._ops: dict[int, dict[str, tf.Operation]] = {}

    def body(self, name: str) -> FuncGraph | None:
        """The traced graph of a function or of its original (``with_functions_of_their_own``)."""
        return self._graphs.get(name) or self._graphs.get(re.sub(r"_\d+$", "", name))

    def of(self, graph: FuncGraph, name: str) -> tf.Operation | None:
        """The op of this name, also inside inlined calls; of a part or copy of an op, that op."""
        if id(graph) not in self._ops:
            self._ops[id(graph)] = {op.name: op for op in graph.get_operations()}
        ops, parts = self._ops[id(graph)], name.split("/")
        for length in range(len(parts), 0, -1):
            op = ops.get("/".join(parts[:length]))
            if op is not None:
                calls = length < len(parts)
                body = calls and self._graphs.get(op.get_attr("f").name if op.type in CALLS else op.type)
                return (body and self.of(body, "/".join(parts[length:]))) or op
        return None


_serial = itertools.count()
# Larger captured values are passed, as to the traced function, rather than copied into every graph.
_CONSTANT_BYTES = 1_048_576
_RESOURCES_KEPT = ("a queue", "a summary writer", "a table")  # when a process is connected to others


@eagerly()
def placed_function(fn: Any, placement: Placement, *example_args: Any) -> ConcreteFunction:
    """Returns ``fn`` as a concrete function whose ops and variables are where a placement puts them.

    Workers of the placement's cluster are started, or its servers joined, if need be (``attach``).

    Args:
      fn: a ``tf.function`` or ``ConcreteFunction``, or what ``tf.function`` can trace; left alone, though variables
        that move take it along.
      placement: one for ``Item.from_function(fn, *example_args)``, or of its batch in parts (``tf_placer.split``):
        whole inputs go in and whole outputs come out of that, too.
      *example_args: what it was made for; without, zeros of the shapes that it was traced with. A ``tf.TensorSpec``
        stands for zeros of its shape. Other sizes of dimensions that were traced as unknown may be passed later; where
        the plan has the batch in parts, calls of another size run as ``fn`` does.

    Raises:
      InputError: the placement was made for another graph or batch, this process lacks a device, a variable cannot
        be moved, or an example is needed.
    """
    check_placement("placement", placement)
    example_args = example_tensors(example_args)
    concrete = traced(fn, example_args)
    if not example_args:
        captured = {tensor.op.name for tensor in concrete.graph.internal_captures}
        inputs = [tensor for tensor in concrete.inputs if tensor.op.name not in captured]
        for tensor in inputs:
            if not tensor.shape.is_fully_defined():
                raise InputError(
                    f"input {tensor.op.name!r} was traced with the shape {tensor.shape}; give example_args of the "
                    "sizes that the placement was made for"
                )
        example_args = tuple(tf.zeros(tensor.shape, tensor.dtype) for tensor in inputs)
    whole = Item.from_function(concrete, *example_args)
    item = program_of_plan(whole, placement)
    placement = placement.for_program(item.index.names)
    check_nothing_is_lost(item, placement.problem.cluster)
    placed = run_by_plan(concrete, item, placement, placement.problem.cluster)
    if item.splitting is None or item.splitting.parts == 1:
        return placed
    return _whole_for_other_sizes(concrete, placed, shapes_of_inputs(concrete, whole))


def run_by_plan(
    concrete: ConcreteFunction,
    item: Item,
    placement: Placement,
    cluster: Cluster,
    write: Callable[[ConcreteFunction, Item, Placement, Mapping[str, str]], ConcreteFunction] | None = None,
) -> ConcreteFunction:
    """Moves a function's variables to their devices in a plan, and returns the function that runs by the plan.

    ``write`` makes the function, given the device of each op; None stands for ``placed_concrete_function``.
    """
    check_clusters(item, placement.cluster_of_op, placement.device_names)  # before any variable moves
    devices = devices_here(placement, cluster)
    move_variables(concrete, item, devices)
    return (write or placed_concrete_function)(concrete, item, placement, devices)


def devices_here(placement: Placement, cluster: Cluster) -> dict[str, str]:
    """Op -> device under its name in this process, which is connected to the cluster's workers if need be.

    Connecting makes kernels anew: a warning names the functions whose random numbers begin anew with them.
    """
    if cluster.is_live and not is_attached(cluster):
        concretes = [entry for entry in gc.get_objects() if issubclass(type(entry), ConcreteFunction)]
        tell_of_lost_state(concretes, "this process is connected to workers")
    name_of = attach(cluster, set(placement.device_names.values()))
    return {op: name_of[device] for op, device in placement.device_names.items()}


def check_nothing_is_lost(item: Item, cluster: Cluster) -> None:
    """Raises InputError where connecting this process to the cluster's workers would lose a captured resource.

    TensorFlow forgets named resources when a process is connected to others; most of them are kept.
    """
    if not cluster.is_live or is_attached(cluster):
        return
    for capture in item.host_captures:
        if not capture.is_anonymous and capture.kind not in _RESOURCES_KEPT:
            raise InputError(
                f"{capture.node!r} is {capture.kind} of this process that connecting to workers would lose; make it "
                "after a first function was placed on them"
            )


def shapes_of_inputs(concrete: ConcreteFunction, item: Item) -> tuple[tf.TensorShape | None, ...]:
    """Shape of each argument in a function's item; None for an argument that is not read."""
    captured = {id(tensor) for tensor in concrete.graph.internal_captures}
    shape_of = {feed.node: tf.TensorShape(feed.shape) for feed in item.feeds}
    inputs = (tensor for tensor in concrete.inputs if id(tensor) not in captured)
    return tuple(shape_of.get(tensor.op.name) for tensor in inputs)


def fits(shapes: Sequence[tf.TensorShape | None], inputs: Sequence[tf.Tensor]) -> bool | tf.Tensor:
    """Whether inputs have these shapes; a tensor where only the run knows. Without shapes, all fit."""
    checks = []
    for shape, tensor in zip(shapes, inputs, strict=False):
        if shape is None or tensor.shape == shape:
            continue
        if not tensor.shape.is_compatible_with(shape):
            return False
        same = tf.raw_ops.Equal(x=tf.shape(tensor), y=shape.as_list(), incompatible_shape_error=False)
        checks.append(tf.reduce_all(same))
    return tf.reduce_all(checks) if checks else True


def cut_to_fit(shapes: Sequence[tf.TensorShape | None], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Inputs as slices of these shapes, for the branch in which they fit.

    Grappler infers sizes without regard to branches: a tensor with eight rows in one branch would have them in the
    other and in the condition as well, which would be folded to true. Slices have sizes of their own.
    """
    results = []
    for shape, tensor in zip(shapes, inputs, strict=True):
        if shape is None:
            results.append(tensor)
        elif tensor.shape.rank is None:
            results.append(tf.slice(tensor, [0] * shape.rank, shape))
        else:
            ends = [size if open_ is None else None for size, open_ in zip(shape, tensor.shape, strict=True)]
            results.append(tensor[tuple(map(slice, ends))])
    return results


def _whole_for_other_sizes(
    concrete: ConcreteFunction, placed: ConcreteFunction, shapes: Sequence[tf.TensorShape | None]
) -> ConcreteFunction:
    """A function that runs by a plan where its inputs have the plan's shapes, and unplaced where they have not."""
    inputs = concrete.inputs[: len(shapes)]
    if all(shape is None or tensor.shape == shape for shape, tensor in zip(shapes, inputs, strict=True)):
        return placed

    def flat(function: ConcreteFunction, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        leaves = tf.nest.flatten(internals.call_flat(function, arguments), expand_composites=True)
        return [leaf for leaf in leaves if leaf is not None]

    def either(*arguments: tf.Tensor) -> list[tf.Tensor]:
        results = tf.cond(
            fits(shapes, arguments),
            lambda: flat(placed, cut_to_fit(shapes, arguments)),
            lambda: flat(concrete, list(arguments)),
        )
        return [leaf for leaf in tf.nest.flatten(results) if isinstance(leaf, tf.Tensor)]

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, tensor.op.name) for tensor in inputs]
    graph = tf.function(either, tuple(specs), autograph=False).get_concrete_function().graph
    for output, original in zip(graph.outputs, concrete.outputs, strict=False):
        if original.dtype not in (tf.resource, tf.variant):
            output.set_shape(original.shape)
    graph.structured_input_signature = concrete.structured_input_signature
    graph.structured_outputs = _structured(concrete, graph.outputs)
    result = internals.concrete_function_like(concrete, graph)
    placed_functions.add(result)
    return result


def _structured(concrete: ConcreteFunction, outputs: Sequence[tf.Tensor]) -> Any:
    """Outputs in the structure that a function returns them in."""
    flat = iter(outputs)
    return tf.nest.map_structure(
        lambda leaf: None if leaf is None else next(flat),
        concrete.graph.structured_outputs,
        expand_composites=True,
    )


def captured_handles(concrete: ConcreteFunction, item: Item) -> dict[str, tf.Tensor]:
    """Op -> handle of each variable that a function captures and a plan may move; InputError if one is an argument."""
    captures = (tensor.op.name for tensor in concrete.graph.internal_captures)
    handles = dict(zip(captures, concrete.captured_inputs, strict=True))
    movable = [variable for variable in item.variables if not variable.stays]
    for variable in movable:
        if variable.capture not in handles:
            raise InputError(
                f"variable {variable.node!r} is passed to {function_name(concrete)!r} as an argument, so a plan cannot "
                "move it; let the function capture it, as a closure or an attribute"
            )
    return {variable.node: handles[variable.capture] for variable in movable}


def movable_variables(concrete: ConcreteFunction, handles: Mapping[str, tf.Tensor]) -> dict[str, tf.Variable]:
    """Op of a handle -> its variable in this process, for ``captured_handles``; InputError if one cannot be moved."""
    variable_of_handle = variables_of_handles(handles.values(), likely=live_variables(concrete.graph))
    for node, handle in handles.items():
        if id(handle) not in variable_of_handle:
            raise InputError(
                f"capture {node!r} is a resource that belongs to no tf.Variable any more, so it cannot be moved; keep "
                "the variable as long as the function"
            )
    variables = {node: variable_of_handle[id(handle)] for node, handle in handles.items()}
    check_movable(variables.values())
    return variables


def move_variables(concrete: ConcreteFunction, item: Item, device_of_op: Mapping[str, str]) -> None:
    """Moves the variables that a function captures, unless they stay; InputError if one cannot be moved."""
    device_of_op = with_host_ops_here(item, device_of_op)
    elsewhere = {
        node: handle
        for node, handle in captured_handles(concrete, item).items()
        if tf.DeviceSpec.from_string(handle.device) != tf.DeviceSpec.from_string(device_of_op[node])
    }
    variables = movable_variables(concrete, elsewhere)
    del elsewhere  # or it would hold the handles as well
    move_to_devices((variable, device_of_op[node]) for node, variable in variables.items())


def move_back(concrete: ConcreteFunction, item: Item, device_of_op: Mapping[str, str]) -> None:
    """Moves the live variables that a function captures to earlier devices; InputError if one cannot be moved.

    ``item`` is ``Item.from_function(concrete, ...)``; the keys of ``device_of_op`` are ops of handles.
    """
    handles = captured_handles(concrete, item)
    variable_of_handle = variables_of_handles(handles.values(), likely=live_variables(concrete.graph))
    moves = [
        (variable_of_handle[id(handle)], device_of_op[node])
        for node, handle in handles.items()
        if id(handle) in variable_of_handle
    ]
    del handles  # or it would hold them as well
    move_to_devices(moves)


def placed_concrete_function(
    concrete: ConcreteFunction,
    item: Item,
    placement: Placement,
    device_of_op: Mapping[str, str] | None = None,
    random_state: RandomState | None = None,
) -> ConcreteFunction:
    """Returns a concrete function that computes the same as ``concrete``, with its ops on a plan's devices.

    The function has the same inputs, reads and updates the same variables, tables and iterators, and may be called
    eagerly, from other functions and under a ``GradientTape``. Ops that need this process stay in it
    (``with_host_ops_here``).

    Args:
      concrete: the traced function.
      item: ``Item.from_function(concrete, ...)``, or that split.
      placement: of the item. A variable must live where its handle's op is put (``move_variables``).
      device_of_op: a full device string for each op of the item, where devices have other names in this process; None
        for the placement's own.
      random_state: variables that random ops draw from, which move along; None starts like a new function.

    Raises:
      InputError: the plan does not fit the graph, or decides what cannot be written (``rewrite``).
    """
    device_of_op = with_host_ops_here(item, placement.device_names if device_of_op is None else device_of_op)
    if placement.cluster_of_op is not None:
        keep_compilations()
    handle_of_capture = {variable.capture: variable.node for variable in item.variables}
    handle_of_capture |= {
        capture.node: capture.node for capture in item.host_captures if capture.dtype == tf.resource
    }
    ends = _Ends(handle_of_capture, item.fetches, item.control_outputs, device_of_op)
    placed = _made_anew(concrete, rewrite(item, placement, device_of_op), ends, random_state)
    placed_functions.add(placed)
    return placed


def copied_function(concrete: ConcreteFunction, random_state: RandomState | None = None) -> ConcreteFunction:
    """Returns another concrete function of the same graph; ``random_state`` as in ``placed_concrete_function``."""
    if random_state is not None:
        kept_functions.add(concrete)
    fetches = [tensor.name for tensor in concrete.outputs]
    ends = _Ends({}, fetches, [op.name for op in concrete.graph.control_outputs], {})
    return _made_anew(concrete, concrete.graph.as_graph_def(), ends, random_state)


@dataclasses.dataclass(frozen=True)
class _Ends:
    """Inputs, outputs and effects by which a new graph takes the place of the traced function's."""

    handle_of_capture: Mapping[str, str]  # captured argument -> its node, where that has another name
    fetches: Sequence[str]  # output tensors
    control_outputs: Sequence[str]  # ops that a call waits for
    device_of_op: Mapping[str, str]  # of the constants among the arguments


def _made_anew(
    concrete: ConcreteFunction,
    graph_def: tf.compat.v1.GraphDef,
    ends: _Ends,
    random_state: RandomState | None,
) -> ConcreteFunction:
    """A concrete function like the traced one, of another graph."""
    suffix = f"__placed_{next(_serial)}"
    functions.add_handle_data(graph_def, concrete.graph)
    written = functions.with_functions_of_their_own(graph_def)
    if random_state is not None:
        random_state.move(random_state.written(written))
    graph = FuncGraph(
        f"{concrete.graph.name}{suffix}",
        structured_input_signature=concrete.structured_input_signature,
        structured_outputs=concrete.graph.structured_outputs,
    )
    constants = {node.name for node in graph_def.node if node.op == "Const"}
    calls = {node.name: node.attr["f"].func.name for node in graph_def.node if node.op in CALLS}
    graph_def = functions.with_functions_renamed(written, suffix)
    functions.register_custom_gradients(graph_def, graph, suffix)
    names = _restore_inputs(graph_def, concrete, ends.handle_of_capture)
    for function in graph_def.library.function:
        internals.add_function(function)
    with graph.as_default():
        shapes = shapes_behind_handles(graph_def, dict(zip(names, concrete.inputs, strict=True)))
        tf.import_graph_def(graph_def, name="")
        inputs = [graph.get_tensor_by_name(f"{name}:0") for name in names]
        for original, tensor in zip(concrete.inputs, inputs, strict=True):
            _copy_shape(original, tensor)
        for name, shape in shapes.items():
            graph.get_tensor_by_name(name).set_shape(shape)
        _connect(graph, concrete, inputs, ends, constants)
    gradients = internals.call_gradients(concrete.graph)
    for name, called in calls.items():  # inlined calls have none
        if called in gradients:
            internals.set_call_gradient(graph.get_operation_by_name(name), gradients[called])
    _set_gradients_of_clusters(graph, graph_def)
    origins = _Origins(concrete.graph)
    for op in graph.get_operations():
        origin = origins.of(concrete.graph, op.name)
        if origin is not None:
            internals.copy_stack_trace(origin, op)
    result = internals.concrete_function_like(concrete, graph)
    # Ops in bodies of loops and in branches, which are not in the placed graph.
    origin_of: dict[str, tf.Operation] = {}
    for function in graph_def.library.function:
        body = origins.body(function.signature.name.removesuffix(suffix))
        for node in function.node_def if body is not None else ():
            origin = origins.of(body, node.name)
            if origin is not None:
                origin_of.setdefault(node.name, origin)
    if origin_of:
        internals.tell_stack_traces(result, origin_of)
    return result


def _restore_inputs(
    graph_def: tf.compat.v1.GraphDef, concrete: ConcreteFunction, handle_of_capture: Mapping[str, str]
) -> list[str]:
    """Turns nodes that the item made self-contained into arguments again, with the shapes of the trace; their names."""
    names = []
    node_of_name = {node.name: node for node in graph_def.node}
    traced_nodes = {node.name: node for node in concrete.graph.as_graph_def().node}
    for tensor in concrete.inputs:
        original = traced_nodes[tensor.op.name]
        name = handle_of_capture.get(original.name, original.name)
        node = node_of_name.get(name)
        if node is None:  # nothing reads the argument
            node = graph_def.node.add()
        elif node.op == "Const" and node.ByteSize() <= _CONSTANT_BYTES:
            node = graph_def.node.add()  # the constant stays one, on the devices that read it
            name = f"{original.name}/unused"
        device = node.device
        node.CopyFrom(original)
        # The caller places an argument; a variable's handle says where the variable is.
        node.name, node.device = name, device if original.name in handle_of_capture else ""
        node.attr.pop("_class", None)
        if tensor.dtype == tf.resource:
            # Handle data comes after the import; until then the handle's own shape would be taken for the variable's.
            node.attr["shape"].shape.Clear()
            node.attr["shape"].shape.unknown_rank = True
        names.append(name)
    return names


# Device -> id of an eager tensor -> the tensor, and its copy on the device, as long as some function captures the copy.
_copies: dict[str, dict[int, tuple[weakref.ref[tf.Tensor], weakref.ref[tf.Tensor]]]] = {}


def _on_device(value: tf.Tensor, device: str) -> tf.Tensor:
    """An eager tensor on its reader's device, so that no call sends the tensor; one copy serves all functions."""
    if tf.DeviceSpec.from_string(value.device) == tf.DeviceSpec.from_string(device):
        return value
    copies, number = _copies.setdefault(device, {}), id(value)
    original, copy = copies.get(number, (lambda: None, lambda: None))
    result = copy() if original() is value else None
    if result is None:
        with tf.init_scope(), tf.device(device):
            result = tf.identity(value)
        copies[number] = weakref.ref(value), weakref.ref(result, lambda _: copies.pop(number, None))
    return result


def _connect(
    graph: FuncGraph,
    concrete: ConcreteFunction,
    inputs: Sequence[tf.Tensor],
    ends: _Ends,
    constants: Collection[str],
) -> None:
    """Sets the graph's inputs, captures, outputs and side effects."""
    input_of = {original.op.name: tensor for original, tensor in zip(concrete.inputs, inputs, strict=True)}
    graph.inputs = list(inputs)
    for external, internal in concrete.graph.captures:
        tensor = input_of[internal.op.name]
        if tensor.op.name in constants:
            external = _on_device(external, ends.device_of_op[tensor.op.name])
        graph.replace_capture(external, tensor)
    outputs = [graph.get_tensor_by_name(name) for name in ends.fetches]
    for original, output in zip(concrete.outputs, outputs, strict=False):
        if original.dtype in (tf.resource, tf.variant):
            internals.copy_handle_data(original, output)
        else:  # TensorFlow infers no shape of a cluster's outputs
            output.set_shape(original.shape)
    graph.outputs = outputs
    graph.structured_outputs = _structured(concrete, outputs)
    # Automatic control dependencies make other ops wait for these before they write, or print.
    graph.control_outputs = [graph.get_operation_by_name(name) for name in ends.control_outputs]


def _set_gradients_of_clusters(graph: FuncGraph, graph_def: tf.compat.v1.GraphDef) -> None:
    """Registers gradients of clusters, of which TensorFlow has none since their calls were imported.

    The gradient computes the cluster's ops again, op by op: inner results are not kept.
    """
    library = functions_of(graph_def.library)

    def gradient(
        body: function_pb2.FunctionDef, call: tf.Operation, *upstream: tf.Tensor | None
    ) -> list[tf.Tensor | None]:
        inputs = [tf.identity(tensor) for tensor in call.inputs]
        inner = internals.graph_of_function_def(body, [tensor.shape for tensor in inputs])
        arguments = {argument.name: tensor for argument, tensor in zip(inner.inputs, inputs, strict=True)}
        names = [tensor.name for tensor in inner.outputs]
        outputs = tf.import_graph_def(inner.as_graph_def(), arguments, names, name="again")
        pairs = [pair for pair in zip(outputs, upstream, strict=True) if pair[1] is not None]
        return tf.gradients([output for output, _ in pairs], inputs, [tensor for _, tensor in pairs])

    for node in graph_def.node:
        if node.op in CALLS and node.name.startswith(PREFIX):
            body = library[node.attr["f"].func.name]
            call = graph.get_operation_by_name(node.name)
            internals.set_call_gradient(call, functools.partial(gradient, body))
