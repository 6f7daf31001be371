"""Groups hold units of one kind, are visited in the order in which they start, and their edges add up."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.agents.placeto_policy import group_graph


@pytest.mark.parametrize("seed", range(3))
def test_what_is_legal_for_a_group_is_legal_for_all_of_it(seed):
    problem = random_problem(np.random.default_rng(seed), 30, 3)  # with masks
    graph = group_graph(problem, parts=4)
    np.testing.assert_array_equal(graph.groups.legal[graph.groups.group_of_unit], problem.allowed)
    assert set(graph.groups.group_of_unit) == set(range(graph.groups.count))
    # Those with a choice are visited, by the start of their leaders, and an op after those it waits for.
    choice = np.flatnonzero(graph.groups.legal.sum(axis=1) > 1)
    assert sorted(graph.visited) == choice.tolist()
    assert (np.diff(graph.start[graph.visited]) >= 0).all()
    inside = graph.groups.group_of_unit[problem.unit_of_op[graph.leader]]
    np.testing.assert_array_equal(inside, np.arange(graph.groups.count))


def test_edges_between_groups_add_up():
    # As many parts as units: every unit is a group. 0 and 1 both give 9 bytes to 2, and 2 gives 9 to 3.
    problem = problem_of([1, 2, 3, 4], [(0, 2), (1, 2), (2, 3)], 9)
    graph = group_graph(problem, parts=4)
    assert graph.groups.edges.tolist() == [[0, 2], [1, 2], [2, 3]]
    assert graph.groups.edge_bytes.tolist() == [9, 9, 9]
    # Chains 1 -> 2 -> 3 ns of work after 0 or 1: the critical path is 2 + 3 + 4; 2 starts at 2 / 9, 3 at 5 / 9.
    np.testing.assert_allclose(graph.start, [0, 0, 2 / 9, 5 / 9])
    assert graph.visited.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(graph.groups.sums(np.array([1.0, 2.0, 4.0, 8.0])), [1, 2, 4, 8])


def test_where_nothing_is_to_be_decided_one_group_is_visited():
    graph = group_graph(problem_of([1, 1], [(0, 1)], cluster=small_cluster(1)), parts=2)
    assert graph.visited.tolist() == [0]
