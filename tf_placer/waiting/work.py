"""What will be done, phase by phase, and about how long it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_placer.errors import InputError

_UNDER_S, _MINUTES_FROM_S = 0.95, 100.0


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of some work.

    Attributes:
      name: what is done: "building the graph"; other than that of the other phases.
      seconds: about how long; None where nobody knows.
      key: what its length is kept under, for the next time; "" where its length is decided and not found.
      in_turn: it is done a part at a time, in turn with the phases beside it that are too.
    """

    name: str
    seconds: float | None
    key: str = ""
    in_turn: bool = False


@dataclasses.dataclass(frozen=True)
class Work:
    """Phases in their order.

    Attributes:
      phases: with names that differ.
      note: one more sentence for whoever waits, or "".

    Raises:
      InputError: two phases have one name.
    """

    phases: tuple[Phase, ...]
    note: str = ""

    def __post_init__(self) -> None:
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            raise InputError(f"two phases have one name: {', '.join(names)}")

    @property
    def seconds(self) -> float:
        """Of all phases whose length is known."""
        return sum(phase.seconds for phase in self.phases if phase.seconds is not None)

    @property
    def is_known(self) -> bool:
        """The length of every phase is."""
        return all(phase.seconds is not None for phase in self.phases)

    def expecting(self, seconds: Mapping[str, float]) -> Work:
        """The same with other lengths of some phases, by name."""
        phases = tuple(
            dataclasses.replace(phase, seconds=seconds.get(phase.name, phase.seconds))
            for phase in self.phases
        )
        return dataclasses.replace(self, phases=phases)

    def sentence(self) -> str:
        """``"This takes about 60 s: building the graph 8 s, searching with auto 50 s, writing under 1 s."``"""
        parts = ", ".join(f"{phase.name} {about(phase.seconds)}" for phase in self.phases)
        total = roughly(self.seconds, self.is_known)
        return " ".join([f"This takes {total}: {parts}.", *([self.note] if self.note else [])])


def roughly(seconds: float, is_all: bool = True) -> str:
    """``"about 42 s"``, ``"less than a second"``; where it is not all of it, ``"at least 42 s"``."""
    if seconds < _UNDER_S:
        return "less than a second" if is_all else "a time not known"
    return f"{'about' if is_all else 'at least'} {about(seconds)}"


def about(seconds: float | None) -> str:
    """``"under 1 s"``, ``"42 s"``, ``"5 min"``; for None that it is not known."""
    if seconds is None:
        return "for a time not known"
    if seconds < _UNDER_S:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.0f} min"
