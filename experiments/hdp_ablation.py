"""What departures from the paper's Hierarchical planner are worth: each undone alone, each option instead.

    python -m experiments.hdp_ablation

Prints one line per variant, as a fraction of the best single device, on Inception-V3 and k40x2.
"""

from __future__ import annotations

import json
import pathlib

import numpy as np
from absl import flags

import tf_placer
from experiments import into_folder
from tf_placer import workloads
from tf_placer.files import write_atomically
from tf_placer.search.result import SearchResult

FLAGS = flags.FLAGS
flags.DEFINE_integer("evaluations", 30_000, "placements per variant and seed", lower_bound=1)
flags.DEFINE_integer("seeds", 1, "how many seeds", lower_bound=1)
flags.DEFINE_integer("first_seed", 0, "the first of them", lower_bound=0)
flags.DEFINE_list("variants", None, "some variants by name; all when not given")
flags.DEFINE_string("out", "out/hdp_ablation", "folder for results.json")

_NO_INCUMBENT = {"incumbent": False, "imitation_weight": 0.0}
# Method and settings. Each departure undone alone; each option instead of what is shipped; the table beside it.
VARIANTS: dict[str, tuple[str, dict]] = {
    "as shipped": ("hdp", {}),
    "the paper's value of every setting": ("hdp", {"preset": "paper"}),
    "table, REINFORCE": ("tabular", {}),
    "table, cross-entropy": ("tabular", {"loss": "cross_entropy", "samples": 128}),
    "min-cut groups, not split by slack": ("hdp", {"groups": "min_cut"}),
    "64 groups": ("hdp", {"num_groups": 64}),
    "256 groups": ("hdp", {"num_groups": 256}),
    "uniform groups at the start": ("hdp", {"group_probability": 0.0, "grouper_sharpness": 1.0}),
    "frozen Grouper": ("hdp", {"grouper_learning_rate": 0.0}),
    "frozen Placer but for its rows": ("hdp", {"learning_rate": 0.0}),
    "no rows": ("hdp", {"row_rate": 0.0}),
    "one group a step": ("hdp", {"groups_per_step": 1}),
    "no landmarks": ("hdp", {"landmarks": 0}),
    "unbiased Placer at the start": ("hdp", {"start_probability": 0.0}),
    "moving-average baseline": ("hdp", {"standardize": False}),
    "no incumbent": ("hdp", _NO_INCUMBENT),
    "learning rate 0.1, Placer": ("hdp", {"learning_rate": 0.1}),
    "learning rate 0.1, Grouper": ("hdp", {"grouper_learning_rate": 0.1}),
    "quantile gradient": ("hdp", {"loss": "quantile"}),
    "cross-entropy on elites": ("hdp", {"loss": "cross_entropy"}),
    "PPO, 3 epochs": ("hdp", {"loss": "ppo", "epochs": 3}),
    "entropy steered from 0.3 to 0.02": ("hdp", {"entropy_start": 0.3}),
}


def run(problem: tf_placer.Problem, name: str, seed: int) -> SearchResult:
    """One search of a variant, from the best single device."""
    method, changes = VARIANTS[name]
    single = tf_placer.search(problem, "single", budget_evaluations=problem.num_devices)
    return tf_placer.search(
        problem,
        method,
        budget_evaluations=FLAGS.evaluations,
        seed=seed,
        start=single.placement,
        config=changes,
    )


def main(out: pathlib.Path) -> None:
    problem = tf_placer.build_problem(workloads.build("inception_v3"), tf_placer.Cluster.preset("k40x2"))
    rows = []
    for name in FLAGS.variants or VARIANTS:
        for seed in range(FLAGS.first_seed, FLAGS.first_seed + FLAGS.seeds):
            result = run(problem, name, seed)
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
                f"{name:36s} seed {seed}  best {rows[-1]['best']:.3f}  last mean {rows[-1]['last_mean']:.3f}  "
                f"{result.evaluations} evaluations",
                flush=True,
            )
    write_atomically(out / "results.json", json.dumps(rows, indent=1))


if __name__ == "__main__":
    into_folder.run(main)
