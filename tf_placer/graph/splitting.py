"""Record of the split that made a program: what a plan needs to know to be applied to the whole."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Splitting:
    """How the batch of a program was put in parts.

    Attributes:
      fingerprint: of the program that was split.
      batch: examples of a step.
      parts: copies.
      batch_statistics: of the ``"whole"`` batch, or of each ``"part"``.
    """

    fingerprint: str
    batch: int
    parts: int
    batch_statistics: str

    def __str__(self) -> str:
        return f"a batch of {self.batch} in {self.parts} parts"
