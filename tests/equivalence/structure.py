"""What must be true of an item and of a placed function by their looks, whatever they compute, and of their effects.

Which effects there are, what they write, and whether their order is certain, is found again here, from TensorFlow's
own op definitions, without the code under test.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import op_def_registry

from tf_placer.graph.item import Item

# The item's own: parts of an IdentityN, what is left of calls, what was captured or passed.
_MADE_FOR_THE_ITEM = frozenset({"Identity", "NoOp", "VarHandleOp", "Placeholder"})
_ARGUMENTS = frozenset({"Placeholder", "VarHandleOp"})


def item_complaints(item: Item, concrete: concrete_function.ConcreteFunction) -> list[str]:
    """What is wrong with an item of a traced function: effects, attributes, classes, order."""
    traced = concrete.graph.as_graph_def()
    library = library_of(traced)
    own = library_of(item.graph_def)
    lines = []
    wanted, found = effects(traced.node, library), effects(item.graph_def.node, own)
    if wanted != found:
        lines.append(f"effects traced: {dict(wanted)}; of the item: {dict(found)}")
    known = {_looks(node) for node in expanded(traced.node, library)}
    known |= {_constant(bits_of) for bits_of in _captured_constants(concrete)}
    for node in item.graph_def.node:
        if node.op not in _MADE_FOR_THE_ITEM and _looks(node) not in known:
            lines.append(f"no traced {node.op} has the attributes of {node.name}")
    lines += _class_complaints(item, concrete)
    lines += lost_waits(traced, item.graph_def, {text.partition(":")[0] for text in item.fetches})
    return lines + unordered_accesses(item.graph_def)


def _class_complaints(item: Item, concrete: concrete_function.ConcreteFunction) -> list[str]:
    """An op that was traced with another (``loc:@``) is still to be with it, if both are in the item."""
    traced = concrete.graph.as_graph_def()
    followers = [node for node in expanded(traced.node, library_of(traced)) if _classes(node)]
    names = {node.name for node in item.graph_def.node}
    lines = []
    for node in item.graph_def.node:
        for follower in followers if _classes(node) else ():
            if not f"/{node.name}".endswith(f"/{follower.name}"):
                continue
            scope = node.name.removesuffix(follower.name)  # of the call whose body it was in
            for target in _classes(follower):
                if f"{scope}{target}" in names and f"{scope}{target}" not in _classes(node):
                    lines.append(f"{node.name} is to be with {_classes(node)}, not with {scope}{target}")
    return lines


def placed_complaints(
    placed: concrete_function.ConcreteFunction, item: Item, device_of_op: Mapping[str, str]
) -> list[str]:
    """What is wrong with a placed function's graph, compared with the item op by op."""
    graph_def = placed.graph.as_graph_def()
    found = {node.name: node for node in graph_def.node}
    lines = []
    for node in item.graph_def.node:
        here = found.get(node.name)
        if here is None:
            lines.append(f"{node.name} is missing")
            continue
        device = "" if node.op == "Placeholder" else device_of_op[node.name]
        if here.device != device:
            lines.append(f"{node.name} is on {here.device!r}, not on {device!r}")
        if node.op in _ARGUMENTS:
            continue
        if here.op != node.op:
            lines.append(f"{node.name} is a {here.op}, not a {node.op}")
        if _inputs(here) != _inputs(node):
            lines.append(f"{node.name} reads {list(here.input)}, not {list(node.input)}")
        if _classes(here) != _classes(node):
            lines.append(f"{node.name} is to be with {_classes(here)}, not {_classes(node)}")
        if _attributes(here) != _attributes(node):
            lines.append(f"{node.name} has other attributes: {here.attr} not {node.attr}")
    lines += _function_complaints(graph_def, item)
    if [op.name for op in placed.graph.control_outputs] != list(item.control_outputs):
        lines.append(f"control outputs are {[op.name for op in placed.graph.control_outputs]}")
    return lines


def ran_complaints(
    graphs: Iterable[graph_pb2.GraphDef], item: Item, device_of_op: Mapping[str, str]
) -> tuple[list[str], set[str]]:
    """Where ops ran elsewhere than planned, or an effect did not run at all; and the devices that were used."""
    ran_on = {node.name: node.device for graph in graphs for node in graph.node}
    lines = [
        f"{name} ran on {ran_on[name]}, not on {device_of_op[name]}"
        for name in (node.name for node in item.graph_def.node if node.op not in _ARGUMENTS)
        if name in ran_on and ran_on[name] != device_of_op[name]
    ]
    own = library_of(item.graph_def)
    for node in item.graph_def.node:
        if not functions_of(node) and effects([node], own) and node.name not in ran_on:
            lines.append(f"{node.name}, which changes something, did not run")
    return lines, {ran_on[node.name] for node in item.graph_def.node if node.name in ran_on}


