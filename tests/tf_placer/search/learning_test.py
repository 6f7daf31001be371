"""The shipped settings learn: what the planner samples moves, and chance with as many tries does worse."""

import numpy as np
import pytest

from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.multi_branch import multi_branch_bound_s, multi_branch_problem
from tf_placer.search.search import search

EVALUATIONS = 12_800
ROUND = 128  # samples of an update of HdpConfig()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_hdp_ends_sampling_better_than_the_best_it_began_with_and_beats_random_search(seed):
    problem = multi_branch_problem(Cluster.preset("k40x2"))
    hdp = search(problem, "hdp", budget_evaluations=EVALUATIONS, seed=seed)
    assert [entry.evaluations for entry in hdp.history] == list(range(ROUND, EVALUATIONS + 1, ROUND))
    first_best_s = hdp.history[0].best_s
    last_mean_s = np.mean([entry.mean_s for entry in hdp.history[-5:]])
    assert last_mean_s < first_best_s, (
        f"the mean sample ends at {last_mean_s}, the first best was {first_best_s}"
    )
    random = search(problem, "random", budget_evaluations=EVALUATIONS, seed=seed)
    assert random.evaluations == hdp.evaluations == EVALUATIONS
    assert multi_branch_bound_s() <= hdp.runtime_s < random.runtime_s
