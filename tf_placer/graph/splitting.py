"""Record of the split that made a program: what a plan needs to know to be applied to the whole."""

from __future__ import annotations

import dataclasses
import re

COPY = re.compile(r"part_(\d+)/")
"""What the name of a copy begins with: its part."""
SHARED = -1
"""Part of what is no copy: variables, updates, sums, and what stayed whole."""


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

    def part_of(self, name: str) -> int:
        """The part, from 0 on, that an op of the split program is a copy for; ``SHARED`` where it is none."""
        found = COPY.match(name)
        return int(found[1]) if found and int(found[1]) < self.parts else SHARED

    def __str__(self) -> str:
        return f"a batch of {self.batch} in {self.parts} parts"
