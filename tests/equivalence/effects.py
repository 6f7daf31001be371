"""Side effects of a graph by themselves: which there are, what they write, and whether their order is certain.

Found again here, from TensorFlow's own op definitions, without the code under test.
"""

import collections
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.python.framework import op_def_registry

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
