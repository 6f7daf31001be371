"""What a model family returns: a function to place and the arguments to trace it with."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Workload:
    """One training step.

    Attributes:
      function: a ``tf.function`` that does one step and returns the loss.
      example_args: tensors to call it with, made from the seed.
    """

    function: Any
    example_args: tuple
