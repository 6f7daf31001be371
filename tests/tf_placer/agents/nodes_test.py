"""Nodes are groups of units or units, in the order of use, and each has something legal."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.nodes import nodes_of

# Units 1 and 3 have no choice, on device 2 and 0; the others are of one kind.
ALLOWED = np.array([[1, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]], bool)
MASKED = problem_of(
    [1, 2, 3, 4, 5],
    [(0, 2), (1, 2), (2, 3), (2, 4), (1, 4)],
    [10, 20, 30, 40, 50],
    cluster=small_cluster(3),
    allowed=ALLOWED,
)


def test_units_one_by_one_in_the_order_of_use():
    nodes = nodes_of(MASKED, None)
    # Unit 1 is first read where unit 0 is, and began later.
    assert nodes.node_of_unit.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(nodes.legal, ALLOWED)
    assert nodes.edges.tolist() == [[0, 2], [1, 2], [1, 4], [2, 3], [2, 4]]
    assert nodes.edge_bytes.tolist() == [10, 20, 50, 30, 40]


def test_what_has_no_choice_is_a_node_of_its_device():
    allowed = np.array([[0, 1], [0, 1], [1, 1], [1, 0]], bool)
    nodes = nodes_of(problem_of([1] * 4, [(0, 2), (1, 2), (2, 3)], [5, 6, 7], allowed=allowed), None)
    assert nodes.node_of_unit.tolist() == [0, 0, 1, 2]
    assert nodes.legal.tolist() == [[False, True], [True, True], [True, False]]
    assert nodes.edges.tolist() == [[0, 1], [1, 2]] and nodes.edge_bytes.tolist() == [11, 7]


@pytest.mark.parametrize("groups", [1, 4, 100])
def test_groups_hold_units_of_one_kind_and_come_in_the_order_of_use(groups):
    for problem in (MASKED, branches_problem(3, 4)):
        nodes = nodes_of(problem, groups)
        assert sorted(set(nodes.node_of_unit.tolist())) == list(range(nodes.count)), "none is empty"
        np.testing.assert_array_equal(nodes.legal[nodes.node_of_unit], problem.allowed)
        assert nodes.count <= max(groups, 1) + problem.num_devices
    # A source, three chains and a sink: the source's group comes first, the sink's last.
    assert nodes.node_of_unit[0] == 0 and nodes.node_of_unit[-1] == nodes.count - 1


def test_a_plan_is_where_most_of_each_node_is():
    nodes = nodes_of(problem_of([1, 5, 2], [(0, 1), (1, 2)], 9), 1)
    assert nodes.count == 1
    plans = np.array([[1, 0, 1], [0, 1, 1]])  # 5 of 8 on device 0, 7 of 8 on device 1
    assert nodes.devices_of(problem_of([1, 5, 2], [(0, 1), (1, 2)], 9), plans).tolist() == [[0], [1]]


def test_the_fastest_of_the_plans_as_nodes_is_begun_with():
    problem = branches_problem(2, 2)
    nodes = nodes_of(problem, None)
    plans = np.array([problem.everything_on(1), problem.everything_on(0)])
    times = lambda rows: (1.0 + rows.sum(axis=1), np.ones(len(rows), bool))  # noqa: E731
    assert nodes.best_of(problem, plans, times).tolist() == [0] * nodes.count
    none = lambda rows: (1.0 + rows.sum(axis=1), np.zeros(len(rows), bool))  # noqa: E731
    assert nodes.best_of(problem, plans, none).tolist() == [1] * nodes.count
