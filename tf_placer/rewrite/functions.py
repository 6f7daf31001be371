"""Functions of a library: names and arguments, gradients of copied graphs, and bodies of signatures."""

from __future__ import annotations

import collections
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2, types_pb2

from colocation import tensorflow_internals as internals
from colocation.op_facts import CALLS, alone, copy_of, data_inputs, parse_input
from colocation.tensorflow_internals import FuncGraph
from tf_placer.base.arguments import InputError
from tf_placer.graph import program
from tf_placer.graph.program import Program, functions_in
from tf_placer.graph.read_graph import SavedModel


def with_functions_renamed(graph_def: tf.compat.v1.GraphDef, suffix: str) -> tf.compat.v1.GraphDef:
    """A copy whose library functions have names that are new in this process."""
    result = copy_of(graph_def)
    new_name = {name: name + suffix for name in program.functions_of(graph_def.library)}
    rename_references(program.all_nodes(result), new_name)
    for function in result.library.function:
        function.signature.name += suffix
    for gradient in result.library.gradient:
        gradient.function_name = new_name.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = new_name.get(gradient.gradient_func, gradient.gradient_func)
    return result


def rename_references(nodes: Iterable[node_def_pb2.NodeDef], new_name: Mapping[str, str]) -> None:
    """Renames the functions that nodes call, in place."""
    for node in nodes:
        node.op = new_name.get(node.op, node.op)
        for value in node.attr.values():
            for function in functions_in(value):
                function.name = new_name.get(function.name, function.name)


def add_handle_data(graph_def: tf.compat.v1.GraphDef, traced: FuncGraph) -> None:
    """Adds the variable's type and shape to every argument of a library function that is a handle, in place.

    TensorFlow knows these for functions that it has traced, and needs them to differentiate; a FunctionDef can hold
    them, but is written without. The shape of the handle itself, as loops and branches pass it on, would be taken for
    the variable's, so it is left open. The library functions have the names of their traces in ``traced``.
    """
    for function in graph_def.library.function:
        body = internals.called_graph(traced, function.signature.name)
        inputs = body.inputs if body is not None else []
        for k, (argument, tensor) in enumerate(zip(function.signature.input_arg, inputs, strict=False)):
            if tensor.dtype != tf.resource:
                continue
            shapes = function.arg_attr[k].attr["_output_shapes"].list.shape
            del shapes[:]
            shapes.add(unknown_rank=True)
            if not argument.handle_data:
                for data in internals.get_resource_handle_data(tensor).shape_and_type:
                    argument.handle_data.add(dtype=data.dtype, shape=data.shape)
    for node in program.all_nodes(graph_def):
        if "output_shapes" in node.attr and "T" in node.attr:
            types, shapes = node.attr["T"].list.type, node.attr["output_shapes"].list.shape
            for dtype, shape in zip(types, shapes, strict=False):
                if dtype == types_pb2.DT_RESOURCE:
                    shape.unknown_rank = True


