"""What a search that asks the runtime gains: several runs of each workload, as fractions of the best single device.

    python -m experiments.live_search --workloads=two_towers,lstm_lm_small --runs=5

Every run profiles (or finds its profile on disk), searches with a seed of its own, and then races what it
recommends against the best single device anew, on fresh workers: a race that chose a winner flatters it.
Writes results.json.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
from absl import flags

import tf_placer
from experiments.into_folder import run
from tf_placer import workloads
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.files import write_atomically
from tf_placer.planning.live import Trial, search_live
from tf_placer.problem.decisions import Decisions
from tf_placer.runtime.race import race_times_s
from tf_placer.search.budget import Budget

FLAGS = flags.FLAGS
flags.DEFINE_list(
    "workloads", ["two_towers", "lstm_lm_small", "transformer_small", "inception_v3_small"], "what to place"
)
flags.DEFINE_integer("runs", 5, "runs of each, with seeds of their own", lower_bound=1)
flags.DEFINE_string("method", "hdp", "how to search; local search is always beside it")
flags.DEFINE_float("budget_s", 30.0, "seconds of the method in each run", lower_bound=0.001)
flags.DEFINE_integer("rounds", 15, "turns of the last race", lower_bound=1)
flags.DEFINE_string("out", "out/live_search", "folder for results.json")


def one_run(name: str, seed: int) -> dict:
    """One live search and one more race of what it recommends."""
    item = workloads.build(name)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local())
    with RuntimeEvaluator(item, problem) as evaluator:
        found = search_live(problem, evaluator, FLAGS.method, Budget(FLAGS.budget_s), seed=10 * seed)
    assert found.single is not None, "every workload here fits on one device"
    plans = Decisions.joined([found.single.decisions, found.recommended.decisions])
    with RuntimeEvaluator(item, problem) as evaluator:
        single_s, recommended_s = race_times_s(evaluator.race(plans, FLAGS.rounds, confidence=1.0))
    raced = [trial for trial in found.trials if trial.raced and trial is not found.single]
    simulated_s = {
        trial: found.as_search_result(trial).runtime_s for trial in (found.single, found.recommended, *raced)
    }

    def fraction(trial: Trial) -> float:
        """Of the single device, in the race of the search."""
        assert found.single is not None
        assert trial.measured_s is not None and found.single.measured_s is not None, "both ran"
        return trial.measured_s / found.single.measured_s

    return {
        "workload": name,
        "seed": seed,
        "recommended": found.recommended.method,
        "fraction": recommended_s / single_s,
        "fraction_in_its_own_race": fraction(found.recommended),
        "simulated_fraction": simulated_s[found.recommended] / simulated_s[found.single],
        "raced": [
            {
                "method": trial.method,
                "fraction": fraction(trial),
                "simulated_fraction": simulated_s[trial] / simulated_s[found.single],
                "evaluations": trial.evaluations,
            }
            for trial in raced
        ],
        "correction": dataclasses.asdict(found.correction),
        "single_s": single_s,
        "why": found.why,
    }


def main(out: pathlib.Path) -> None:
    results = []
    for name in FLAGS.workloads:
        for seed in range(FLAGS.runs):
            run = one_run(name, seed)
            results.append(run)
            write_atomically(out / "results.json", json.dumps(results, indent=1))
            print(
                f"{name}, run {seed}: {run['recommended']} takes {run['fraction']:.3f} of the best single device "
                f"({1e3 * run['single_s']:.1f} ms); in the race that chose it {run['fraction_in_its_own_race']:.3f}, "
                f"in the fitted simulator {run['simulated_fraction']:.3f}",
                *(
                    f"{one['method']} raced at {one['fraction']:.3f}, {one['simulated_fraction']:.3f} simulated"
                    for one in run["raced"]
                ),
                sep="; ",
                flush=True,
            )
        fractions = [run["fraction"] for run in results if run["workload"] == name]
        print(
            f"{name}: median {np.median(fractions):.3f}, from {min(fractions):.3f} to {max(fractions):.3f}",
            flush=True,
        )
    print(f"wrote {out / 'results.json'}")


if __name__ == "__main__":
    run(main)
