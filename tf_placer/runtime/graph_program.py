"""A placed graph made runnable by itself: variables and inputs resident, nothing fetched; or as a call of it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from colocation.op_facts import REFERENCE_VARIABLES
from tf_placer.errors import InputError
from tf_placer.graph.host_ops import can_stand_in
from tf_placer.graph.item import Feed, Item
from tf_placer.graph.program import check_restorable

_SCOPE = "tf_placer_program"

# One gRPC message holds at most 2 GB; weights are sent in messages well below that.
_MAX_MESSAGE_BYTES = 256 << 20
_MAX_VALUE_BYTES = (2 << 30) - (1 << 20)


@dataclasses.dataclass(frozen=True)
class Assignment:
    """One value to send before the first step.

    Attributes:
      placeholder: name of the tensor to feed ("node:0").
      op: name of the op that assigns it.
      value: what to feed.
      device: that holds it from then on.
    """

    placeholder: str
    op: str
    value: np.ndarray
    device: str = ""


@dataclasses.dataclass(frozen=True)
class GraphProgram:
    """A graph and what one step of it runs.

    Attributes:
      graph_def: the placed graph plus the ops that hold and assign things.
      assignments: values of the variables, and of the inputs that are resident, to send once.
      step_ops: the ops of outputs and side effects; running all of them is one step. They are asked for themselves and
        not as control inputs of another op: Grappler takes away what only such a one waits for.
      feeds: name of a tensor and its value, sent with every step; empty where inputs are resident.
      fetches: names of the tensors that every step gives back; empty where nothing is.
    """

    graph_def: tf.compat.v1.GraphDef
    assignments: tuple[Assignment, ...]
    step_ops: tuple[str, ...]
    feeds: tuple[tuple[str, np.ndarray], ...] = ()
    fetches: tuple[str, ...] = ()

    def resident_bytes(self, below: float = math.inf) -> dict[str, int]:
        """Device -> bytes of its values together, counting those that are smaller than ``below`` bytes each."""
        resident: dict[str, int] = {}
        for assignment in self.assignments:
            if assignment.value.nbytes < below:
                resident[assignment.device] = resident.get(assignment.device, 0) + assignment.value.nbytes
        return resident


def build_program(item: Item, placed: tf.compat.v1.GraphDef, is_call: bool = False) -> GraphProgram:
    """Makes a placed graph runnable, with its inputs and variables living on their devices.

    Where plans are compared with each other a timed step must not include the sending of its inputs, so every fed
    ``Placeholder`` becomes a read of a variable on the placeholder's device. So does each element of an iterator of
    this process, with zeros for values: what it takes to make the next element is not timed. No value is put in the
    graph: it would not fit in a GraphDef's 2 GB.

    Args:
      item: the program; its feeds, fetches, control outputs and variables are used.
      placed: its graph with a device on every node.
      is_call: inputs are sent and outputs come back with every step, as when another process calls it.

    Raises:
      InputError: the item runs nothing or needs this process, or one value cannot be restored or is too large for a
        message.
    """
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(placed)
    node_of_name = {node.name: node for node in graph_def.node}
    assignments = []
    for i, feed in enumerate(() if is_call else item.feeds):
        check_restorable(feed.node, feed.dtype)
        handle = _make_resident(graph_def, node_of_name[feed.node], feed, f"{_SCOPE}/input_{i}")
        assignments.append(_add_assignment(graph_def, handle, feed.value, f"{_SCOPE}/input_{i}"))
    for i, variable in enumerate(item.variables):
        check_restorable(variable.node, variable.dtype)
        handle = node_of_name[variable.node]
        assignments.append(_add_assignment(graph_def, handle, variable.value, f"{_SCOPE}/variable_{i}"))
    for i, capture in enumerate(item.host_captures):
        if not can_stand_in(item.graph_def, capture):
            raise InputError(f"{item.name!r} cannot run by itself: {item.why_not_standalone}")
        assignments += _stand_in(item, graph_def, node_of_name, capture.node, f"{_SCOPE}/iterator_{i}")
    step_ops = _step_ops(item)
    if not is_call:
        return GraphProgram(graph_def, tuple(assignments), step_ops)
    feeds = tuple((f"{feed.node}:0", feed.value) for feed in item.feeds)
    fed = {feed.node for feed in item.feeds}  # what is given back as it came is neither run nor sent
    return GraphProgram(
        graph_def,
        tuple(assignments),
        tuple(name for name in step_ops if name not in fed),
        feeds,
        tuple(name for name in _values(item) if name.partition(":")[0] not in fed),
    )


def _stand_in(
    item: Item,
    graph_def: tf.compat.v1.GraphDef,
    node_of_name: dict[str, tf.compat.v1.NodeDef],
    iterator: str,
    prefix: str,
) -> list[Assignment]:
    """Has the ops that read an iterator hand on zeros, which are resident beside them."""
    assignments: list[Assignment] = []
    for name, outputs in zip(item.index.names, item.outputs, strict=True):
        node = node_of_name[name]
        if iterator not in (text.partition(":")[0] for text in node.input):
            continue
        controls = [text for text in node.input if text.startswith("^")]
        elements = []
        for spec in outputs:
            scope = f"{prefix}/{len(assignments)}"
            zeros = np.zeros(spec.shape, spec.dtype.as_numpy_dtype)
            element = graph_def.node.add(name=f"{scope}/element", op="Placeholder", device=node.device)
            feed = Feed(element.name, spec.shape, spec.dtype, zeros)
            handle = _make_resident(graph_def, element, feed, scope)
            assignments.append(_add_assignment(graph_def, handle, zeros, scope))
            elements.append(f"{element.name}:0")
        node.op = "IdentityN"
        node.attr.clear()
        node.attr["T"].list.type.extend(spec.dtype.as_datatype_enum for spec in outputs)
        node.input[:] = [*elements, *controls]
    node_of_name[iterator].op = "NoOp"
    node_of_name[iterator].attr.clear()
    return assignments


def empty_program() -> GraphProgram:
    """Whose steps do nothing, and take as long as it takes to ask for one."""
    graph_def = tf.compat.v1.GraphDef()
    step = graph_def.node.add(name=f"{_SCOPE}/step", op="NoOp")
    return GraphProgram(graph_def, (), (step.name,))


def batches(assignments: tuple[Assignment, ...]) -> Iterator[list[Assignment]]:
    """Splits assignments, in order, into runs that each fit in one message."""
    batch: list[Assignment] = []
    batch_bytes = 0
    for assignment in assignments:
        if batch and batch_bytes + assignment.value.nbytes > _MAX_MESSAGE_BYTES:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(assignment)
        batch_bytes += assignment.value.nbytes
    if batch:
        yield batch


def _make_resident(
    graph_def: tf.compat.v1.GraphDef, placeholder: tf.compat.v1.NodeDef, feed: Feed, prefix: str
) -> tf.compat.v1.NodeDef:
    """Turns a placeholder into a read of a new variable; returns the variable's handle."""
    handle = graph_def.node.add(name=f"{prefix}/handle", op="VarHandleOp", device=placeholder.device)
    handle.attr["dtype"].type = feed.dtype.as_datatype_enum
    handle.attr["shape"].shape.CopyFrom(tf.TensorShape(np.shape(feed.value)).as_proto())
    handle.attr["shared_name"].s = handle.name.encode()
    placeholder.op = "ReadVariableOp"
    placeholder.input.append(handle.name)
    placeholder.attr.clear()
    placeholder.attr["dtype"].type = feed.dtype.as_datatype_enum
    return handle


