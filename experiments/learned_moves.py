"""Worth of a network that chooses the moves of ``memetic``, in evaluations and in processor time.

    python -m experiments.learned_moves [--workloads=nmt_2_small,...] [--evaluations=10000] [--seeds=5]

One small step of every family on two clusters, the same seeds for every way to draw moves: ``uniform`` (no critical
path), ``path`` (pieces from the critical path, one move drawn for each that is simulated), ``network`` (as ``path``, of
several moves the one that the network says). Of each it is told after how many evaluations, and after how many seconds
of the processor, it was as fast as ``path`` after the evaluations named: as shares of what ``path`` took, means of the
seeds.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from absl import flags

from experiments.main_program import run_program
from experiments.studies.edits import CHAINS, CLUSTERS, STEPS, TRAINED_ON, Begun, beginning, search_of
from experiments.studies.formats import header, line
from tf_placer.planners.memetic import MemeticConfig

_WORKLOADS = flags.DEFINE_list("workloads", list(STEPS), "Steps that are placed.")
_EVALUATIONS = flags.DEFINE_integer("evaluations", 10000, "Of each search.", lower_bound=1000)
_SEEDS = flags.DEFINE_integer("seeds", 5, "Searches of each kind, of the seeds 200 and above.", lower_bound=1)

_FIRST_SEED = 200
_BEFORE = "path"
_WAYS = {
    "uniform": MemeticConfig(chains=CHAINS, path=0.0, draws=1),
    _BEFORE: MemeticConfig(chains=CHAINS, draws=1),
    "network": MemeticConfig(chains=CHAINS, draws=8, uniform=0.25),
    "network, more alone": MemeticConfig(chains=CHAINS, draws=8, uniform=0.6),
}
_STEP = 100  # evaluations between two points of a curve
# Shares of the evaluations of a search at which ``path`` is what others are held against. Half at most: who is twice as
# slow is seen to be.
_AT = (0.05, 0.25, 0.5)


class Curve(NamedTuple):
    """Progress of a search, by bursts."""

    best: np.ndarray  # [K] step time as a fraction of the best single device
    cpu_s: np.ndarray  # [K]


def main() -> None:
    """Prints a table for each way, and what they come to."""
    points = np.arange(_STEP, _EVALUATIONS.value + 1, _STEP)
    at = [int(np.searchsorted(points, share * _EVALUATIONS.value)) for share in _AT]
    shares: dict[str, list[list[tuple[float, float]]]] = {way: [] for way in _WAYS}
    told = [f"at {points[i]:,}" for i in at]
    print(*header("step", "cluster", "way", *told, "evaluations/s"), sep="\n")
    for name in _WORKLOADS.value:
        for cluster in CLUSTERS:
            begun = beginning(name, cluster)
            mean = {way: _mean_curve(begun, config) for way, config in _WAYS.items()}
            for way, curve in mean.items():
                shares[way].append([_share(mean[_BEFORE], curve, i) for i in at])
                per_s = points[-1] / curve.cpu_s[-1]
                cells = (f"{curve.best[i]:.3f}" for i in at)
                mark = "" if name in TRAINED_ON else " *"
                print(line(f"{name}{mark}", cluster, way, *cells, f"{per_s:,.0f}"), flush=True)
    print(
        "\n* no search of it was trained on. Evaluations, and seconds of the processor, to the same time:\n"
    )
    print(*header("way", "steps", *told), sep="\n")
    is_new = np.repeat([name not in TRAINED_ON for name in _WORKLOADS.value], len(CLUSTERS))
    for way, rows in shares.items():
        for what, which in (("all", is_new | True), ("not trained on", is_new)):
            if which.any():
                means = np.exp(np.log(np.array(rows)[which]).mean(axis=0))
                cells = (f"{evaluations:.3f}, {cpu_s:.3f}" for evaluations, cpu_s in means)
                print(line(way, what, *cells))


def _mean_curve(begun: Begun, config: MemeticConfig) -> Curve:
    """Mean over the seeds."""
    shape = _SEEDS.value, _EVALUATIONS.value // _STEP
    best, cpu_s = np.empty(shape), np.empty(shape)
    for row in range(_SEEDS.value):
        search = search_of(begun, _FIRST_SEED + row, config)
        begin_s = time.process_time()
        for step in range(shape[1]):
            best[row, step] = search.advance(_STEP).runtime_s.min() / begun.single_s
            cpu_s[row, step] = time.process_time() - begin_s
    return Curve(best.mean(axis=0), cpu_s.mean(axis=0))


def _share(before: Curve, curve: Curve, at: int) -> tuple[float, float]:
    """Evaluations and seconds that a search takes, of what the one before took, to its time at a point.

    Who never gets there is counted as if twice the whole search would have.
    """
    first = int(np.argmax(before.best <= before.best[at]))
    reached = np.flatnonzero(curve.best <= before.best[at])
    last = len(curve.best) - 1
    evaluations, cpu_s = 2 * last + 2, 2 * curve.cpu_s[last]
    if len(reached):
        evaluations, cpu_s = reached[0] + 1, curve.cpu_s[reached[0]]
    return evaluations / (first + 1), cpu_s / before.cpu_s[first]


if __name__ == "__main__":
    run_program(main)
