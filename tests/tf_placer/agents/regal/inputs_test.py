"""Groups and what crosses between them."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.regal.inputs import regal_inputs
from tf_placer.planners.grouped_plans import Level


def test_edges_between_groups_are_added_up():
    # 0 -> 1 is inside of group 0; 1 -> 2 and 0 -> 3 go to group 1, 3 -> 4 to group 2.
    problem = problem_of([1] * 5, [(0, 1), (1, 2), (0, 3), (3, 4)], 99)
    level = Level(np.array([0, 0, 1, 1, 2], np.int32), np.ones((3, 2), bool))
    inputs = regal_inputs(problem, level)
    np.testing.assert_array_equal(inputs.edges, [[0, 1], [1, 2]])
    # 198 and 99 of 297 bytes that could cross, one more of each.
    np.testing.assert_allclose(inputs.edge_share[:, 0], np.log10([199 / 298, 100 / 298]), rtol=1e-5)


def test_a_problem_without_edges_is_described():
    problem = problem_of([1] * 2, [])
    inputs = regal_inputs(problem, Level(np.array([0, 1], np.int32), np.ones((2, 2), bool)))
    assert inputs.edges.shape == (0, 2) and inputs.edge_share.shape == (0, 1)