def _add_assignment(
    graph_def: tf.compat.v1.GraphDef, handle: tf.compat.v1.NodeDef, value: np.ndarray, prefix: str
) -> Assignment:
    if value.nbytes > _MAX_VALUE_BYTES:
        raise InputError(
            f"variable or input {handle.name!r} holds {value.nbytes} bytes, more than one message can carry "
            f"({_MAX_VALUE_BYTES}); split it into several variables"
        )
    dtype = handle.attr["dtype"].type
    placeholder = graph_def.node.add(name=f"{prefix}/value", op="Placeholder", device=handle.device)
    placeholder.attr["dtype"].type = dtype
    placeholder.attr["shape"].shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
    is_reference = handle.op in REFERENCE_VARIABLES
    op_type = "Assign" if is_reference else "AssignVariableOp"
    assign = graph_def.node.add(name=f"{prefix}/assign", op=op_type, device=handle.device)
    assign.input.extend([handle.name, placeholder.name])
    assign.attr["T" if is_reference else "dtype"].type = dtype
    return Assignment(f"{placeholder.name}:0", assign.name, value, handle.device)


def _step_ops(item: Item) -> tuple[str, ...]:
    outputs = [tensor.partition(":")[0] for tensor in item.fetches] + list(item.side_effects)
    if not outputs:
        raise InputError(f"{item.name!r} has neither outputs nor side effects, so there is nothing to run")
    return tuple(dict.fromkeys(outputs))


def _values(item: Item) -> list[str]:
    """The outputs that can be sent to who asks for them: a handle means nothing elsewhere."""
    outputs_of = dict(zip(item.index.names, item.outputs, strict=True))
    names = []
    for fetch in dict.fromkeys(item.fetches):
        op, _, output = fetch.partition(":")
        if outputs_of[op][int(output or 0)].dtype not in (tf.resource, tf.variant):
            names.append(fetch)
    return names
