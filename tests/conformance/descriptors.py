"""Every method, listed once: what the tests that hold all of them need to know of each."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_placer.agents.hdp.config import HdpConfig


@dataclasses.dataclass(frozen=True)
class MethodDescriptor:
    """One method of the table.

    Attributes:
      name: its name there.
      config: settings with which it is quick.
      evaluations: that it needs for ``of_optimum``.
      of_optimum: four equal branches on two devices: most that its best plan takes, of the optimum. One device takes
        1.98 times as long: 2 * 10 + 16 * 1000 ns instead of 10 + 110 + 8 * 1000 + 10.
      draws: what it tries depends on the seed.
      keeps_within_memory: finds a plan that fits where hardly any does.
    """

    name: str
    config: Any = None
    evaluations: int = 500
    of_optimum: float = 1.0
    draws: bool = True
    keeps_within_memory: bool = True


METHODS = (
    MethodDescriptor(
        "hdp",
        HdpConfig(
            num_groups=4,
            placer_hidden=8,
            grouper_hidden=8,
            landmarks=2,
            imitation_steps=20,
            placements=16,
            learning_rate=1e-2,
            start_probability=0.6,
        ),
        evaluations=800,
    ),
    MethodDescriptor("list_schedule", draws=False),
    MethodDescriptor("local_search"),
    MethodDescriptor("random", of_optimum=1.98),  # no block of the breadth-first order is a branch
    MethodDescriptor("single", of_optimum=1.98, draws=False, keeps_within_memory=False),
    MethodDescriptor("topological_fill", of_optimum=1.98, draws=False),
)