def with_functions_of_their_own(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Gives every node of the main graph separate copies of the functions that the node names, directly or not.

    After two calls of one function are inlined, their loops share a body. TensorFlow rewrites the body of a loop when
    it is differentiated, under one name, and fails when another loop has done so before.
    """
    result = copy_of(graph_def)
    originals = program.functions_of(graph_def.library)
    in_use, used = set(originals), set[str]()

    def copy_functions(node: node_def_pb2.NodeDef) -> None:
        for value in node.attr.values():
            for called in functions_in(value):
                if called.name not in originals:
                    continue
                if called.name not in used:
                    used.add(called.name)
                    function = next(f for f in result.library.function if f.signature.name == called.name)
                else:
                    function = result.library.function.add()
                    function.CopyFrom(originals[called.name])
                    called.name = function.signature.name = program.fresh_name(called.name, in_use)
                for inner in function.node_def:
                    copy_functions(inner)

    for node in result.node:
        copy_functions(node)
    return result


_ATTRIBUTE = "_gradient_op_type"
_MARK = "_tf_placer_signature"  # of an op with a device from a signature's plan; functions cannot be marked
_OP = "_tf_placer_op"  # the op's name in the signature's function
_DO_NOT_SAVE = "save with tf.saved_model.SaveOptions(experimental_custom_gradients=False)"


def register_custom_gradients(graph_def: tf.compat.v1.GraphDef, graph: FuncGraph, suffix: str) -> None:
    """Registers the custom gradients of nodes under new names, in place, to compute with tensors of ``graph``.

    ``graph`` imports the nodes; its tensors replace those of the traced graph with the same names.
    """
    for node in program.all_nodes(graph_def):
        name = _custom_gradient(node)
        original = internals.registered_gradient(name)
        if original is not None:
            moved = f"{name}{suffix}"
            if internals.registered_gradient(moved) is None:
                tf.RegisterGradient(moved)(_moved(original, name, moved, weakref.ref(graph)))
            node.attr[_ATTRIBUTE].s = moved.encode()


def _custom_gradient(node: node_def_pb2.NodeDef) -> str:
    return node.attr[_ATTRIBUTE].s.decode() if node.op == "IdentityN" and _ATTRIBUTE in node.attr else ""


def _moved(
    original: Callable[..., Any], name: str, moved: str, weak_graph: weakref.ref[FuncGraph]
) -> Callable[..., Any]:
    """The gradient that was registered by ``name``, with tensors of the graph that is differentiated."""

    def gradient(op: tf.Operation | None, *upstream: tf.Tensor | None) -> Any:
        graph = weak_graph()
        is_saved = op is None  # TensorFlow saves gradients without an op
        if is_saved and graph is not None:
            op = _op_with(graph.get_operations(), moved)
        if op is None:
            raise InputError(f"the gradient {name!r} is asked for without its op; {_DO_NOT_SAVE}")

        def of_tensors(tensors: list[tf.Tensor]) -> Any:
            remaining = iter(tensors)
            return original(op, *(None if tensor is None else next(remaining) for tensor in upstream))

        # None stands for a result that is not differentiated.
        tensors = [tensor for tensor in upstream if tensor is not None]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        concrete = tf.function(of_tensors, autograph=False).get_concrete_function(specs)
        captures = [
            _counterpart(captured, op, name, may_add=not is_saved) for captured in concrete.captured_inputs
        ]
        return internals.call_flat(concrete, tensors, captures)

    return gradient


def _counterpart(captured: tf.Tensor, op: tf.Operation, name: str, may_add: bool) -> tf.Tensor:
    """A captured tensor's counterpart in the graph of ``op``; a tensor of no traced graph is its own.

    The traced graph is in there under a prefix, without the ops that no result needs. Those are added.
    """
    traced = getattr(captured, "graph", None)
    original = None if traced in (None, op.graph) else _op_with(traced.get_operations(), name)
    if original is None or not op.name.endswith(original.name):
        return captured
    prefix = op.name.removesuffix(original.name)

    def copied_op(traced: tf.Operation) -> tf.Operation | None:
        try:
            copy = op.graph.get_operation_by_name(prefix + traced.name)
        except KeyError:
            return None
        return copy if copy.type == traced.type or traced.type == "Placeholder" else None

    def copied(traced: tf.Tensor) -> tf.Tensor | None:
        copy = copied_op(traced.op)
        if copy is not None and len(copy.outputs) > traced.value_index:
            return copy.outputs[traced.value_index]
        # Inlining leaves no op for an argument, but its readers have the tensor as an input.
        for reader in traced.consumers():
            copy = copied_op(reader)
            if copy is not None and len(copy.inputs) == len(reader.inputs):
                return copy.inputs[next(k for k, tensor in enumerate(reader.inputs) if tensor is traced)]
        return None

    copy = copied(captured)
    if copy is not None:
        return copy
    if not may_add:
        raise InputError(
            f"the custom gradient of {op.name!r} needs {captured.name!r}, which the saved function has not; "
            f"{_DO_NOT_SAVE}"
        )
    missing: dict[str, tf.Operation] = {}
    copies: dict[str, tf.Tensor] = {}
    frontier = [captured]
    while frontier:
        tensor = frontier.pop()
        copy, source = copied(tensor), tensor.op
        if copy is not None:
            copies[tensor.name] = copy
        elif source.name not in missing:
            has_functions = len(program.function_names(source.node_def)) > 1
            if source.type == "Placeholder" or source.op_def.is_stateful or has_functions:
                raise InputError(
                    f"the custom gradient of {op.name!r} needs {source.name!r} ({source.type}), which no result of "
                    "the placed function needs; return it, too, or take the gradient inside the function"
                )
            missing[source.name] = source
            frontier.extend(source.inputs)
    nodes = [alone(source.node_def, [tensor.name for tensor in source.inputs]) for source in missing.values()]
    graph_def = tf.compat.v1.GraphDef(node=nodes)
    with op.graph.as_default(), tf.control_dependencies(None):
        return tf.import_graph_def(graph_def, copies, [captured.name], name=f"{op.name}/residual")[0]


def _op_with(ops: Iterable[tf.Operation], gradient: str) -> tf.Operation | None:
    for op in ops:
        if op.type == "IdentityN" and _custom_gradient(op.node_def) == gradient:
            return op
    return None


@dataclasses.dataclass(frozen=True)
class SignatureCall:
    """The one call in the main graph that a signature of TensorFlow 2 consists of."""

    node: node_def_pb2.NodeDef  # in the main graph
    body: function_pb2.FunctionDef  # in the library

    @property
    def arguments(self) -> dict[str, str]:
        """Main-graph op -> name of the body's argument."""
        names = [argument.name for argument in self.body.signature.input_arg]
        ops = [parse_input(text)[1] for text in data_inputs(self.node)]
        return dict(zip(ops, names, strict=True))

    @property
    def handles(self) -> list[str]:
        """Main-graph ops of the variables and tables among the arguments."""
        types = {argument.name: argument.type for argument in self.body.signature.input_arg}
        return [op for op, name in self.arguments.items() if types[name] == tf.resource.as_datatype_enum]


def call_of(model: SavedModel, signature: str) -> SignatureCall | None:
    """A signature's call; None for a signature of TensorFlow 1, whose ops are in the main graph."""
    graph_def = model.meta_graph.graph_def
    node_of_name = {node.name: node for node in graph_def.node}
    outputs = model.signature(signature).outputs.values()
    names = {parse_input(output.name)[1] for output in outputs}
    node = node_of_name[next(iter(names))]
    functions = model.meta_graph.object_graph_def.concrete_functions
    if len(names) != 1 or node.op not in CALLS or node.attr["f"].func.name not in functions:
        return None
    return SignatureCall(node, program.functions_of(graph_def.library)[node.attr["f"].func.name])


def replace_body(model: SavedModel, signature: str, call: SignatureCall, placed: Program) -> None:
    """Makes a placed program the body of a signature's function, in ``model``; InputError if results are left out."""
    library, body = model.meta_graph.graph_def.library, call.body
    graph_def = with_functions_renamed(placed.graph_def, f"__placed_{body.signature.name}")
    outputs = model.signature(signature).outputs
    results = [argument.name for argument in body.signature.output_arg]
    ret = {
        results[parse_input(outputs[key].name)[2]]: fetch
        for key, fetch in zip(sorted(outputs), placed.fetches, strict=True)
    }
    if len(ret) != len(results):
        raise InputError(
            f"{model.path}: signature {signature!r} names {len(ret)} of the {len(results)} results of its function; "
            "export the model again with all of them"
        )
    program.write_body(body, graph_def, call.arguments, ret, placed.control_outputs)
    library.function.extend(graph_def.library.function)
    library.gradient.extend(graph_def.library.gradient)


def place_object_functions(
    model: SavedModel, signature: str, call: SignatureCall, devices: Mapping[str, str], is_split: bool
) -> list[str]:
    """Gives functions of objects that a signature calls, such as ``model.serve``, the devices of its plan.

    Other signatures that call them get copies without devices, so they run as before.

    All of ``model`` but the signature's own function is changed; ``call`` is ``call_of(model, signature)``. Where the
    batch is in parts, the functions, which have a whole batch, have few of the plan's ops.

    Returns:
      Paths in the objects (``"serve"``, ``"encoder.encode"``) of functions without a signature that run unplaced,
      wholly or in part: they read the signature's variables but are not called by it, or are called with several plans.
    """
    graph_def, objects = model.meta_graph.graph_def, model.meta_graph.object_graph_def
    library, concrete = program.functions_of(graph_def.library), objects.concrete_functions
    body = call.body.signature.name
    # The signature no longer calls functions that an earlier plan of its placed: its body was replaced, and has their
    # ops inlined under these names.
    for node in (node for function in library.values() for node in function.node_def):
        if _MARK in node.attr and node.attr[_MARK].s.decode() == signature:
            name = f"{call.node.name}/{node.attr[_OP].s.decode()}"
            node.attr[_OP].s = name.encode()
            node.device = devices.get(name, "")
    paths_called: dict[str, list[str]] = collections.defaultdict(list)
    for path, function in program.inlined_bodies(call.body.node_def, library, f"{call.node.name}/"):
        paths_called[function.signature.name].append(path)
    of_signatures = {node.attr["f"].func.name for node in graph_def.node if node.op in CALLS}
    path_of = {name: _path_of(objects, name) for name in (set(concrete) & set(library)) - of_signatures}
    of_objects = {name for name, path in path_of.items() if path}
    reached_from = {
        name: {name} | program.called_functions(function.node_def, library)
        for name, function in library.items()
    }
    shared = {name for name in of_objects if not reached_from[name].isdisjoint(paths_called)}
    # Functions of objects that no signature calls, now or before an earlier plan, but that share a variable with this.
    variables = _variables(objects, body)
    unplaced = {
        name
        for name in of_objects - set().union(*(reached_from.get(name, ()) for name in of_signatures)) - shared
        if not any(_MARK in node.attr for node in library[name].node_def)
        and variables & _variables(objects, name)
    }
    if shared:
        # The bodies of other signatures get copies of the functions that are given devices.
        bodies = [name for name in of_signatures - {body} if name in library]
        needed = set().union(*(reached_from[name] for name in bodies)) - set(bodies)
        copied = sorted(name for name in needed if not reached_from[name].isdisjoint(paths_called))
        in_use = set(library)
        new_name = {name: program.fresh_name(f"{name}__unplaced", in_use) for name in copied}
        for name, new in new_name.items():
            copy = graph_def.library.function.add()
            copy.CopyFrom(library[name])
            copy.signature.name = new
            rename_references(copy.node_def, new_name)
        for name in bodies:
            rename_references(library[name].node_def, new_name)
        mixed = set()  # functions with an op that has several devices
        for name, paths in paths_called.items():
            for node in library[name].node_def:
                names = [f"{path}/{node.name}" for path in paths if f"{path}/{node.name}" in devices]
                devices_of_op = {devices[op] for op in names}
                if len(devices_of_op) > 1:
                    mixed.add(name)
                elif names:
                    (node.device,) = devices_of_op
                    node.attr[_MARK].s, node.attr[_OP].s = signature.encode(), names[0].encode()
        unplaced |= {name for name in shared if is_split or not reached_from[name].isdisjoint(mixed)}
    return sorted({path_of[name] for name in unplaced})


def _variables(objects: Any, function: str) -> set[int]:
    """Numbers of the variables that a function of the objects captures."""
    numbers, nodes = objects.concrete_functions[function].bound_inputs, objects.nodes
    return {n for n in numbers if n in range(len(nodes)) and nodes[n].WhichOneof("kind") == "variable"}


def _path_of(objects: Any, function: str) -> str:
    """The shortest path to a callable function of this name; empty where there is none."""
    seen, frontier = {0}, collections.deque([(0, "")] if objects.nodes else ())
    while frontier:
        number, path = frontier.popleft()
        node = objects.nodes[number]
        if node.WhichOneof("kind") == "function" and function in node.function.concrete_functions:
            return path
        for child in node.children:
            if child.node_id not in seen and child.node_id in range(len(objects.nodes)):
                seen.add(child.node_id)
                frontier.append((child.node_id, f"{path}.{child.local_name}".removeprefix(".")))
    return ""
