"""Random search: what a method must beat at as many evaluations."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.method_spec import Kind, MethodSpec, Role, Settings, setting
from tf_placer.planners.random_blocks import RandomBlocks
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class RandomSearchConfig(Settings):
    """Settings.

    Attributes:
      batch: placements drawn together.

    Raises:
      InputError: it is no positive number.
    """

    batch: int = setting(16, least=1)


class RandomSearch:
    """Draws block placements of every granularity (``RandomBlocks``) and learns nothing from them."""

    def __init__(self, problem: Problem, config: RandomSearchConfig, start: np.ndarray | None, seed: int):
        """``start`` is not looked at."""
        del start
        self._batch = config.batch
        self._blocks = RandomBlocks(problem, seed)

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements, new ones each time."""
        return self._blocks.draw(self._batch)

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Nothing."""

    def state(self) -> dict[str, Any]:
        """Where the generator is."""
        return self._blocks.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        self._blocks.restore(state)


SPEC = MethodSpec(
    name="random",
    kind=Kind.IMPROVING,
    summary="Random search over block placements of every granularity.",
    build=RandomSearch,
    config=RandomSearchConfig,
    ignores=("everything but memory",),
    roles=frozenset({Role.CONTROL}),
)
