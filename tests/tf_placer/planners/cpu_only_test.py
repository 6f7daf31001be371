"""CPU only: the first CPU, or a line that says that there is none."""

import numpy as np
import pytest

from tests.tf_placer.planners.clusters_by_type import cluster_of
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.planners.plain import cpu_only


def test_everything_is_on_the_first_cpu_that_may_be():
    allowed = np.array([[True] * 3, [True, False, True], [False, False, True]])
    problem = problem_of([1] * 3, [], cluster=cluster_of("GPU", "CPU", "CPU"), allowed=allowed)
    assert cpu_only(problem).tolist() == [[1, 0, 2]]


def test_a_cluster_without_a_cpu_is_refused():
    with pytest.raises(
        InputError, match="cluster 'toy2' has no CPU to put everything on; give a cluster with one"
    ):
        cpu_only(problem_of([1], []))