def capture_complaints(
    concrete: concrete_function.ConcreteFunction, variables: Iterable[tf.Variable]
) -> list[str]:
    """Whether a function reads the storage that the variables have now."""
    captured = {id(tensor) for tensor in concrete.captured_inputs}
    own = {id(variable) for variable in concrete.graph.variables}
    return [
        f"{concrete.name} goes on with the old storage of {variable.name}"
        for variable in variables
        if id(variable) in own and id(variable.handle) not in captured
    ]


def _function_complaints(graph_def: tf.compat.v1.GraphDef, item: Item) -> list[str]:
    """Every function that the item's ops name must be there, by a name of its own, and be the same otherwise."""
    here, own = library_of(graph_def), library_of(item.graph_def)
    found = {node.name: node for node in graph_def.node}
    lines, done = [], set()

    def compare(node: node_def_pb2.NodeDef, original: node_def_pb2.NodeDef) -> None:
        for name, wanted in zip(functions_of(node), functions_of(original), strict=True):
            if name == wanted or wanted not in own or name not in here:
                lines.append(f"{node.name} calls {name} for {wanted}, which is not a copy in the library")
            elif (name, wanted) not in done:
                done.add((name, wanted))
                pairs = list(zip(here[name].node_def, own[wanted].node_def, strict=True))
                if (
                    any(_body_looks(a) != _body_looks(b) for a, b in pairs)
                    or here[name].ret != own[wanted].ret
                ):
                    lines.append(f"function {name} is not what {wanted} is")
                for inner, inner_original in pairs:
                    compare(inner, inner_original)

    for node in item.graph_def.node:
        if node.name in found and node.op == found[node.name].op:
            compare(found[node.name], node)
    return lines


def _inputs(node: node_def_pb2.NodeDef) -> tuple[list[str], set[str]]:
    data = [text.removesuffix(":0") for text in node.input if not text.startswith("^")]
    return data, {text for text in node.input if text.startswith("^")}


def _classes(node: node_def_pb2.NodeDef) -> list[str]:
    if "_class" not in node.attr:
        return []
    return [entry.decode().removeprefix("loc:@") for entry in node.attr["_class"].list.s]


def _attributes(node: node_def_pb2.NodeDef) -> dict[str, bytes]:
    """What an op is told, defaults included; without names of functions, the shapes of handles that a loop carries, and
    notes of TensorFlow's to itself but which gradient is meant."""
    attributes = dict(node.attr)
    if (
        "_gradient_op_type" in attributes
    ):  # a placed function registers the gradient again, for its own tensors
        name = attr_value_pb2.AttrValue()
        name.s = attributes["_gradient_op_type"].s.partition(b"__placed_")[0]
        attributes["_gradient_op_type"] = name
    if "output_shapes" in attributes and "T" in attributes:
        shapes = attr_value_pb2.AttrValue()
        shapes.CopyFrom(attributes["output_shapes"])
        for dtype, shape in zip(attributes["T"].list.type, shapes.list.shape, strict=False):
            if dtype == types_pb2.DT_RESOURCE:
                shape.Clear()
        attributes["output_shapes"] = shapes
    for attribute in op_def_registry.get(node.op).attr:
        if attribute.HasField("default_value"):
            attributes.setdefault(attribute.name, attribute.default_value)
    return {
        key: value.SerializeToString(deterministic=True)
        for key, value in attributes.items()
        if (key == "_gradient_op_type" or not key.startswith("_"))
        and not value.HasField("func")
        and not value.list.func
    }


def _looks(node: node_def_pb2.NodeDef) -> tuple:
    if node.op == "Const":
        return _constant(tf.make_ndarray(node.attr["value"].tensor))
    # Handed on or known better where shapes are those of the example arguments.
    left_out = {"output_shapes", "shape"} if node.op in ("While", "StatelessWhile") else set()
    return node.op, tuple(sorted(item for item in _attributes(node).items() if item[0] not in left_out))


def _constant(value) -> tuple:
    content = tuple(value.ravel().tolist()) if value.dtype == object else value.tobytes()
    return "Const", value.dtype.name, value.shape, content


def _captured_constants(concrete: concrete_function.ConcreteFunction):
    return [
        tensor.numpy() for tensor in concrete.captured_inputs if tensor.dtype not in (tf.resource, tf.variant)
    ]


def _body_looks(node: node_def_pb2.NodeDef) -> tuple:
    return node.name, node.op, node.device, tuple(node.input), tuple(sorted(_attributes(node).items()))


