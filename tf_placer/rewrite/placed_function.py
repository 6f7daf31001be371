"""A placed graph as a callable again: the same arguments, captures, outputs and side effects."""

from __future__ import annotations

import dataclasses
import itertools
import re
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from colocation.op_facts import CALLS, parse_input
from colocation.tensorflow_internals import (
    ConcreteFunction,
    FuncGraph,
    add_function,
    call_flat,
    call_gradients,
    concrete_function_like,
    copy_handle_data,
    copy_stack_trace,
    functions_of,
    host_address_space,
    live_variables,
    set_call_gradient,
    tell_stack_traces,
)
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_function import example_tensors, function_name, traced
from tf_placer.ops.library import keep_compilations
from tf_placer.problem.analytic_problem import units_of
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.functions import (
    with_custom_gradients,
    with_functions_of_their_own,
    with_functions_renamed,
    with_handle_data,
)
from tf_placer.rewrite.fused_gradients import give_gradients
from tf_placer.rewrite.random_state import RandomState, attach_and_tell, mark_as_kept
from tf_placer.rewrite.rewrite import (
    check_clusters_of,
    check_placement,
    program_of_plan,
    rewrite,
)
from tf_placer.rewrite.variables import check_movable, mark_as_placed, move_to_devices, variables_of_handles
from tf_placer.workers.connection import is_attached

# Ops that need the calling process, kept in it where a plan is for other processes.


def with_host_ops_here(item: Item, device_of_op: Mapping[str, str]) -> Mapping[str, str]:
    """The devices of a plan, in which the ops that need this process are on its CPU.

    A cluster of workers has no device in this process, so a plan puts these ops on one that stands for it
    (``Cluster.host``). What shares a device with them goes along. A resource is where its handle says.

    Args:
      item: the program.
      device_of_op: a full device string for each of its ops; left alone.
    """
    here = host_address_space()
    away = [name for name in item.host_ops if not _is_at(device_of_op[name], here)]
    if not away:
        return device_of_op
    unit_of_op = units_of(item).unit_of_op
    at = {capture.node: capture.device for capture in item.host_captures if _is_at(capture.device, here)}
    at |= {variable.node: variable.device for variable in item.variables if variable.stays}
    device_of_unit: dict[int, str] = {}
    for name in sorted(away, key=lambda name: name not in at):
        device = at.get(name, f"{here}/device:CPU:0")
        device_of_unit.setdefault(int(unit_of_op[item.index.id_of_name[name]]), device)
    return {
        name: device_of_unit.get(int(unit), device_of_op[name])
        for name, unit in zip(item.index.names, unit_of_op, strict=True)
    }


def _is_at(device: str, address_space: str) -> bool:
    """True if a device belongs to a process."""
    have, want = tf.DeviceSpec.from_string(device), tf.DeviceSpec.from_string(address_space)
    return (have.job, have.replica, have.task) == (want.job, want.replica, want.task)


# Shapes of what is read from variables, in a graph to which these are arguments.


