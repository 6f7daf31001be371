"""Searches on the TensorFlow runtime: interrupted, gone on with, each placement measured once."""

import dataclasses
import functools
import json
import math
import os

import pytest

from tests.tf_placer.search.killed import DiesAfter, Kill
from tf_placer import workloads
from tf_placer.agents.hdp_policy import HdpConfig
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.search import methods
from tf_placer.search.search import JOURNAL, search

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers"),
]

CONFIG = HdpConfig(
    num_groups=4, placer_hidden=8,  landmarks=2,
    placements=4, incumbent=False, start_probability=0.5,
)  # fmt: skip
METHODS = {
    "hdp": dataclasses.replace(methods.find("hdp"), default=CONFIG),
    "random": "random",
    "single": "single",
}


@pytest.fixture(scope="module")
def runtime():
    item = workloads.build("branches_small", branches=2, depth=2, width=8, batch=4)
    problem = analytic_problem(item, Cluster.local(2))
    with RuntimeEvaluator(item, problem, RuntimeConfig(warmup_steps=1, steps=2, keep=1)) as evaluator:
        yield evaluator


@pytest.mark.parametrize("method", METHODS)
def test_every_method_searches_on_the_runtime_and_goes_on(method, runtime, tmp_path):
    searched = functools.partial(
        search, runtime.problem, METHODS[method], budget_evaluations=20, evaluator=runtime,
        checkpoint=tmp_path,
    )  # fmt: skip
    with pytest.raises(Kill):
        searched(progress=DiesAfter(1))
    before = (tmp_path / JOURNAL).read_text()
    result = searched()
    after = (tmp_path / JOURNAL).read_text()
    assert after.startswith(before)
    measured = {record["placement"]: record for record in map(json.loads, after.splitlines()[1:])}
    assert len(measured) == after.count("\n") - 1
    assert (result.evaluator, result.evaluations) == ("runtime", 2 if method == "single" else 20)
    times = [record["runtime_s"] for record in measured.values() if record["status"] == "OK"]
    assert result.runtime_s in times
    assert result.single_device_s in times
    assert all(math.isfinite(entry.best_s) for entry in result.history)
    # What it reports is what was measured of the placement that it reports.
    with JournaledEvaluator(runtime, tmp_path / JOURNAL) as evaluator:
        again = evaluator.evaluate(result.placement.device_of_unit[None])
        assert again.runtime_s[0] == result.runtime_s and evaluator.measured == 0
