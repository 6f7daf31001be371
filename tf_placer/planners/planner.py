"""Protocols of planners: methods without networks, as a search calls them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem


class Constructive(Protocol):
    """Makes a few plans at once, such as a list schedule: ``rows = planner(problem, config, seed)``."""

    def __call__(self, problem: Problem, config: Any, seed: int) -> np.ndarray | Decisions:
        """[K, U] int32 legal placements, or all that K plans decide; K may be 0; equal seeds give equal plans."""


class Resumable(Protocol):
    """State that is saved and restored, so that another process continues exactly as this one would."""

    def state(self) -> dict[str, Any]:
        """Arrays, numbers and JSON data by name."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave, also in another process."""


@runtime_checkable
class Proving(Protocol):
    """Lower bound of an improving planner that can prove one."""

    def proven_s(self) -> float:
        """Seconds: no placement that fits takes less in the simulator; 0 where nothing is proven."""


class Improving(Resumable, Protocol):
    """Proposes placements for as long as it is asked, and learns from how they fared, such as local search.

        planner = LocalSearch(problem, config, start, seed)
        rows = planner.propose()
        planner.learn(rows, runtime_s)

    Its state is all that its next proposal depends on.
    """

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements."""

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Takes in how proposed placements [B, U] fared.

        Args:
          device_of_unit: what ``propose`` gave last.
          runtime_s: [B] seconds, inf where a placement does not run.
        """