def shapes_behind_handles(
    graph_def: tf.compat.v1.GraphDef, inputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.TensorShape]:
    """Returns the shapes that inference finds once the variables behind the graph's handles are known to it.

    TensorFlow infers shapes as it imports nodes, and only then can a handle be told its variable. What is read from it
    has no shape then, and forward-mode differentiation fails where it needs zeros of the shape of a gradient. So the
    handles come first here, in a graph of their own.

    Args:
      graph_def: its functions are known to this process.
      inputs: node -> a tensor with the shape, and the variable, that the node's tensor has.

    Returns:
      Tensor ("node:i") -> its shape, as far as it is known; nothing where no input is a handle.
    """
    if all(tensor.dtype != tf.resource for tensor in inputs.values()):
        return {}
    first, rest = tf.compat.v1.GraphDef(versions=graph_def.versions), tf.compat.v1.GraphDef()
    rest.CopyFrom(graph_def)
    del rest.node[:]
    for node in graph_def.node:
        copy = (first if node.name in inputs else rest).node.add()
        copy.CopyFrom(node)
        copy.attr.pop("_class", None)  # it may name a node of the other part
    # Under names of their own: an ``a`` cannot be imported after an ``a/b``, as the capture of an op ``a`` is called.
    new_name = {name: f"input_{number}" for number, name in enumerate(inputs)}
    for node in first.node:
        node.name = new_name[node.name]
    with FuncGraph("shapes").as_default() as graph:
        tf.import_graph_def(first, name="inputs")
        here_of = {name: graph.get_tensor_by_name(f"inputs/{new_name[name]}:0") for name in inputs}
        for name, tensor in inputs.items():
            if tensor.dtype in (tf.resource, tf.variant):
                copy_handle_data(tensor, here_of[name])
            if tensor.dtype != tf.resource:
                here_of[name].set_shape(tensor.shape)
        input_map = {}
        for text in {text for node in rest.node for text in node.input}:
            _, name, _ = parse_input(text)
            if name in here_of:
                input_map[text] = here_of[
                    name
                ]  # the tensor stands for its op where that is waited for ("^node")
        tf.import_graph_def(rest, input_map=input_map, name="rest")
    tensors = [
        (f"{node.name}:{tensor.value_index}", tensor)
        for node in rest.node
        for tensor in graph.get_operation_by_name(f"rest/{node.name}").outputs
    ]
    return {
        name: tensor.shape
        for name, tensor in tensors
        if tensor.dtype not in (tf.resource, tf.variant) and tensor.shape.rank is not None
    }


# Source lines of ops, kept in a graph that is made anew, so that errors name the user's program.


def keep_stack_traces(traced: ConcreteFunction, graph: FuncGraph) -> None:
    """Gives the ops of a placed graph the stack traces of those that they were, inlined or not.

    Args:
      traced: the function that was placed.
      graph: the placed one's, before a function is made of it.
    """
    origins = _Origins(traced.graph)
    for op in graph.get_operations():
        origin = origins.of(traced.graph, op.name)
        if origin is not None:
            copy_stack_trace(origin, op)


def tell_traces_of_bodies(
    traced: ConcreteFunction, placed: ConcreteFunction, graph_def: tf.compat.v1.GraphDef, suffix: str
) -> None:
    """The same for the ops in the bodies of loops and in branches, which are not in the placed graph.

    Args:
      traced: the function that was placed.
      placed: the placed one.
      graph_def: its graph.
      suffix: what was added to the names of its library's functions.
    """
    origins = _Origins(traced.graph)
    found: dict[str, tf.Operation] = {}
    for function in graph_def.library.function:
        body = origins.body(function.signature.name.removesuffix(suffix))
        for node in function.node_def if body is not None else ():
            origin = origins.of(body, node.name)
            if origin is not None:
                found.setdefault(node.name, origin)
    if found:
        tell_stack_traces(placed, found)


class _Origins:
    """The ops that a traced function and those that it calls were traced to."""

    def __init__(self, graph: FuncGraph) -> None:
        self._graphs = {
            name: function.graph
            for name, function in functions_of(graph).items()
            if hasattr(function, "graph")
        }
        self._ops: dict[int, dict[str, tf.Operation]] = {}

    def body(self, name: str) -> FuncGraph | None:
        """The traced graph of a function, or of one that it is a copy of (``with_functions_of_their_own``)."""
        return self._graphs.get(name) or self._graphs.get(re.sub(r"_\d+$", "", name))

    def of(self, graph: FuncGraph, name: str) -> tf.Operation | None:
        """The op of this name, inside of calls that were inlined, too; the op that one is a part or a copy of."""
        ops = self._ops_of(graph)
        if name in ops:
            return ops[name]
        parts = name.split("/")
        for length in range(len(parts) - 1, 0, -1):
            found = ops.get("/".join(parts[:length]))
            if found is not None:
                inside = self._called(found)
                return (inside and self.of(inside, "/".join(parts[length:]))) or found
        return None

    def _called(self, op: tf.Operation) -> FuncGraph | None:
        return self._graphs.get(op.get_attr("f").name if op.type in CALLS else op.type)

    def _ops_of(self, graph: FuncGraph) -> dict[str, tf.Operation]:
        if id(graph) not in self._ops:
            self._ops[id(graph)] = {op.name: op for op in graph.get_operations()}
        return self._ops[id(graph)]


