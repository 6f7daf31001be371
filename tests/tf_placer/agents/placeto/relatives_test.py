"""Ancestors, descendants and parallel groups, against a search from every op."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import random_problem
from tf_placer.agents.placeto_policy import relatives


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
    kin = relatives(problem, leader)
    after = {
        (i, j) for i in range(9) for j in range(9) if i != j and leader[j] in reached(problem, leader[i])
    }
    assert {tuple(pair) for pair in kin.descendants} == after
    assert {tuple(pair) for pair in kin.ancestors} == {(j, i) for i, j in after}
    everyone = {(i, j) for i in range(9) for j in range(9) if i != j}
    assert {tuple(pair) for pair in kin.parallel} == everyone - after - {(j, i) for i, j in after}
    for pairs in kin:
        assert pairs.dtype == np.int64 and (np.diff(pairs[:, 0]) >= 0).all()
