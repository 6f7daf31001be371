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

import dataclasses
import re
from collections.abc import Callable, Iterator

from tensorflow.core.framework import types_pb2

from colocation.argument_types import (
    input_types,
    is_ref,
    op_definition,
    output_types,
    takes_special_inputs,
)
from colocation.frames import outermost_loops
from colocation.graph_index import GraphIndex
from colocation.op_facts import having
from colocation.references import Buffers

EXEMPT_OP_TYPES = having("forwards_resources")
_CLASS_PREFIX = b"loc:@"
_DATASET_NAME = re.compile(r"Dataset(V\d+)?$")
_VARIANT_TYPES, _SWITCH_TYPES = having("local_variant"), having("switch")


@dataclasses.dataclass(frozen=True)
class Merge:
    """Two ops that must (or, from a heuristic, should) share a device.

    Attributes:
      op_a, op_b: op ids.
      rule: name of the rule function.
      reason: one line for a reader who asks why.
    """

    op_a: int
    op_b: int
    rule: str
    reason: str


Rule = Callable[[GraphIndex], Iterator[Merge]]


def resource_edges(index: GraphIndex) -> Iterator[Merge]:
    """A resource handle stays in one device's resource manager: its users must be there."""
    compiled = _compiled_calls(index)
    for producer, consumer, dtype in _special_inputs(index):
        exempt = index.op_types[consumer] in EXEMPT_OP_TYPES and consumer not in compiled
        if dtype == types_pb2.DT_RESOURCE and not exempt:
            reason = f"{index.names[consumer]} takes a resource handle from {index.names[producer]}"
            yield Merge(producer, consumer, "resource_edges", reason)


def _compiled_calls(index: GraphIndex) -> frozenset[int]:
    """Ids of the calls that XLA must compile whole."""
    functions = {
        function.signature.name
        for function in index.graph_def.library.function
        if "_XlaMustCompile" in function.attr and function.attr["_XlaMustCompile"].b
    }
    return frozenset(
        op
        for op, node in enumerate(index.graph_def.node)
        if ("_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b)
        or ("f" in node.attr and node.attr["f"].func.name in functions)
    )


def forwarded_resources(index: GraphIndex) -> Iterator[Merge]:
    """An exempt op that hands a resource on (``IdentityN``, a call) stays with what it is given.

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
    """A v1 ref tensor is a pointer to its variable's buffer: who takes it must be there."""
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
    """A dataset cannot be sent: who reads one stays with it, and so with an argument that may be one.

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
        first = first_of_loop.setdefault(loop, op)
        if first != op:
            reason = f"{index.names[op]} is inside the loop that {index.names[loop]} enters"
            yield Merge(first, op, "loop_frames", reason)


def reference_readers(index: GraphIndex) -> Iterator[Merge]:
    """Who reads a v1 variable through its reference, or after a write through an earlier read, stays with it.

    Such a reader sees the variable's buffer as it is when the reader runs. On another device it would have what the
    buffer held when it was sent, which may be before a write that the reader waits for.
    """
    buffers = Buffers(index)
    for reference, consumer in buffers.readers:
        reason = f"{index.names[consumer]} reads the buffer of {index.names[reference]} as it is when it runs"
        yield Merge(reference, consumer, "reference_readers", reason)
    for view, consumer in buffers.late_readers():
        reason = (
            f"{index.names[consumer]} waits for a write to the buffer that {index.names[view]} has handed on"
        )
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
    """Returns whether the Placer takes it for a dataset: ``*Dataset``, ``*DatasetV<n>``, one variant out."""
    definition = op_definition(op_type)
    if definition is None or len(definition.output_arg) != 1:
        return False
    if definition.output_arg[0].type != types_pb2.DT_VARIANT:
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