_serial = itertools.count()
_CONSTANT_BYTES = (
    1_048_576  # larger captured values are passed, as to the traced function: no copy in every graph
)


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
    whole = Item.from_function(concrete, *(example_args or _zeros(concrete)))
    item = program_of_plan(whole, placement)
    placement = placement.for_program(item.index.names)
    check_clusters_of(item, placement)  # before any variable moves
    cluster, planned = placement.problem.cluster, placement.device_names
    check_nothing_is_lost(item, cluster)
    here = attach_and_tell(cluster, set(planned.values()))
    devices = {op: here[device] for op, device in planned.items()}
    move_variables(concrete, item, devices)
    placed = placed_concrete_function(concrete, item, placement, devices)
    if item.splitting is None:
        return placed
    return _whole_elsewhere(concrete, placed, shapes_of_inputs(concrete, whole))


_KEPT = ("a queue", "a summary writer", "a table")  # by ``resources_kept``


def check_nothing_is_lost(item: Item, cluster: Cluster) -> None:
    """Raises InputError where connecting this process to the cluster's workers would lose what the function captures.

    TensorFlow forgets what it knows by a name when a process is connected to others; most of it is kept.
    """
    named = [one for one in item.host_captures if not one.is_anonymous and one.kind not in _KEPT]
    if named and cluster.is_live and not is_attached(cluster):
        raise InputError(
            f"{named[0].node!r} is {named[0].kind} of this process that connecting to workers would lose; make it "
            "after a first function was placed on them"
        )


# Calls of a function whose plan has the batch in parts, with inputs of other sizes than the plan's.


def shapes_of_inputs(concrete: ConcreteFunction, item: Item) -> tuple[tf.TensorShape | None, ...]:
    """The shape that an item was made for, of each argument of its function; None of one that it does not read."""
    captured = {id(tensor) for tensor in concrete.graph.internal_captures}
    shape_of = {feed.node: tf.TensorShape(feed.shape) for feed in item.feeds}
    inputs = (tensor for tensor in concrete.inputs if id(tensor) not in captured)
    return tuple(shape_of.get(tensor.op.name) for tensor in inputs)


def fits(shapes: Sequence[tf.TensorShape | None], inputs: Sequence[tf.Tensor]) -> bool | tf.Tensor:
    """Whether inputs have these shapes; a tensor where only a run knows. Without shapes, all fit."""
    unknown = []
    for shape, tensor in zip(shapes, inputs, strict=False):
        if shape is None or tensor.shape == shape:
            continue
        if not tensor.shape.is_compatible_with(shape):
            return False
        same = tf.raw_ops.Equal(x=tf.shape(tensor), y=shape.as_list(), incompatible_shape_error=False)
        unknown.append(tf.reduce_all(same))
    return tf.reduce_all(unknown) if unknown else True


def cut_to_fit(shapes: Sequence[tf.TensorShape | None], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Inputs that fit, in a branch beside one for those that do not.

    Grappler infers sizes without regard to branches: a tensor that is said to have eight rows in one would have them in
    the other and in the condition, too, which it then takes for true. Slices have sizes of their own.
    """
    return [
        tensor
        if shape is None
        else tf.slice(tensor, [0] * shape.rank, shape)
        if tensor.shape.rank is None
        else tensor[
            tuple(slice(n if known is None else None) for n, known in zip(shape, tensor.shape, strict=True))
        ]
        for shape, tensor in zip(shapes, inputs, strict=True)
    ]


def _whole_elsewhere(
    concrete: ConcreteFunction, placed: ConcreteFunction, shapes: Sequence[tf.TensorShape | None]
) -> ConcreteFunction:
    """A function that runs by a plan where its inputs have the plan's shapes, and as it is where they have not."""
    inputs = concrete.inputs[: len(shapes)]
    if all(shape is None or tensor.shape == shape for shape, tensor in zip(shapes, inputs, strict=True)):
        return placed

    def flat(function: ConcreteFunction, given: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [
            one
            for one in tf.nest.flatten(call_flat(function, given), expand_composites=True)
            if one is not None
        ]

    def either(*given: tf.Tensor) -> list[tf.Tensor]:
        found = tf.cond(
            fits(shapes, given),
            lambda: flat(placed, cut_to_fit(shapes, given)),
            lambda: flat(concrete, list(given)),
        )
        return [one for one in tf.nest.flatten(found) if isinstance(one, tf.Tensor)]

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, tensor.op.name) for tensor in inputs]
    graph = tf.function(either, tuple(specs), autograph=False).get_concrete_function().graph
    for output, original in zip(graph.outputs, concrete.outputs, strict=False):
        if original.dtype not in (tf.resource, tf.variant):
            output.set_shape(original.shape)
    graph.structured_input_signature = concrete.structured_input_signature
    graph.structured_outputs = _structured(concrete, graph.outputs)
    result = concrete_function_like(concrete, graph)
    mark_as_placed(result)
    return result


