"""What each departure from the paper's Hierarchical planner that is a setting is worth: each undone alone.

    python -m experiments.hdp_ablation

Prints one line per variant, as a fraction of the best single device, on Inception-V3 and k40x2.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
from absl import flags

import tf_placer
from experiments import into_folder
from tf_placer import workloads
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.files import write_atomically
from tf_placer.search.result import SearchResult

FLAGS = flags.FLAGS
flags.DEFINE_float("budget_s", 60.0, "seconds per variant and seed", lower_bound=0.001)
flags.DEFINE_integer("seeds", 1, "how many seeds", lower_bound=1)
flags.DEFINE_string("out", "out/hdp_ablation", "folder for results.json")

PAPER = {
    "num_groups": 256,
    "placements": 4,
    "placer_hidden": 256,
    "learning_rate": 0.1,
    "grouper_learning_rate": 0.1,
    "landmarks": 0,
    "imitation_steps": 0,
    "start_probability": 0.0,
    "normalize_advantage": False,
    "entropy_start": 0.0,
}
VARIANTS: dict[str, dict] = {
    "as shipped": {},
    "256 groups": {"num_groups": 256},
    "4 placements an update": {"placements": 4},
    "hidden width 256": {"placer_hidden": 256},
    "learning rate 0.1, Placer": {"learning_rate": 0.1},
    "learning rate 0.1, Grouper": {"grouper_learning_rate": 0.1},
    "frozen Grouper": {"grouper_learning_rate": 0.0},
    "frozen random Grouper": {
        "grouper_learning_rate": 0.0,
        "imitation_steps": 0,
        "grouper_sharpness": 1.0,
    },
    "no landmarks": {"landmarks": 0},
    "uniform groups at the start": {"imitation_steps": 0, "grouper_sharpness": 1.0},
    "groups not sharpened": {"grouper_sharpness": 1.0},
    "unbiased Placer at the start": {"start_probability": 0.0},
    "advantage not normalized": {"normalize_advantage": False},
    "entropy left alone": {"entropy_start": 0.0},
    "the paper's value of every setting": PAPER,
}


def run(problem: tf_placer.Problem, changes: dict, budget_s: float, seed: int) -> SearchResult:
    """One search with a changed configuration."""
    config = dataclasses.replace(HdpConfig(), **changes)

    single = tf_placer.search(problem, "single", budget_evaluations=problem.num_devices)
    return tf_placer.search(
        problem, "hdp", budget_s=budget_s, seed=seed, start=single.placement, config=config
    )


def main(out: pathlib.Path) -> None:
    problem = tf_placer.build_problem(workloads.build("inception_v3"), tf_placer.Cluster.preset("k40x2"))
    rows = []
    for name, changes in VARIANTS.items():
        for seed in range(FLAGS.seeds):
            result = run(problem, changes, FLAGS.budget_s, seed)
            single_s = result.single_device_s or float("nan")
            last_mean_s = float(np.nanmean([entry.mean_s for entry in result.history[-10:]]))
            rows.append(
                {
                    "variant": name,
                    "seed": seed,
                    "best": result.runtime_s / single_s,
                    "last_mean": last_mean_s / single_s,
                    "evaluations": result.evaluations,
                }
            )
            print(
                f"{name:30s} seed {seed}  best {rows[-1]['best']:.3f}  last mean {rows[-1]['last_mean']:.3f}  "
                f"{result.evaluations} evaluations",
                flush=True,
            )
    write_atomically(out / "results.json", json.dumps(rows, indent=1))


if __name__ == "__main__":
    into_folder.run(main)
