"""One graph with its inputs, outputs, side effects and variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import copy_of, parse_input
from tf_placer.base.arguments import InputError


@dataclasses.dataclass(frozen=True)
class ItemVariable:
    """A variable: its node and its value.

    Attributes:
      node: name of the ``VarHandleOp``, also its ``shared_name``; or of the v1 variable.
      shape, dtype, num_bytes: of the variable's value.
      value: the value when the program was captured.
      capture: name of the traced graph's placeholder that stood for the handle.
      stays: why its storage stays where it is, outside of the devices that a plan is for; empty where it need not.
      device: where that is; empty where it need not stay.
    """

    node: str
    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int
    value: np.ndarray
    capture: str = ""
    stays: str = ""
    device: str = ""


@dataclasses.dataclass(frozen=True)
class Feed:
    """An input of the program: a ``Placeholder`` node and the example value given for it."""

    node: str
    shape: tuple[int, ...]
    dtype: tf.DType
    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class HostCapture:
    """Captured object of this process that no graph can hold: a table, an iterator, a queue, a dataset.

    Attributes:
      node: name of the ``Placeholder`` that stands for it.
      dtype: ``tf.resource`` or ``tf.variant``.
      kind: what it is, for people: ``"a table"``.
      device: where it is, "" where TensorFlow does not say.
      is_anonymous: it is known by its handle alone. One that is known by a name, such as a table, is lost when this
        process connects to other workers.
    """

    node: str
    dtype: tf.DType
    kind: str
    device: str = ""
    is_anonymous: bool = True


@dataclasses.dataclass(frozen=True)
class Program:
    """Graph, and the names in it that matter: argument and result of every clean-up.

    A clean-up never changes the ``graph_def`` it was given; it returns a new Program.

    Attributes:
      graph_def: nodes and the library functions they call.
      feeds: inputs.
      fetches: tensors that are the program's results, ``"node:i"``.
      control_outputs: nodes that must run for their side effects, results or not; and reads of state, which are done
        before who called the program may write it.
      variables: captured variables.
      host_captures: what else it reads of this process; their nodes are placeholders.
      without_value: node of an input or a variable -> why it can be given no value, a sentence for a user. None of
        them may be needed in the end.
      open_sizes: what was taken for dimensions of any size, and what to do where that does not fit; "" for nothing.
    """

    graph_def: tf.compat.v1.GraphDef
    feeds: tuple[Feed, ...]
    fetches: tuple[str, ...]
    control_outputs: tuple[str, ...]
    variables: tuple[ItemVariable, ...]
    host_captures: tuple[HostCapture, ...] = ()
    without_value: Mapping[str, str] = dataclasses.field(default_factory=dict)
    open_sizes: str = ""


def check_restorable(node: str, dtype: tf.DType) -> None:
    """Raises InputError for a variable or input whose value no other process can be given."""
    if dtype in (tf.variant, tf.resource):
        holds = "a variant (a tensor list, a dataset)" if dtype == tf.variant else "a resource's handle"
        raise InputError(
            f"variable or input {node!r} holds {holds}, which cannot be restored; keep its content in variables "
            "of numbers"
        )


def with_nodes(graph_def: tf.compat.v1.GraphDef, nodes) -> tf.compat.v1.GraphDef:
    """Returns a graph of (copies of) ``nodes`` with ``graph_def``'s library and versions."""
    result = tf.compat.v1.GraphDef()
    result.node.extend(nodes)
    result.library.CopyFrom(graph_def.library)
    result.versions.CopyFrom(graph_def.versions)
    return result


def fresh_name(name: str, taken: set[str]) -> str:
    """Returns ``name`` or the first free ``name_1``, ``name_2``...; adds it to ``taken``."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


def renamed_input(text: str, new_name: Mapping[str, str]) -> str:
    """Returns an input text (``node``, ``node:i`` or ``^node``) with the node's new name, if it has one."""
    prefix = "^" if text.startswith("^") else ""
    name, colon, output = text.removeprefix("^").partition(":")
    return f"{prefix}{new_name.get(name, name)}{colon}{output}"


def renamed_node(node: node_def_pb2.NodeDef, new_name: Mapping[str, str]) -> node_def_pb2.NodeDef:
    """Returns a copy whose name, inputs and ``loc:@`` classes are the new names of those nodes that have one."""
    inputs = (renamed_input(text, new_name) for text in node.input)
    result = copy_of(node, inputs, new_name.get(node.name, node.name))
    if "_class" in node.attr:
        classes = (value.decode().removeprefix("loc:@") for value in node.attr["_class"].list.s)
        result.attr["_class"].list.s[:] = [f"loc:@{new_name.get(name, name)}".encode() for name in classes]
    return result


def with_output(text: str) -> str:
    """Returns a tensor's name, ``node`` or ``node:i``, with its output."""
    _, name, output = parse_input(text)
    return f"{name}:{output}"