def _structured(concrete: ConcreteFunction, outputs: Sequence[tf.Tensor]) -> Any:
    """Outputs in the structure that a function returns them in."""
    flat = iter(outputs)
    return tf.nest.map_structure(
        lambda leaf: None if leaf is None else next(flat),
        concrete.graph.structured_outputs,
        expand_composites=True,
    )


def _zeros(concrete: ConcreteFunction) -> list[tf.Tensor]:
    captured = {tensor.op.name for tensor in concrete.graph.internal_captures}
    inputs = [tensor for tensor in concrete.inputs if tensor.op.name not in captured]
    for tensor in inputs:
        if not tensor.shape.is_fully_defined():
            raise InputError(
                f"input {tensor.op.name!r} was traced with the shape {tensor.shape}; give example_args of the sizes "
                "that the placement was made for"
            )
    return [tf.zeros(tensor.shape, tensor.dtype) for tensor in inputs]


def captured_handles(concrete: ConcreteFunction, item: Item) -> dict[str, tf.Tensor]:
    """Op of a handle -> the handle of the variable, for those that a function captures and a plan may move.

    Raises:
      InputError: a variable is an argument.
    """
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
    """Op of a handle -> the variable of this process that it belongs to.

    Args:
      concrete: the traced function.
      handles: op of a handle -> the handle (``captured_handles``).

    Raises:
      InputError: one of them cannot be moved.
    """
    variable_of_handle = variables_of_handles(handles.values(), likely=live_variables(concrete.graph))
    for node, handle in handles.items():
        if id(handle) not in variable_of_handle:
            raise InputError(
                f"capture {node!r} is a resource that belongs to no tf.Variable any more, so it cannot be moved; keep "
                "the variable as long as the function"
            )
    found = {node: variable_of_handle[id(handle)] for node, handle in handles.items()}
    check_movable(found.values())
    return found


def move_variables(concrete: ConcreteFunction, item: Item, device_of_op: Mapping[str, str]) -> None:
    """Moves the variables that a function captures to the devices of their handles' ops, but for those that stay.

    Raises:
      InputError: one of them cannot be moved.
    """
    device_of_op = with_host_ops_here(item, device_of_op)
    elsewhere = {
        node: handle
        for node, handle in captured_handles(concrete, item).items()
        if tf.DeviceSpec.from_string(handle.device) != tf.DeviceSpec.from_string(device_of_op[node])
    }
    variables = movable_variables(concrete, elsewhere)
    del elsewhere  # or it would be one more holder of the handles
    move_to_devices((variable, device_of_op[node]) for node, variable in variables.items())


def move_back(concrete: ConcreteFunction, item: Item, device_of_op: Mapping[str, str]) -> None:
    """Moves the variables that a function captures, those that still live, to where they were.

    Args:
      concrete: the traced function.
      item: ``Item.from_function(concrete, ...)``.
      device_of_op: op of a handle -> where its variable was.

    Raises:
      InputError: one of them cannot be moved.
    """
    handles = captured_handles(concrete, item)
    variable_of_handle = variables_of_handles(handles.values(), likely=live_variables(concrete.graph))
    there = [
        (variable_of_handle[id(handle)], device_of_op[node])
        for node, handle in handles.items()
        if id(handle) in variable_of_handle
    ]
    del handles  # or it would be one more holder
    move_to_devices(there)


