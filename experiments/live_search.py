"""Gain of a search that asks the runtime: several runs of each workload, as fractions of the best single device.

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
import rich.console
from absl import flags

from experiments.main_program import out_flag, run
from tf_placer.base.files import write_atomically
from tf_placer.calibration.refit import Correction
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.place import place
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.planning.outcome import SINGLE, Note, Timed
from tf_placer.problem.placement import Decisions
from tf_placer.runtime.timing import race_times_s
from tf_placer.search.methods import SEARCH, Budget

FLAGS = flags.FLAGS
flags.DEFINE_list(
    "workloads", ["two_towers", "lstm_lm_small", "transformer_small", "inception_v3_small"], "what to place"
)
flags.DEFINE_integer("runs", 5, "runs of each, with seeds of their own", lower_bound=1)
flags.DEFINE_string("method", "hdp", "how to search; local search is always beside it")
flags.DEFINE_float("budget_s", 30.0, "seconds of the method in each run", lower_bound=0.001)
flags.DEFINE_integer("rounds", 15, "turns of the last race", lower_bound=1)
out_flag("out/live_search", "folder for results.json")


def one_run(name: str, seed: int) -> dict:
    """One live search and one more race of what it recommends."""
    budget = Budget(FLAGS.budget_s)
    request = Request(Source(name), Cluster.local(), budget, 10 * seed, budget_of=SEARCH)
    found = place(request, FLAGS.method, rich.console.Console(quiet=True))
    single, recommended = found.named(SINGLE), found.written
    assert single and single.placement and found.form.item, "every workload here fits on one device"
    plans = Decisions.joined([single.placement.decisions, found.placement.decisions])
    with RuntimeEvaluator(found.form.item, found.problem) as evaluator:
        (single_s, recommended_s), _ = race_times_s(evaluator.race(plans, FLAGS.rounds, confidence=1.0))

    def fractions(trial: Timed) -> dict:
        """Fractions of the single device, in the race of the search and in the fitted simulator."""
        assert trial.raced_s and single.raced_s and trial.simulated_s and single.simulated_s, "both ran"
        simulated = trial.simulated_s / single.simulated_s
        return {"fraction": trial.raced_s / single.raced_s, "simulated_fraction": simulated}

    return {
        "workload": name,
        "seed": seed,
        "recommended": recommended.name,
        "fraction": recommended_s / single_s,
        "fraction_in_its_own_race": fractions(recommended)["fraction"],
        "simulated_fraction": fractions(recommended)["simulated_fraction"],
        "raced": [
            {"method": trial.name, **fractions(trial), "evaluations": trial.evaluations}
            for trial in found.trials
            if trial.raced_s is not None and trial.name != SINGLE
        ],
        "correction": dataclasses.asdict(found.correction or Correction()),
        "single_s": single_s,
        "why": found.notes[Note.WHY],
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
        middle, least, most = np.median(fractions), min(fractions), max(fractions)
        print(f"{name}: median {middle:.3f}, from {least:.3f} to {most:.3f}", flush=True)
    print(f"wrote {out / 'results.json'}")


if __name__ == "__main__":
    run(main)
