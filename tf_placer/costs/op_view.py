"""One op as a cost formula sees it (its node, and the shapes that go in and come out), and what a formula is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import tensorflow as tf

from tf_placer.costs.work import Work
from tf_placer.graph.sizes.output_specs import OutputSpec


@dataclasses.dataclass(frozen=True)
class OpView:
    """A node with its input and output tensors.

    Attributes:
      node: the NodeDef.
      inputs: one per data input, in order.
      outputs: one per output.
    """

    node: tf.compat.v1.NodeDef
    inputs: tuple[OutputSpec, ...]
    outputs: tuple[OutputSpec, ...]

    @property
    def type(self) -> str:
        return self.node.op

    @property
    def input_bytes(self) -> int:
        return sum(spec.num_bytes for spec in self.inputs)

    @property
    def output_bytes(self) -> int:
        return sum(spec.num_bytes for spec in self.outputs)

    @property
    def moved_bytes(self) -> int:
        """Every input read once and every output written once."""
        return self.input_bytes + self.output_bytes

    @property
    def output_elements(self) -> int:
        return sum(elements(spec) for spec in self.outputs)

    @property
    def input_elements(self) -> int:
        return sum(elements(spec) for spec in self.inputs)

    def flag(self, name: str) -> bool:
        """A bool attribute; False where the node leaves it out."""
        return self.node.attr[name].b if name in self.node.attr else False

    def ints(self, name: str) -> tuple[int, ...]:
        """A list(int) attribute; empty where the node leaves it out."""
        return tuple(self.node.attr[name].list.i) if name in self.node.attr else ()


def elements(spec: OutputSpec) -> int:
    """Elements of a tensor; 1 for a scalar."""
    return math.prod(spec.shape)


Formula = Callable[[OpView], Work]
