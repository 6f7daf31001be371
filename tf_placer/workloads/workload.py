"""What a model family returns: a function to place and the arguments to trace it with."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Workload:
    """One step of a model.

    Attributes:
      function: a ``tf.function`` that does one step and returns the loss.
      example_args: tensors to call it with, made from the seed.
      stages: what an expert would keep together, in the order of the network: a regular expression each, found in the
        names of the ops of that stage (``re.search``). The first that is found counts. Empty where nobody said.
    """

    function: Any
    example_args: tuple
    stages: tuple[str, ...] = ()
