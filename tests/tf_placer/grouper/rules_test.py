"""Groups: what the rules bring together, what legality splits, what is folded."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.agents.colocrl import ColocRlConfig, colocated_groups
from tf_placer.grouper.rules import tied_by_rules, tied_groups


def grouped(problem, **changes):
    return colocated_groups(problem, ColocRlConfig(**changes))


def members(groups):
    """Sets of units, in the order of groups."""
    return [set(np.flatnonzero(groups.group_of_unit == g).tolist()) for g in range(groups.count)]


def named(*names, edges=(), **more):
    return problem_of([5] * len(names), edges, 8, names=names, **more)


def test_the_three_rules():
    problem = named(
        "net/conv2d_1/conv",
        "net/batch_normalization_1/norm",
        "lstm/step/mul",
        "lstm/step/mul_1",
        "loss",
        "gradients/loss_grad/g",
        "gradients/lstm/step/mul_grad/g",
        "update",
        "statistics",
        edges=[(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (5, 6), (6, 7), (6, 8), (1, 8)],
    )
    groups = grouped(problem, largest_share=1.0)
    # By name {conv, norm}, {mul, its gradient}, {loss, its gradient}. Then mul_1 has the loss alone, and that mul's
    # gradient; which has two readers, as {conv, norm} has.
    assert members(groups) == [{0, 1}, {2, 3, 4, 5, 6}, {7}, {8}]
    tied = tied_by_rules(problem, ColocRlConfig().step_pattern, ColocRlConfig().layer_pattern, 1.0)
    assert len(np.unique(tied)) == 4
    assert grouped(problem, colocate=False).count == 9
    # Without the rules of layers and steps nothing ties conv and norm: both have two readers.
    plain = grouped(problem, largest_share=1.0, step_pattern="", layer_pattern="")
    assert members(plain) == [{0}, {1}, {2, 3, 4, 5, 6}, {7}, {8}]


def test_a_graph_with_one_sink_does_not_end_as_one_group():
    problem = branches_problem(4, 4)
    assert grouped(problem, largest_share=1.0).count == 1
    groups = grouped(problem, largest_share=0.3)
    # Each branch is 4,000 of 16,020 ns; source and sink are 10 each. The sink is with one of the branches.
    assert groups.count == 5
    branches = [{1 + i * 4 + b for i in range(4)} for b in range(4)]
    assert sorted(len(found) for found in members(groups)) == [1, 4, 4, 4, 5]
    assert all(any(branch <= found for found in members(groups)) for branch in branches)


def test_groups_are_in_the_order_of_their_work():
    problem = problem_of([0, 5, 0, 7], [(1, 3)], 8)
    # Ops 0 and 2 take no time and are alone: behind the others.
    assert members(grouped(problem, colocate=False)) == [{1}, {3}, {0}, {2}]


def test_kinds_of_units_are_apart():
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 8, cluster=small_cluster(3), allowed=allowed)
    groups = grouped(problem, largest_share=1.0)
    assert members(groups) == [{0, 3}, {1}]  # one chain; unit 2 has one device
    np.testing.assert_array_equal(groups.legal, allowed[:2])
    np.testing.assert_array_equal(groups.expand(np.array([[1, 1], [0, 2]])), [[1, 1, 2, 1], [0, 2, 2, 0]])


@pytest.mark.parametrize("most", [1, 5, 9])
def test_too_many_are_folded(most):
    problem = random_problem(np.random.default_rng(2), 40, 3)  # with masks
    kinds = np.unique(problem.allowed[problem.allowed.sum(axis=1) > 1], axis=0)
    groups = tied_groups(problem, np.arange(problem.num_units), most)
    assert len(kinds) <= groups.count <= max(most, len(kinds))
    rows = groups.expand(np.stack([groups.legal.argmax(axis=1), 2 - groups.legal[:, ::-1].argmax(axis=1)]))
    for row in rows:
        problem.check_legal(row)
    assert all(members(groups)), "a group without units"


def test_folding_keeps_what_the_rules_tie():
    problem = branches_problem(6, 3)
    whole, folded = grouped(problem, largest_share=0.2), grouped(problem, largest_share=0.2, max_groups=3)
    assert folded.count <= 3 < whole.count
    for found in members(whole):
        assert len({int(folded.group_of_unit[unit]) for unit in found}) == 1


def test_where_nothing_is_to_be_decided_there_is_one_group_without_units():
    groups = grouped(problem_of([1, 2], [(0, 1)], 8, cluster=small_cluster(1)))
    assert groups.count == 1 and members(groups) == [set()]
    np.testing.assert_array_equal(groups.expand(np.array([[0]])), [[0, 0]])


def test_it_is_the_same_again():
    problem = random_problem(np.random.default_rng(5), 40, 3)
    one, same = grouped(problem, max_groups=6), grouped(problem, max_groups=6)
    np.testing.assert_array_equal(one.group_of_unit, same.group_of_unit)
