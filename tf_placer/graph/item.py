"""One self-contained graph with everything a placement needs to know about it."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from colocation.graph_index import GraphIndex


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """One output tensor of an op: static shape, dtype, bytes (0 for resources and variants)."""

    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class ItemVariable:
    """A captured variable: its ``VarHandleOp`` node and the eager value behind it."""

    node: str
    shape: tuple[int, ...]
    dtype: tf.DType
    num_bytes: int
    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class Feed:
    """An input of the program: a ``Placeholder`` node and the example value given for it."""

    node: str
    shape: tuple[int, ...]
    dtype: tf.DType
    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class Item:
    """One self-contained graph: inlined, shapes known, feeds, fetches, variables.

    Attributes:
      name: what it is called in reports.
      graph_def: nodes in topological order, no ``PartitionedCall`` left, no device set.
      index: integer view of ``graph_def``.
      outputs: [N] tuples, one ``OutputSpec`` per output of each op.
      feeds, fetches, control_outputs: placeholders, fetched tensor names ("node:i"),
        and ops that must run for their side effects.
      variables: captured variables.
    """

    name: str
    graph_def: tf.compat.v1.GraphDef
    index: GraphIndex
    outputs: tuple[tuple[OutputSpec, ...], ...]
    feeds: tuple[Feed, ...]
    fetches: tuple[str, ...]
    control_outputs: tuple[str, ...]
    variables: tuple[ItemVariable, ...]
