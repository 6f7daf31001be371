"""TensorFlow's hard colocation rules: one function per rule, each merge with its reason.

Most are the Placer's, as TensorFlow 2.21 behaves with soft placement off. ``forwarded_resources``, ``variant_readers``
and ``switch_inputs`` are what the runtime needs beyond the Placer; ``loop_frames`` and ``reference_readers`` are
choices of ours, the second so that a placed program computes what it did.
``tests/colocation/runtime_agreement_test.py`` holds them to the runtime in both directions.

``While``, ``If`` and ``Case`` are one op each, with their bodies in the library. They follow ``resource_edges`` like
any other op, so a loop shares a device with every variable that it captures. The Placer demands this of a
``While`` that runs as an op. Of one that is lowered it ties each read in the body to its variable; a variable elsewhere
would pull ops off the loop's device, and the loop's work would not run where it was put.

A loop's ``Enter``, ``Merge``, ``Switch`` and ``NextIteration`` run where TensorFlow puts them: where the loop's input
is made. An input from elsewhere crosses twice an iteration.

Function calls (``PartitionedCall``) are exempt, as in the Placer: their bodies are placed op by op. The body of a call
that XLA must compile runs where the call is, so such a call is not exempt.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from colocation.op_facts import (
    ENTERS,
    EXITS,
    GraphIndex,
    attribute_of,
    having,
    is_compiled,
    num_tensors,
    op_definition,
    reached,
)

_REF_OFFSET = types_pb2.DT_FLOAT_REF - types_pb2.DT_FLOAT  # DT_X_REF = DT_X + 100, for every X

LEAVES_AS_IT_IS, _SAME_BUFFER = having("keeps_reference"), having("same_buffer")
EXEMPT_OP_TYPES = having("forwards_resources")
_CLASS_PREFIX = b"loc:@"
_DATASET_NAME = re.compile(r"Dataset(V\d+)?$")
_VARIANT_TYPES, _SWITCH_TYPES = having("local_variant"), having("switch")


@functools.cache
def takes_special_inputs(op_type: str) -> bool:
    """Returns whether some node of this type may take a resource, variant or ref input.

    Most ops of a training step cannot: this spares them the walk over their arguments.
    """
    definition = op_definition(op_type)
    if definition is None:
        return False
    special = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
    for arg in definition.input_arg:
        if arg.is_ref or arg.type in special:
            return True
        name = arg.type_attr or arg.type_list_attr
        if name:
            allowed = next(attr for attr in definition.attr if attr.name == name).allowed_values.list.type
            if not allowed or any(dtype in special for dtype in allowed):
                return True
    return False


def _types(node: tf.compat.v1.NodeDef, side: str) -> list[int]:
    """Returns the ``DataType`` number of each data input or output of a registered op.

    It is the consumer's view: an ``Identity`` that reads a ref variable expects the plain
    dtype (the runtime dereferences and may send the value), an ``Assign`` expects the ref.

    Raises:
      ValueError: the op is not registered, or an attribute that gives a dtype is missing.
    """
    definition = op_definition(node.op)
    if definition is None:
        raise ValueError(f"node {node.name!r} has op type {node.op!r}, which TensorFlow does not know")
    types: list[int] = []
    for arg in getattr(definition, side):
        if arg.type_list_attr:
            of_arg = list(attribute_of(node, arg.type_list_attr).list.type)
        else:
            dtype = arg.type or attribute_of(node, arg.type_attr).type
            of_arg = [dtype] * num_tensors(arg, node)
        types.extend(t + _REF_OFFSET if arg.is_ref and t < _REF_OFFSET else t for t in of_arg)
    return types


input_types = functools.partial(_types, side="input_arg")
output_types = functools.partial(_types, side="output_arg")


def is_ref(dtype: int) -> bool:
    """Returns whether a ``DataType`` number is one of the ref types of v1 variables."""
    return dtype > _REF_OFFSET


@dataclasses.dataclass(frozen=True)
class References:
    """The references in a graph."""

    outputs: frozenset[tuple[int, int]]  # (op, output) of those that are made or handed on
    # (op, input) of the inputs that take the reference itself. Any other that one leads to takes its value.
    inputs: frozenset[tuple[int, int]]


def references_of(index: GraphIndex) -> References:
    """References of a graph; functions that ops call by name have none."""
    definitions = {op_type: op_definition(op_type) for op_type in set(index.op_types)}
    of_side = []
    for side in ("output_arg", "input_arg"):
        with_references = {
            op_type
            for op_type, definition in definitions.items()
            if definition is not None and any(argument.is_ref for argument in getattr(definition, side))
        }
        of_side.append(
            frozenset(
                (op, position)
                for op, node in enumerate(index.graph_def.node)
                if node.op in with_references
                for position, dtype in enumerate(_types(node, side))
                if is_ref(dtype)
            )
        )
    outputs, inputs = of_side
    return References(outputs, inputs if outputs else frozenset())


@dataclasses.dataclass(frozen=True)
class Frames:
    """The frames of a graph; frame 0 is the graph itself, and parents come before their children."""

    frame_of_op: list[int]  # [N]; -1 for an op on a cycle that nothing enters
    enter_of_frame: list[int]  # [F] the first ``Enter`` op of each frame; -1 of frame 0
    parent_of_frame: list[int]  # [F] the frame around each; 0 of frame 0


def outermost_loops(index: GraphIndex) -> list[int]:
    """[N] ``Enter`` op that stands for the outermost v1 loop around each op, or -1 outside of loops."""
    frames = find_frames(index)
    outermost = list(frames.enter_of_frame)
    for frame, parent in enumerate(frames.parent_of_frame):
        if parent:
            outermost[frame] = outermost[parent]
    # Only a cycle that nothing enters is never reached (frame -1); it is in no loop.
    return [outermost[max(frame, 0)] for frame in frames.frame_of_op]


def find_frames(index: GraphIndex) -> Frames:
    """Finds the frame of each op, in one breadth-first pass.

    ``Enter`` opens a frame (one per parent frame and ``frame_name``) and belongs to it, so does
    ``Exit``, whose output is outside. An op is in the frame of its inputs.
    """
    if not ENTERS.intersection(index.op_types):
        return Frames([0] * index.num_ops, [-1], [0])
    frame_of_op = [-1] * index.num_ops
    enter_of_frame, parent_of_frame = [-1], [0]
    frame_of_key: dict[tuple[int, bytes], int] = {}
    queue: collections.deque[int] = collections.deque()

    def visit(op: int, frame: int) -> None:
        if index.op_types[op] in ENTERS:
            key = (frame, index.graph_def.node[op].attr["frame_name"].s)
            if key not in frame_of_key:
                frame_of_key[key] = len(enter_of_frame)
                enter_of_frame.append(op)
                parent_of_frame.append(frame)
            frame = frame_of_key[key]
        frame_of_op[op] = frame
        queue.append(op)

    for op, node in enumerate(index.graph_def.node):
        if not node.input:
            visit(op, 0)
    while queue:
        op = queue.popleft()
        frame = frame_of_op[op]
        outside = parent_of_frame[frame] if index.op_types[op] in EXITS else frame
        for successor in index.consumers[op]:
            if frame_of_op[successor] < 0:
                visit(successor, outside)
    return Frames(frame_of_op, enter_of_frame, parent_of_frame)


@dataclasses.dataclass(frozen=True)
class Merge:
    """Two ops that must (or, from a heuristic, should) share a device."""

    # op_a, op_b: op ids
    op_a: int
    op_b: int
    rule: str  # name of the rule function
    reason: str  # one line for a reader who asks why


Rule = Callable[[GraphIndex], Iterator[Merge]]


def resource_edges(index: GraphIndex) -> Iterator[Merge]:
    """A resource handle stays in one device's resource manager: its users must be there."""
    # The body of a call that XLA must compile runs where the call is.
    library = index.graph_def.library.function
    functions = {function.signature.name for function in library if is_compiled(function)}
    compiled = {
        op
        for op, node in enumerate(index.graph_def.node)
        if is_compiled(node) or ("f" in node.attr and node.attr["f"].func.name in functions)
    }
    for producer, consumer, dtype in _special_inputs(index):
        exempt = index.op_types[consumer] in EXEMPT_OP_TYPES and consumer not in compiled
        if dtype == types_pb2.DT_RESOURCE and not exempt:
            reason = f"{index.names[consumer]} takes a resource handle from {index.names[producer]}"
            yield Merge(producer, consumer, "resource_edges", reason)


