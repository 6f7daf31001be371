"""The searches that the edit scorer learns from, and those that it is judged by."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

import tf_placer
from tf_placer import workloads
from tf_placer.base.method_spec import Role
from tf_placer.evaluation.simulated import SimulatedEvaluator, search_simulator
from tf_placer.ops.local_search import Chains, ChainSearch
from tf_placer.planners.memetic import MemeticConfig, SimulatedMemetic
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.round import Starts

CLUSTERS = ("k40x2", "p100x4")

STEPS = (
    "amoebanet_small",
    "bert_base_small",
    "gnmt_2_small",
    "inception_v3_small",
    "nasnet_small",
    "nmt_2_small",
    "resnet_152_small",
    "rnnlm_2_small",
    "transformer_xl_2_small",
    "wavenet_2x18_small",
)
"""One small step of every family of papers."""

TRAINED_ON = ("bert_base_small", "gnmt_2_small", "inception_v3_small", "resnet_152_small", "rnnlm_2_small")
"""Those whose searches the weights that come with tf_placer were trained on."""

CHAINS = 2
"""Of every search here, whatever the cores."""


class Begun(NamedTuple):
    """A problem, its simulator and the plan that a search begins with."""

    problem: Problem
    simulator: SimulatedEvaluator
    start: np.ndarray  # [U]
    single_s: float  # of the best single device


def beginning(step: str, cluster: str) -> Begun:
    """Beginning of a search for a workload on a preset, as ``tf_placer.search`` makes it."""
    problem = _problem(step, cluster)
    simulator = search_simulator(problem)
    starts = Starts(problem, simulator, methods.having(Role.BESIDE))
    return Begun(problem, simulator, starts.plans[0], starts.single_device_s or np.nan)


def search_of(begun: Begun, seed: int, config: MemeticConfig) -> SimulatedMemetic:
    """A search that has not begun."""
    return SimulatedMemetic(begun.problem, config, begun.start, seed, begun.simulator)


def examples_of(
    begun: Begun, seed: int, evaluations: int, config: MemeticConfig, weights: np.ndarray | None
) -> np.ndarray:
    """[K, F + 1] float32: features of the moves that a search simulated, and the share of the step each gained."""
    search = _Keeping(begun.problem, config, begun.start, seed, begun.simulator, weights)
    search.advance(evaluations)
    return np.concatenate(search.kept)


class _Keeping(SimulatedMemetic):
    """Keeps what it tries."""

    @functools.cached_property
    def kept(self) -> list[np.ndarray]:
        return []

    def _advanced(self, search: ChainSearch, rounds: np.ndarray) -> Chains:
        chains, edits = search.advance_and_keep(self._chains, rounds)
        rows = edits.reshape(-1, edits.shape[-1])
        self.kept.append(rows[rows.any(axis=1)])
        return chains


@functools.lru_cache(maxsize=2 * len(CLUSTERS))
def _problem(step: str, cluster: str) -> Problem:
    item = workloads.build(step)
    return tf_placer.build_problem(item, tf_placer.Cluster.preset(cluster), costs="analytic")
