"""Does the Hierarchical planner learn? Five seeds against its table, random search and single device.

    python -m experiments.hdp_learning

The table and random search get as many evaluations as HDP made. Writes results.json and learning.png.
"""

from __future__ import annotations

import json
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from absl import flags

import tf_placer
from experiments.into_folder import run
from tf_placer import workloads
from tf_placer.files import write_atomically
from tf_placer.problem.multi_branch import multi_branch_bound_s, multi_branch_problem
from tf_placer.problem.problem import Problem
from tf_placer.search.result import SearchResult

FLAGS = flags.FLAGS
flags.DEFINE_integer(
    "evaluations",
    None,
    "placements per seed instead of seconds, which say nothing on a loaded machine",
    lower_bound=1,
)
flags.DEFINE_integer("first_seed", 100, "the first seed", lower_bound=0)
flags.DEFINE_integer("seeds", 5, "how many seeds", lower_bound=1)
flags.DEFINE_float("budget_s", 120.0, "seconds of HDP per seed on Inception-V3 and k40x2", lower_bound=0.001)
flags.DEFINE_float(
    "p100x2_budget_s", 60.0, "seconds of HDP per seed on Inception-V3 and p100x2", lower_bound=0.001
)
flags.DEFINE_float(
    "synthetic_budget_s", 40.0, "seconds of HDP per seed on the multi-branch graph", lower_bound=0.001
)
flags.DEFINE_string("out", "out/hdp_learning", "folder for results.json and learning.png")


def learn(problem: Problem, budget_s: float, seeds: int) -> list[dict]:
    """One row per seed, as a fraction of single device; prints each as it comes."""
    rows = []
    for seed in range(FLAGS.first_seed, FLAGS.first_seed + seeds):
        # From the single device, whose fractions the rows are; by itself a search begins at the best cheap plan.
        single = tf_placer.search(problem, "single", budget_evaluations=problem.num_devices)
        budget = {"budget_evaluations": FLAGS.evaluations} if FLAGS.evaluations else {"budget_s": budget_s}
        hdp = tf_placer.search(problem, "hdp", seed=seed, start=single.placement, **budget)
        table, random = (
            tf_placer.search(problem, method, budget_evaluations=hdp.evaluations, seed=seed, config=config)
            for method, config in (("tabular", {"loss": "cross_entropy", "samples": 128}), ("random", None))
        )
        rows.append(summary(hdp, table, random))
        print(
            f"{problem.name} on {problem.cluster.name}, seed {seed}: "
            + ", ".join(
                f"{key} {value:.4g}" for key, value in rows[-1].items() if not isinstance(value, list)
            ),
            flush=True,
        )
    return rows


def summary(hdp: SearchResult, table: SearchResult, random: SearchResult) -> dict:
    """Best of HDP, its table and random search, and how the mean sample moved, relative to single device."""
    single_s = hdp.single_device_s
    assert single_s is not None, "every workload here fits on one device"
    first_hundred = next(entry for entry in hdp.history if entry.evaluations >= 100)
    tail = hdp.history[-10:]
    return {
        "single_device_s": single_s,
        "hdp": hdp.runtime_s / single_s,
        "table": table.runtime_s / single_s,
        "random": random.runtime_s / single_s,
        "first_100_best": first_hundred.best_s / single_s,
        "last_mean": float(np.nanmean([entry.mean_s for entry in tail])) / single_s,
        "evaluations": hdp.evaluations,
        "lower_bound": hdp.lower_bound_s / single_s,
        "hdp_history": [
            (entry.elapsed_s, entry.best_s / single_s, entry.mean_s / single_s) for entry in hdp.history
        ],
    }


def plot(results: dict[str, list[dict]], path: pathlib.Path) -> None:
    """Mean sample (thin) and best so far (thick) over time, one line per seed."""
    figure, axes = plt.subplots(1, len(results), figsize=(5 * len(results), 3.6), layout="constrained")
    for axis, (title, rows) in zip(np.atleast_1d(axes), results.items(), strict=True):
        for seed, row in enumerate(rows):
            seconds, best, mean = np.array(row["hdp_history"]).T
            axis.plot(seconds, mean, color=f"C{seed}", alpha=0.35, linewidth=0.8)
            axis.plot(seconds, best, color=f"C{seed}", label=f"seed {FLAGS.first_seed + seed}")
        axis.axhline(1.0, color="black", linestyle=":", label="single device")
        axis.axhline(
            np.mean([row["random"] for row in rows]), color="grey", linestyle="--", label="random, mean"
        )
        axis.set(title=title, xlabel="seconds", ylabel="step time / single device", ylim=(None, 1.35))
    np.atleast_1d(axes)[0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


def main(out: pathlib.Path) -> None:
    inception = workloads.build("inception_v3")
    problems = {
        f"Inception-V3 on {name}": (
            tf_placer.build_problem(inception, tf_placer.Cluster.preset(name)),
            budget_s,
        )
        for name, budget_s in (("k40x2", FLAGS.budget_s), ("p100x2", FLAGS.p100x2_budget_s))
    }
    synthetic = multi_branch_problem(tf_placer.Cluster.preset("k40x2"))
    problems["8 chains of 6 ops on k40x2"] = (synthetic, FLAGS.synthetic_budget_s)
    print(f"{synthetic.name}: no placement beats {1e3 * multi_branch_bound_s():.2f} ms", flush=True)
    results = {
        title: learn(problem, budget_s, FLAGS.seeds) for title, (problem, budget_s) in problems.items()
    }
    for title, rows in results.items():
        wins = sum(row["hdp"] < 1 for row in rows)
        beats_table = sum(row["hdp"] <= row["table"] for row in rows)
        beats_random = sum(row["hdp"] < row["random"] for row in rows)
        learned = sum(row["last_mean"] < row["first_100_best"] for row in rows)
        median = np.median([row["hdp"] for row in rows])
        print(
            f"{title}: median {median:.3f} of single device; faster than it in {wins}/{len(rows)} seeds, than random "
            f"in {beats_random}/{len(rows)}, no slower than the table in {beats_table}/{len(rows)}; "
            f"mean sample ends below the first hundred's best in {learned}/{len(rows)}"
        )
    write_atomically(out / "results.json", json.dumps(results, indent=1))
    plot(results, out / "learning.png")
    print(f"wrote {out / 'results.json'} and {out / 'learning.png'}")


if __name__ == "__main__":
    run(main)