def forwarded_resources(index: GraphIndex) -> Iterator[Merge]:
    """An exempt op that hands a resource on (``IdentityN``, a call) stays with its resources.

    The Placer accepts an ``IdentityN`` away from the variable that it forwards, puts the
    users of its output beside it, and the step fails when they look for the variable there. For a
    call it looks into the body to see which input comes out; we tie all of them, which is
    stricter only for a call that returns one resource out of several.
    """
    for producer, consumer, dtype in _special_inputs(index):
        if (
            dtype == types_pb2.DT_RESOURCE
            and index.op_types[consumer] in EXEMPT_OP_TYPES
            and types_pb2.DT_RESOURCE in output_types(index.graph_def.node[consumer])
        ):
            reason = f"{index.names[consumer]} hands on the resource handle of {index.names[producer]}"
            yield Merge(producer, consumer, "forwarded_resources", reason)


def ref_edges(index: GraphIndex) -> Iterator[Merge]:
    """A v1 ref tensor is a pointer to its variable's buffer: its consumers must be there."""
    for producer, consumer, dtype in _special_inputs(index):
        if is_ref(dtype) and index.op_types[consumer] not in EXEMPT_OP_TYPES:
            reason = f"{index.names[consumer]} takes a reference to the buffer of {index.names[producer]}"
            yield Merge(producer, consumer, "ref_edges", reason)


