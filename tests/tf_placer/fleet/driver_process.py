"""A driver that measures plans on a fleet, with a journal: to be killed, and started again."""

import json
import pathlib
import sys

import numpy as np

import tf_placer
from tf_placer import workloads
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.fleet.address import FleetAddress
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.fleet import FleetConfig, FleetEvaluator
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig


def plans_of(problem: Problem, count: int) -> np.ndarray:
    """[count, U] plans that differ, always the same."""
    rng = np.random.default_rng(0)
    rows = problem.legalized(rng.integers(0, problem.num_devices, (2 * count, problem.num_units), np.int32))
    return np.unique(rows, axis=0)[:count]


def main(folder: str, address: str, count: str) -> None:
    item = workloads.build("dense_small")
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local(cores=2), costs="analytic")
    plans = plans_of(problem, int(count))
    config = FleetConfig(attempts=50)
    with open_fleet(FleetAddress.parse(address), problem.cluster, config) as fleet:
        evaluator = FleetEvaluator(item, problem, fleet, RuntimeConfig(warmup_steps=1, steps=3, keep=3))
        with JournaledEvaluator(evaluator, pathlib.Path(folder, "measured.jsonl")) as journaled:
            print("ready", flush=True)
            found = journaled.evaluate(plans)
            told = {
                "digests": [tf_placer.Decisions(plans).digest(i, problem) for i in range(len(plans))],
                "status": found.status.tolist(),
                "kept": journaled.kept,
                "measured": journaled.measured,
                "baselines_s": evaluator.fleet.baselines_s(evaluator.program.digest),
                "actors": fleet.actors,
                **vars(fleet.counts),
            }
    pathlib.Path(folder, "done.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