def placed_concrete_function(
    concrete: ConcreteFunction,
    item: Item,
    placement: Placement,
    device_of_op: Mapping[str, str] | None = None,
    random_state: RandomState | None = None,
) -> ConcreteFunction:
    """Returns a concrete function that computes what ``concrete`` does, its ops where a plan puts them.

    It takes the same inputs, reads and updates the same variables, tables and iterators, and may be called eagerly,
    from other functions and under a ``GradientTape``. What needs this process stays in it (``with_host_ops_here``).

    Args:
      concrete: the traced function.
      item: ``Item.from_function(concrete, ...)``, or that split.
      placement: of the item. A variable must live where its handle's op is put (``move_variables``).
      device_of_op: a full device string for each op of the item, where this process calls the placement's devices
        otherwise; None: as the placement has it.
      random_state: what it draws from, which moves along; None: it draws as a function that has not run yet.

    Raises:
      InputError: the plan does not fit the graph, or decides what cannot be written (``rewrite``).
    """
    device_of_op = with_host_ops_here(item, placement.device_names if device_of_op is None else device_of_op)
    if placement.cluster_of_op is not None:
        keep_compilations()
    handle_of_capture = {variable.capture: variable.node for variable in item.variables}
    handle_of_capture |= {one.node: one.node for one in item.host_captures if one.dtype == tf.resource}
    ends = _Ends(handle_of_capture, item.fetches, item.control_outputs, device_of_op)
    placed = _made_anew(concrete, rewrite(item, placement, device_of_op), ends, random_state)
    mark_as_placed(placed)
    return placed


def copied_function(concrete: ConcreteFunction, random_state: RandomState | None = None) -> ConcreteFunction:
    """Returns a concrete function of the same graph, which TensorFlow takes for another one.

    Args:
      concrete: the traced function.
      random_state: what it draws from; None: it draws as a function that has not run yet.
    """
    if random_state is not None:
        mark_as_kept(concrete)
    fetches = [tensor.name for tensor in concrete.outputs]
    ends = _Ends({}, fetches, [op.name for op in concrete.graph.control_outputs], {})
    return _made_anew(concrete, concrete.graph.as_graph_def(), ends, random_state)


@dataclasses.dataclass(frozen=True)
class _Ends:
    """What a graph has in common with the traced function.

    Attributes:
      handle_of_capture: captured argument -> the node that stands for it, where that has another name.
      fetches: tensors that are the outputs.
      control_outputs: ops that a call waits for.
      device_of_op: devices of the constants among the arguments.
    """

    handle_of_capture: Mapping[str, str]
    fetches: Sequence[str]
    control_outputs: Sequence[str]
    device_of_op: Mapping[str, str]


def _made_anew(
    concrete: ConcreteFunction,
    graph_def: tf.compat.v1.GraphDef,
    ends: _Ends,
    random_state: RandomState | None,
) -> ConcreteFunction:
    suffix = f"__placed_{next(_serial)}"
    written = with_functions_of_their_own(with_handle_data(graph_def, concrete.graph))
    if random_state is not None:
        random_state.move(random_state.written(written))
    graph = FuncGraph(
        f"{concrete.graph.name}{suffix}",
        structured_input_signature=concrete.structured_input_signature,
        structured_outputs=concrete.graph.structured_outputs,
    )
    constants = {node.name for node in graph_def.node if node.op == "Const"}
    calls = {node.name: node.attr["f"].func.name for node in graph_def.node if node.op in CALLS}
    graph_def = with_custom_gradients(with_functions_renamed(written, suffix), graph, suffix)
    inputs = _restore_inputs(graph_def, concrete, ends.handle_of_capture)
    for function in graph_def.library.function:
        add_function(function)
    with graph.as_default():
        here = _import(graph, graph_def, concrete, inputs)
        _connect(graph, concrete, here, ends, constants)
    gradients = call_gradients(concrete.graph)
    for name, called in calls.items():  # of what was inlined there are none
        if called in gradients:
            set_call_gradient(graph.get_operation_by_name(name), gradients[called])
    give_gradients(graph, graph_def)
    keep_stack_traces(concrete, graph)
    result = concrete_function_like(concrete, graph)
    tell_traces_of_bodies(concrete, result, graph_def, suffix)
    return result