def class_lists(index: GraphIndex) -> Iterator[Merge]:
    """``_class`` entries ``loc:@x`` tie the node to x and to all that name x, x present or not."""
    first_of_class: dict[str, int] = {}
    for op, node in enumerate(index.graph_def.node):
        if "_class" not in node.attr:
            continue
        for entry in node.attr["_class"].list.s:
            if not entry.startswith(_CLASS_PREFIX):
                continue
            name = entry[len(_CLASS_PREFIX) :].decode()
            target = first_of_class.setdefault(name, index.id_of_name.get(name, op))
            if target != op:
                yield Merge(target, op, "class_lists", f"{node.name} has _class loc:@{name}")


def dataset_variant_edges(index: GraphIndex) -> Iterator[Merge]:
    """A dataset op reads its input datasets through a variant that may not cross devices."""
    for producer, consumer, dtype in _special_inputs(index):
        if (
            dtype == types_pb2.DT_VARIANT
            and is_dataset_op(index.op_types[producer])
            and is_dataset_op(index.op_types[consumer])
        ):
            reason = f"{index.names[consumer]} reads the dataset of {index.names[producer]}"
            yield Merge(producer, consumer, "dataset_variant_edges", reason)


def variant_readers(index: GraphIndex) -> Iterator[Merge]:
    """A dataset cannot be sent: readers stay with datasets, and with arguments that may be datasets.

    The Placer ties datasets to datasets only, and a ``ReduceDataset`` in another process than its dataset fails when
    the dataset is to be sent. It ties optionals, too, but sees them in the bodies of branches only.
    """
    for producer, consumer, dtype in _special_inputs(index):
        op_type = index.op_types[producer]
        if dtype == types_pb2.DT_VARIANT and (op_type in _VARIANT_TYPES or is_dataset_op(op_type)):
            reason = f"{index.names[consumer]} reads the variant of {index.names[producer]} in place"
            yield Merge(producer, consumer, "variant_readers", reason)


def switch_inputs(index: GraphIndex) -> Iterator[Merge]:
    """A ``Switch`` runs where its data input is made, whatever its device says.

    Not the Placer's: when the graph is partitioned, the runtime moves a ``Switch`` to its data
    input (it can then drop the dead branch before sending), an ``Exit`` to its input, and
    ``Enter`` and ``NextIteration`` to their first consumer. ``loop_frames`` ties the other three.
    """
    for producer, _, consumer, position in index.data_edges.tolist():
        if position == 0 and index.op_types[consumer] in _SWITCH_TYPES:
            reason = f"the runtime moves {index.names[consumer]} to its data input {index.names[producer]}"
            yield Merge(producer, consumer, "switch_inputs", reason)


