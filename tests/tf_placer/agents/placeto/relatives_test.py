"""Ancestors, descendants and parallel groups, against a search from every op."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.agents.placeto.inputs import relatives


def reached(problem, op):
    """Ops that wait for one, itself included, by walking."""
    found, left = {op}, [op]
    while left:
        for later in problem.op_graph.successors(left.pop()):
            if later not in found:
                found.add(int(later))
                left.append(int(later))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_three_sets_are_all_others(seed):
    problem = random_problem(np.random.default_rng(seed), 20, 2)
    leader = np.array([1, 4, 7, 8, 9, 13, 16, 18, 19])
    kin = relatives(problem, leader, np.arange(9.0), most=0)
    after = {
        (i, j) for i in range(9) for j in range(9) if i != j and leader[j] in reached(problem, leader[i])
    }
    assert {tuple(pair) for pair in kin.descendants} == after
    assert {tuple(pair) for pair in kin.ancestors} == {(j, i) for i, j in after}
    everyone = {(i, j) for i in range(9) for j in range(9) if i != j}
    assert {tuple(pair) for pair in kin.parallel} == everyone - after - {(j, i) for i, j in after}
    for pairs in kin:
        assert pairs.dtype == np.int64 and (np.diff(pairs[:, 0]) >= 0).all()


def test_the_nearest_in_start_time_are_kept():
    # One op after the other: ancestors of op 4 are 0 to 3, of which 3 and 2 start last; descendants of op 0 are 1 to 4.
    problem = problem_of([1] * 5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    kin = relatives(problem, np.arange(5), np.arange(5.0), most=2)
    assert kin.ancestors[kin.ancestors[:, 0] == 4].tolist() == [[4, 2], [4, 3]]
    assert kin.descendants[kin.descendants[:, 0] == 0].tolist() == [[0, 1], [0, 2]]
    assert len(kin.parallel) == 0
