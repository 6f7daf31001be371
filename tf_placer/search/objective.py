"""What a search is for: the shortest step, or the least memory within a slow-down of that."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments

TIME, MEMORY = "time", "memory"
OBJECTIVES = (TIME, MEMORY)
SLOW_DOWN = 0.1


@dataclasses.dataclass(frozen=True)
class Objective:
    """What is sought.

    Attributes:
      name: ``"time"``: the fastest plan. ``"memory"``: the plan whose fullest accelerator takes the smallest share of
        its memory, among those that are slower than the fastest by no more than ``slow_down``.
      slow_down: share of the fastest plan's step time; 0.1 is a tenth.

    Raises:
      InputError: another word, or a negative share.
    """

    name: str = TIME
    slow_down: float = SLOW_DOWN

    def __post_init__(self) -> None:
        arguments.one_of("objective", self.name, OBJECTIVES)
        slow_down = arguments.number("slow_down", self.slow_down, least=0, finite=True)
        object.__setattr__(self, "slow_down", slow_down)

    @property
    def is_memory(self) -> bool:
        return self.name == MEMORY
