"""Programs of TensorFlow 1 on real workers: loops, branches, and v1 variables that are initialised there."""

import os

import numpy as np
import pytest

from tests.tf1_programs import program
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.local import local_devices
from tf_placer.evaluation.measurement import Status
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.runtime.timing import RuntimeConfig

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")

QUICK = RuntimeConfig(warmup_steps=1, steps=3, keep=2, deadline_s=60.0)


@pytest.mark.parametrize("name", ["two_loops", "arrays", "guarded_update", "nested_training"])
def test_a_program_runs_where_it_is_put(name: str, warm_workers) -> None:
    found = program(name)
    item = Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=4)
    problem = analytic_problem(item, Cluster("local", *local_devices(2), kind="local"))
    apart = problem.legalized(np.arange(problem.num_units) % 2)
    assert len(set(apart.tolist())) == 2
    evaluator = warm_workers.evaluator(item, problem, QUICK)
    measured = evaluator.evaluate(np.stack([problem.everything_on(0), apart]))
    assert measured.status.tolist() == [Status.OK, Status.OK]
    assert (measured.runtime_s > 0).all()
    audit = evaluator.audit(apart)
    assert not audit.unexplained
    assert audit.in_place > item.index.num_ops / 2