_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
_INDIFFERENT = frozenset(
    {"VariableShape", "Identity"}
)  # what they give does not depend on the variable's value
_EFFECTS_WITHOUT_RESOURCE = frozenset({"PyFunc", "Assert"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# The first input of these is no argument of their functions.
_CHOOSES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
Library = dict[str, function_pb2.FunctionDef]


def library_of(graph_def: tf.compat.v1.GraphDef) -> Library:
    """Function name -> function."""
    return {function.signature.name: function for function in graph_def.library.function}


def functions_of(node: node_def_pb2.NodeDef) -> list[str]:
    """Names of the functions in a node's attributes."""
    names = []
    for _, value in sorted(node.attr.items()):
        names += [value.func.name] if value.HasField("func") else [one.name for one in value.list.func]
    return names


def expanded(nodes: Iterable[node_def_pb2.NodeDef], library: Library) -> Iterator[node_def_pb2.NodeDef]:
    """Yields the nodes with those of called functions in the place of calls, once for every call."""
    for node in nodes:
        if node.op in _CALLS:
            yield from expanded(library[node.attr["f"].func.name].node_def, library)
        else:
            yield node


def effects(nodes: Iterable[node_def_pb2.NodeDef], library: Library) -> collections.Counter[str]:
    """How many ops of each type change something, those in functions of calls, loops and branches included."""
    found: collections.Counter[str] = collections.Counter()
    for node in nodes:
        if _changes_something(node):
            found[node.op] += 1
        for name in functions_of(node):
            found += effects(library[name].node_def, library)
    return found


def unordered_accesses(graph_def: tf.compat.v1.GraphDef) -> list[str]:
    """A line for two ops of which one writes a variable that the other uses, and neither waits for the other.

    The nodes must be in topological order and calls inlined.
    """
    library = library_of(graph_def)
    position = {node.name: k for k, node in enumerate(graph_def.node)}
    before = _ancestors(graph_def)
    accesses: dict[str, list[tuple[int, bool]]] = collections.defaultdict(list)
    lines = []
    for k, node in enumerate(graph_def.node):
        ancestors = before[node.name]
        for handle, writes in _accesses(node, library).items():
            if graph_def.node[position[handle]].op != "VarHandleOp":
                continue
            for other, other_writes in accesses[handle]:
                if (writes or other_writes) and not ancestors >> other & 1:
                    lines.append(
                        f"{graph_def.node[other].name} and {node.name} use {handle} in no certain order"
                    )
            accesses[handle].append((k, writes))
    return lines


def lost_waits(
    traced: tf.compat.v1.GraphDef, graph_def: tf.compat.v1.GraphDef, results: set[str]
) -> list[str]:
    """A line for each op that waited (``^``) for another when it was traced, and does not wait for it any more.

    Nodes are in topological order; ``results`` need not wait: nothing reads them and all effects run anyway.
    """
    before = _ancestors(graph_def)
    position = {node.name: k for k, node in enumerate(graph_def.node)}
    lines = []
    for node in traced.node:
        if node.name not in before or node.name in results:
            continue
        for text in node.input:
            # An IdentityN may have been split into parts NAME/0, NAME/1 and so on.
            awaited = [text[1:], *(f"{text[1:]}/{k}" for k in range(3))] if text.startswith("^") else []
            for name in awaited:
                if name in position and not before[node.name] >> position[name] & 1:
                    lines.append(f"{node.name} no longer waits for {name}")
    return lines


def _ancestors(graph_def: tf.compat.v1.GraphDef) -> dict[str, int]:
    """Name of each op -> the ops that come before it, as bits at their positions."""
    position = {node.name: k for k, node in enumerate(graph_def.node)}
    before: dict[str, int] = {}
    for node in graph_def.node:
        ancestors = 0
        for text in node.input:
            producer = text.removeprefix("^").partition(":")[0]
            ancestors |= before[producer] | 1 << position[producer]
        before[node.name] = ancestors
    return before


def _accesses(node: node_def_pb2.NodeDef, library: Library) -> dict[str, bool]:
    """Producer of each data input -> whether the node writes the resource that it is."""
    if node.op in _INDIFFERENT:
        return {}
    data = [text for text in node.input if not text.startswith("^")]
    written = _written_inputs(node, library)
    found: dict[str, bool] = {}
    for k, text in enumerate(data):
        name = text.partition(":")[0]
        found[name] = found.get(name, False) or k in written
    return found


def _written_inputs(node: node_def_pb2.NodeDef, library: Library) -> set[int]:
    """Positions of the inputs that are written, if they are resources."""
    names = functions_of(node)
    if not names:
        return set(range(len(node.input))) if _changes_something(node) else set()
    first = 1 if node.op in _CHOOSES else 0
    return {first + k for name in names for k in _written_arguments(library[name], library)}


def _written_arguments(function: function_pb2.FunctionDef, library: Library) -> set[int]:
    argument_of = {argument.name: k for k, argument in enumerate(function.signature.input_arg)}
    identities = {node.name: node.input[0] for node in function.node_def if node.op == "Identity"}
    found = set()
    for node in function.node_def:
        for k in _written_inputs(node, library):
            text = node.input[k]
            while text.partition(":")[0] in identities:
                text = identities[text.partition(":")[0]]
            if text in argument_of:
                found.add(argument_of[text])
    return found


def _changes_something(node: node_def_pb2.NodeDef) -> bool:
    if node.op in _EFFECTS_WITHOUT_RESOURCE:
        return True
    definition = op_def_registry.get(node.op)
    takes_resource = any(argument.type == tf.resource.as_datatype_enum for argument in definition.input_arg)
    return definition.is_stateful and takes_resource and node.op not in _READS
