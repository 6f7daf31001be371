"""The search over groups and units where placements are not simulated: one chain over units."""

from __future__ import annotations

import numpy as np

from tf_placer.planners.local_search import LocalSearch
from tf_placer.planners.local_search_config import LocalSearchConfig
from tf_placer.planners.memetic_config import MemeticConfig
from tf_placer.problem.problem import Problem


def memetic(problem: Problem, config: MemeticConfig, start: np.ndarray, seed: int) -> LocalSearch:
    """A chain of local search from ``start`` [U].

    An evaluator that is no simulator makes hundreds of evaluations and not the thousands that levels and several chains
    need (``SimulatedMemetic``).
    """
    return LocalSearch(problem, LocalSearchConfig(chains=1, late=config.late), start, seed)
