"""Groups and what crosses between them."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.regal import regal_inputs
from tf_placer.grouper.groups import Groups


def test_edges_between_groups_are_added_up():
    # 0 -> 1 is inside of group 0; 1 -> 2 and 0 -> 3 go to group 1, 3 -> 4 to group 2.
    problem = problem_of([1] * 5, [(0, 1), (1, 2), (0, 3), (3, 4)], 99)
    inputs = regal_inputs(problem, Groups.of(problem, np.array([0, 0, 1, 1, 2])))
    np.testing.assert_array_equal(inputs.edges, [[0, 1], [1, 2]])
    # 198 and 99 of 297 bytes that could cross, one more of each.
    np.testing.assert_allclose(inputs.edge_share[:, 0], np.log10([199 / 298, 100 / 298]), rtol=1e-5)


def test_a_problem_without_edges_is_described():
    problem = problem_of([1] * 2, [])
    inputs = regal_inputs(problem, Groups.of(problem, np.arange(2)))
    assert inputs.edges.shape == (0, 2) and inputs.edge_share.shape == (0, 1)
