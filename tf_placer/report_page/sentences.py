"""A verdict of several sentences as the page shows it: the first one large, the others below it."""

from __future__ import annotations

import re

_END = re.compile(r"(?<=[.!?])\s+")
_SHORTEST = 40  # characters: "Recommended: auto." says too little by itself


def headline_and_notes(verdict: str) -> tuple[str, tuple[str, ...]]:
    """The first sentence, or the first two where that is only a few words, and a paragraph of the rest of each line."""
    first, *lines = verdict.splitlines() or [""]
    sentences = _END.split(first)
    taken = 1 if len(sentences[0]) >= _SHORTEST else 2
    rest = " ".join(sentences[taken:])
    return " ".join(sentences[:taken]), tuple(line for line in (rest, *lines) if line)


def program_size(num_ops: int, num_units: int) -> str:
    """``"9,461 ops in 5,903 units (ops that must share a device are one unit)"``."""
    return f"{num_ops:,} ops in {num_units:,} units (ops that must share a device are one unit)"
