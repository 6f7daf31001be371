"""A step that can be had of any batch size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tf_placer.graph.item import Item


@dataclasses.dataclass(frozen=True)
class Splittable:
    """How the step of a smaller batch is made: traced anew, so that every shape is what it would be.

    Attributes:
      batch: examples of a step.
      with_batch: gives the same step of another number of examples.
    """

    batch: int
    with_batch: Callable[[int], Item]