def _restore_inputs(
    graph_def: tf.compat.v1.GraphDef,
    concrete: ConcreteFunction,
    handle_of_capture: Mapping[str, str],
) -> list[str]:
    """Makes arguments of what the item made self-contained, with the shapes they were traced with.

    Returns:
      The node that stands for each of the function's inputs.
    """
    inputs = []
    node_of_name = {node.name: node for node in graph_def.node}
    traced = {node.name: node for node in concrete.graph.as_graph_def().node}
    for tensor in concrete.inputs:
        original = traced[tensor.op.name]
        name = handle_of_capture.get(original.name, original.name)
        node = node_of_name.get(name)
        if node is None:  # nothing needed it
            node = graph_def.node.add()
        elif (
            node.op == "Const" and node.ByteSize() <= _CONSTANT_BYTES
        ):  # it stays one, on the devices that read it
            node = graph_def.node.add()
            name = f"{original.name}/unused"
        device = node.device
        node.CopyFrom(original)
        # An argument is where the caller has it; a variable's handle says where the variable is.
        node.name, node.device = name, device if original.name in handle_of_capture else ""
        node.attr.pop("_class", None)
        if tensor.dtype == tf.resource:
            # What is behind it is told later (`_import`); until then its own shape would be taken for the variable's.
            node.attr["shape"].shape.Clear()
            node.attr["shape"].shape.unknown_rank = True
        inputs.append(name)
    return inputs


def _import(
    graph: FuncGraph,
    graph_def: tf.compat.v1.GraphDef,
    concrete: ConcreteFunction,
    names: Sequence[str],
) -> list[tf.Tensor]:
    """Imports a graph into the default one, and says what is known of its tensors.

    Returns:
      The inputs, which are the nodes of these names.
    """
    known = shapes_behind_handles(graph_def, dict(zip(names, concrete.inputs, strict=True)))
    tf.import_graph_def(graph_def, name="")
    inputs = [graph.get_tensor_by_name(f"{name}:0") for name in names]
    for tensor, here in zip(concrete.inputs, inputs, strict=True):
        if tensor.dtype in (tf.resource, tf.variant):
            copy_handle_data(tensor, here)
        if (
            tensor.dtype != tf.resource
        ):  # a known shape of a handle hides the variable's where a loop is differentiated
            here.set_shape(tensor.shape)
    for name, shape in known.items():
        graph.get_tensor_by_name(name).set_shape(shape)
    return inputs


# Device -> id of an eager tensor -> that tensor, and its copy there, as long as some function has captured the copy.
_copies: dict[str, dict[int, tuple[weakref.ref[tf.Tensor], weakref.ref[tf.Tensor]]]] = {}


def _on_device(value: tf.Tensor, device: str) -> tf.Tensor:
    """An eager tensor where it is read, so that no call has to send it; one copy serves all functions."""
    if tf.DeviceSpec.from_string(value.device) == tf.DeviceSpec.from_string(device):
        return value
    there, number = _copies.setdefault(device, {}), id(value)
    original, copy = there.get(number, (lambda: None, lambda: None))
    result = copy() if original() is value else None
    if result is None:
        with tf.init_scope(), tf.device(device):
            result = tf.identity(value)
        there[number] = (
            weakref.ref(value),
            weakref.ref(result, lambda _: there.pop(number, None)),
        )
    return result


def _connect(
    graph: FuncGraph,
    concrete: ConcreteFunction,
    inputs: Sequence[tf.Tensor],
    ends: _Ends,
    constants: Collection[str],
) -> None:
    """Sets the graph's inputs, captures, outputs and side effects."""
    here_of = {tensor.op.name: here for tensor, here in zip(concrete.inputs, inputs, strict=True)}
    graph.inputs = list(inputs)
    for external, internal in concrete.graph.captures:
        here = here_of[internal.op.name]
        if here.op.name in constants:
            external = _on_device(external, ends.device_of_op[here.op.name])
        graph.replace_capture(external, here)
    outputs = [graph.get_tensor_by_name(name) for name in ends.fetches]
    for output, original in zip(outputs, concrete.outputs, strict=False):
        if original.dtype in (tf.resource, tf.variant):
            copy_handle_data(original, output)
        else:  # of what a cluster gives TensorFlow infers no shape
            output.set_shape(original.shape)
    graph.outputs = outputs
    graph.structured_outputs = _structured(concrete, outputs)
    # What others may only write, or print, once a call is done: automatic control dependencies wait for these.
    graph.control_outputs = [graph.get_operation_by_name(name) for name in ends.control_outputs]
