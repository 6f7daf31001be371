"""What was asked is what runs: a scattered placement of every small workload, compared with the partition graphs."""

import pytest

from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.analytic_problem import analytic_problem

# The papers' sizes do not run on two workers of one machine; each has a small twin that does.
RUN_HERE = [name for name in workloads.names() if "_small" in name or name in ("resnet50", "two_towers")]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN_HERE)
def test_every_op_is_where_it_was_put_or_says_why(name):
    item = workloads.build(name)
    problem = analytic_problem(item, Cluster.local(cores=2))
    scattered = max(RandomBlocks(problem, seed=0).draw(64), key=lambda row: min(row.mean(), 1 - row.mean()))
    with RuntimeEvaluator(item, problem) as evaluator:
        found = evaluator.audit(scattered)
    found.check()
    assert found.in_place > item.index.num_ops / 2
    assert found.added["_Send"] > 0
