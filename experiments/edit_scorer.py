"""Trains the network that says which moves of ``memetic`` are worth a simulation.

    python -m experiments.edit_scorer [--out=out/edit_scorer] [--evaluations=15000]

Searches of the small steps of five families are followed on two clusters: first without a network, then with the one
that was trained on those. Every move that was simulated is an example: what it would change, and whether the step
became faster. Prints how well moves of searches of the other families are told apart, which had no part in the
training, beside two rules of one line, and writes the weights: as tf_placer/planners/edit_weights.json they are what
``memetic`` uses.
"""

from __future__ import annotations

import json
import pathlib

import numpy as np
from absl import flags

from experiments.main_program import out_flag, run, seed_flag
from experiments.studies.edits import (
    CHAINS,
    CLUSTERS,
    STEPS,
    TRAINED_ON,
    beginning,
    examples_of,
    scores,
    told_apart,
    trained,
)
from tf_placer.base.files import write_atomically
from tf_placer.planners.memetic import MemeticConfig

out_flag("out/edit_scorer", "Folder that the weights are written to.")
_EVALUATIONS = flags.DEFINE_integer("evaluations", 15000, "Evaluations of each search.", lower_bound=100)
_SEED = seed_flag("Of the searches and of the training.", 100)

_SHORTER = 3  # times as short are the searches before there is a network
_DRAWS = 8
_DIGITS = 6
# Columns of the features (tf_placer/ops/cc/edit_features.cc).
_SIZE, _PATH = 0, 24


def main(out: pathlib.Path) -> None:
    """Trains twice, and prints the table of the steps that were left out."""
    plain = MemeticConfig(chains=CHAINS, draws=1)
    first = _examples(TRAINED_ON, _EVALUATIONS.value // _SHORTER, plain, None)
    weights = trained(first, _SEED.value)
    chosen = MemeticConfig(chains=CHAINS, draws=_DRAWS)
    second = _examples(TRAINED_ON, _EVALUATIONS.value, chosen, weights)
    weights = trained(np.concatenate([first, second]), _SEED.value)
    rounded = [float(f"{weight:.{_DIGITS}g}") for weight in weights.tolist()]
    write_atomically(out / "edit_weights.json", json.dumps(rounded) + "\n")
    print(f"trained on {len(first) + len(second):,} moves; told apart among moves that are drawn:\n")
    print("| step | moves | gain | network | smallest piece | shortest path |\n|---|---|---|---|---|---|")
    for step in (one for one in STEPS if one not in TRAINED_ON):
        examples = _examples((step,), _EVALUATIONS.value // _SHORTER, plain, None)
        features, is_gain = examples[:, :-1], examples[:, -1] > 0
        by = [scores(weights, features), -features[:, _SIZE], -features[:, _PATH]]
        cells = " | ".join(f"{told_apart(score, is_gain):.3f}" for score in by)
        print(f"| {step} | {len(examples):,} | {is_gain.mean():.3f} | {cells} |", flush=True)


def _examples(
    steps: tuple[str, ...], evaluations: int, config: MemeticConfig, weights: np.ndarray | None
) -> np.ndarray:
    begun = [beginning(step, cluster) for step in steps for cluster in CLUSTERS]
    return np.concatenate([examples_of(one, _SEED.value, evaluations, config, weights) for one in begun])


if __name__ == "__main__":
    run(main)