def loop_frames(index: GraphIndex) -> Iterator[Merge]:
    """A v1 loop is one unit: all ops of an outermost frame, nested frames included.

    Stricter than TensorFlow, which can spread a loop's work, at the price of a copy of its control
    ops on each device and of a message each iteration (and moves them, see ``switch_inputs``).
    """
    first_of_loop: dict[int, int] = {}
    for op, loop in enumerate(outermost_loops(index)):
        if loop < 0:
            continue
        leader = first_of_loop.setdefault(loop, op)
        if leader != op:
            reason = f"{index.names[op]} is inside the loop that {index.names[loop]} enters"
            yield Merge(leader, op, "loop_frames", reason)


def reference_readers(index: GraphIndex) -> Iterator[Merge]:
    """Merges of a v1 variable with ops that read a reference to its buffer, or read the buffer after a write.

    Such a reader sees the variable's buffer as it is when the reader runs. On another device it would have what the
    buffer held when it was sent, which may be before a write that the reader waits for. The graph is in topological
    order.
    """
    references = references_of(index)
    variable_of = {op: op for op, _ in references.outputs}  # op that gives a buffer -> the variable behind it
    views: list[tuple[int, int]] = []  # (op that has handed a buffer on, consumer)
    writers: dict[int, list[int]] = collections.defaultdict(list)  # of a variable
    for producer, output, consumer, position in index.data_edges.tolist() if references.outputs else ():
        if producer not in variable_of:
            continue
        variable, op_type = variable_of[producer], index.op_types[consumer]
        if (consumer, position) in references.inputs:
            variable_of[consumer] = variable
            if op_type not in LEAVES_AS_IT_IS:
                writers[variable].append(consumer)
            continue
        if (producer, output) in references.outputs:
            reason = (
                f"{index.names[consumer]} reads the buffer of {index.names[producer]} as it is when it runs"
            )
            yield Merge(producer, consumer, "reference_readers", reason)
        else:
            views.append((producer, consumer))
        if op_type in _SAME_BUFFER:
            variable_of[consumer] = variable
    behind = {
        variable: reached(writers[variable], lambda op: index.consumers[op])
        for variable in sorted({variable_of[view] for view, _ in views})
    }
    for view, consumer in views:  # only the consumer runs after a write to the buffer
        written = behind[variable_of[view]]
        if consumer in written and view not in written:
            reason = f"{index.names[consumer]} waits for a write to the buffer that {index.names[view]} has handed on"
            yield Merge(view, consumer, "reference_readers", reason)


RULES: tuple[Rule, ...] = (
    resource_edges,
    forwarded_resources,
    ref_edges,
    class_lists,
    dataset_variant_edges,
    variant_readers,
    switch_inputs,
    loop_frames,
    reference_readers,
)


def is_dataset_op(op_type: str) -> bool:
    """True for what the Placer calls a dataset: ``*Dataset``, ``*DatasetV<n>``, with one variant output."""
    definition = op_definition(op_type)
    if definition is None or [output.type for output in definition.output_arg] != [types_pb2.DT_VARIANT]:
        return False
    return op_type == "DatasetFromGraph" or _DATASET_NAME.search(op_type) is not None


def _special_inputs(index: GraphIndex) -> Iterator[tuple[int, int, int]]:
    """Yields (producer, consumer, dtype) of the data edges whose consumer may take special types."""
    consumer_of_types = -1
    types: list[int] = []
    for producer, _, consumer, position in index.data_edges.tolist():
        op_type = index.op_types[consumer]
        if not takes_special_inputs(op_type):
            # A function called by its name is inlined before placement, like PartitionedCall.
            continue
        if consumer != consumer_of_types:
            types, consumer_of_types = input_types(index.graph_def.node[consumer]), consumer
        if position >= len(types):
            raise ValueError(
                f"node {index.names[consumer]!r} ({op_type}) has more than the {len(types)} inputs it "
                f"declares; the GraphDef is damaged"
            )
        yield producer, consumer, types[position]
