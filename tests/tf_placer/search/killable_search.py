"""A search in a process of its own, slow enough to be killed: ``-m tests.tf_placer.search.killable_search``."""

import dataclasses
import json
import pathlib
import sys
import time

import numpy as np

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.hdp_policy import HdpConfig
from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator
from tf_placer.search import methods
from tf_placer.search.search import search

CONFIG = HdpConfig(
    num_groups=8, placer_hidden=8,  landmarks=4,
    placements=8, incumbent=False,
    learning_rate=1e-2,
)  # fmt: skip
METHODS = {"hdp": dataclasses.replace(methods.find("hdp"), default=CONFIG), "random": methods.find("random")}
EVALUATIONS = 200


class SlowEvaluator:
    """Simulates like one that measures: outside of TensorFlow's graphs, and each placement takes a while."""

    def __init__(self, delay_s: float):
        self.problem = branches_problem(4, 5)
        self._simulated = SimulatedEvaluator(self.problem)
        self.identity = self._simulated.identity
        self._delay_s = delay_s

    def evaluate(self, device_of_unit: np.ndarray) -> Measurement:
        time.sleep(self._delay_s)
        return self._simulated.evaluate(device_of_unit)


def run(method: str, folder: pathlib.Path, delay_s: float) -> list:
    """What a search found, and each round's best and mean."""
    evaluator = SlowEvaluator(delay_s)
    result = search(
        evaluator.problem,
        METHODS[method],
        budget_evaluations=EVALUATIONS,
        evaluator=evaluator,
        checkpoint=folder,
    )
    rounds = [[entry.evaluations, entry.best_s, entry.mean_s] for entry in result.history]
    return [result.runtime_s, result.placement.device_of_unit.tolist(), rounds]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3]))))
