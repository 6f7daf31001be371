"""Groups get other numbers, and hold what they held."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.group_order import ORDERS, renumbered

# A chain of six units in the order of their numbers, in groups {4, 5}, {0, 1}, {2, 3} of one class; unit 6 in none.
PROBLEM = problem_of([1] * 7, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)])
GROUPS = np.array([1, 1, 2, 2, 0, 0, 3], np.int32)


def test_topological_order_by_hand():
    found = renumbered(PROBLEM, GROUPS, np.zeros(3, np.int32), "topological")
    # Places 0, 1 / 2, 3 / 4, 5: means 0.5, 2.5 and 4.5.
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 3] and found.dtype == np.int32


def test_a_group_keeps_its_class():
    # Groups 0 and 1 are of one class, 2 of another: {0, 1} and {4, 5} change places, {2, 3} cannot.
    found = renumbered(PROBLEM, GROUPS, np.array([0, 0, 1], np.int32), "topological")
    assert found.tolist() == [0, 0, 2, 2, 1, 1, 3]


def test_a_group_without_units_comes_last():
    found = renumbered(
        PROBLEM, np.array([1, 1, 2, 2, 3, 3, 4], np.int32), np.zeros(4, np.int32), "topological"
    )
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 4]


@pytest.mark.parametrize("order", ORDERS)
def test_groups_hold_what_they_held(order):
    found = renumbered(PROBLEM, GROUPS, np.zeros(3, np.int32), order)
    assert len(np.unique(np.stack([GROUPS, found]), axis=1).T) == 4
    assert found[6] == 3
    np.testing.assert_array_equal(found, renumbered(PROBLEM, GROUPS, np.zeros(3, np.int32), order))
    assert (order == "as_cut") == (found.tolist() == GROUPS.tolist())
