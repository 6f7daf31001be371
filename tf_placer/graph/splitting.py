"""Record of the split that made a program: what a plan needs to know to be applied to the whole."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

COPY = re.compile(r"part_(\d+)/")
"""What the name of a copy begins with: its part."""
TRIP = re.compile(r"(?:.*/)?trip_\d+/")
"""What comes before the name that an op has in the body of a loop, where the loop is written out."""
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
      kept_whole: positions, among the ops of the program that was split, of those that were to stay whole.
    """

    fingerprint: str
    batch: int
    parts: int
    batch_statistics: str
    kept_whole: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept_whole", tuple(self.kept_whole))  # a list in a file

    def names_kept(self, op_names: Sequence[str]) -> list[str]:
        """Names of the ops that stayed whole, in a program of that fingerprint: an equal one may have other names."""
        return [op_names[op] for op in self.kept_whole]

    def part_of(self, name: str) -> int:
        """The part, from 0 on, that an op of the split program is a copy for; ``SHARED`` where it is none."""
        found = COPY.match(name)
        return int(found[1]) if found and int(found[1]) < self.parts else SHARED

    def __str__(self) -> str:
        return f"a batch of {self.batch} in {self.parts} parts"
