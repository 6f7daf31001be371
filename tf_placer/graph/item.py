"""One self-contained graph with everything a placement needs to know about it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from colocation.graph_index import GraphIndex, index_graph
from tf_placer.graph.clean import clean
from tf_placer.graph.fingerprint import fingerprint
from tf_placer.graph.from_function import program_of_function
from tf_placer.graph.output_specs import OutputSpec, output_specs
from tf_placer.graph.program import Feed, ItemVariable, Program


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

    @staticmethod
    def from_function(fn: Any, *example_args: Any, name: str | None = None) -> Item:
        """Makes an Item of a ``tf.function`` or ``ConcreteFunction``.

        Args:
          fn: the program, a training step or inference.
          *example_args: what it is called with; their shapes become the program's shapes.
          name: what to call it in reports; the function's own name when not given.

        Raises:
          InputError: ``fn`` is no traced function, the arguments do not fit, something it
            captures cannot be restored, or the shape of a tensor cannot be known.
        """
        program = program_of_function(fn, *example_args)
        return Item.from_program(name or str(getattr(fn, "__name__", "function")), program)

    @staticmethod
    def from_program(name: str, program: Program) -> Item:
        """Makes an Item of a raw program: cleans it up, infers shapes, indexes it."""
        program = clean(program)
        return Item(
            name=name,
            graph_def=program.graph_def,
            index=index_graph(program.graph_def),
            outputs=output_specs(program.graph_def),
            feeds=program.feeds,
            fetches=program.fetches,
            control_outputs=program.control_outputs,
            variables=program.variables,
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of the graph's structure; see ``tf_placer.graph.fingerprint``."""
        return fingerprint(self.graph_def, self.fetches, self.control_outputs)
