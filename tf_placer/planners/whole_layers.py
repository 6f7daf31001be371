"""Plans of whole layers, made of plans of single ops; cheap placements for a search to begin with."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.base.quantities import excess
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import Groups
from tf_placer.planners.list_schedule import heft, list_schedule, peft
from tf_placer.planners.local_search import LocalSearchConfig, SimulatedLocalSearch
from tf_placer.planners.plain import RandomBlocks, expert, single_device_placements, topological_fill
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.layers import Layers, layer_of_unit
from tf_placer.problem.problem import Problem

_CHAINS = 2
SECOND, MOMENT = (
    10**8,
    10**7,
)  # ops simulated all together, if each step is simulated whole: about a second, a tenth
_MOST, _LEAST = 10_000, 100


@dataclasses.dataclass(frozen=True, eq=False)
class WholeLayers:
    """The fastest plan found of whole layers.

    Attributes:
      device_of_unit: [U] int32.
      runtime_s: its step time in the simulator.
      peak_bytes: [D] int64, most memory in use on each device.
      op_level_s: step time of the plan that it was made of, in the same simulator.
    """

    device_of_unit: np.ndarray
    runtime_s: float
    peak_bytes: np.ndarray
    op_level_s: float

    @property
    def slower(self) -> float:
        """The share of the op-level step that whole layers take more."""
        return excess(self.runtime_s, self.op_level_s)


def whole_layers(
    problem: Problem, layers: Layers, plan: Decisions, seed: int = 0, most_ops: int = SECOND
) -> WholeLayers | None:
    """Puts every layer on one device: where most of its time is in ``plan``, then better by a short local search.

    Units that may not be where the others of their layer are, such as those that stay on the host, do not count: what
    is whole is the rest. The search is of layers, within memory, and also begins at every single device.

    Args:
      problem: what is placed.
      layers: of it.
      plan: one plan, of any units.
      seed: fixes everything random.
      most_ops: how long the local search is, in ops that it simulates.

    Returns:
      None where no plan of whole layers that fits in memory was found.
    """
    groups = Groups.of(problem, layer_of_unit(problem, layers))
    coarse = groups.coarse_problem()
    # Where the time is comes first: it wins a tie.
    most = groups.project(plan.device_of_unit[:1], problem.work_ns() + 1)
    starts = np.concatenate([most, single_device_placements(coarse)])
    simulator = SimulatedEvaluator(coarse)
    start = starts[np.argmin(simulator.evaluate(starts).runtime_s)]
    config = LocalSearchConfig(chains=_CHAINS)
    search = SimulatedLocalSearch(coarse, config, start, seed, simulator)
    burst = search.advance(int(np.clip(most_ops // problem.num_ops, _LEAST, _MOST)))
    best = int(np.argmin(burst.runtime_s))
    if not np.isfinite(burst.runtime_s[best]):
        return None
    device_of_unit = groups.expand(burst.device_of_unit[best : best + 1])[0]
    both = np.stack([device_of_unit, plan.device_of_unit[0]])
    measured = SimulatedEvaluator(problem).evaluate(both)
    assert measured.peak_bytes is not None  # simulated
    return WholeLayers(
        device_of_unit, float(measured.runtime_s[0]), measured.peak_bytes[0], float(measured.runtime_s[1])
    )


# Cheap placements for a search to begin with.

_DRAWN = 16


def cheap_starts(problem: Problem, start: np.ndarray, seed: int) -> np.ndarray:
    """[K, U] int32 distinct legal placements: ``start`` [U], constructed ones, and random blocks drawn by ``seed``."""
    rows = np.concatenate(
        [
            np.asarray(start, np.int32)[np.newaxis],
            list_schedule(problem),
            heft(problem),
            peft(problem),
            expert(problem),
            topological_fill(problem),
            single_device_placements(problem),
            RandomBlocks(problem, seed).draw(_DRAWN),
        ]
    )
    starts: np.ndarray = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])].astype(np.int32)
    return starts
