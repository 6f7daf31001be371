"""Local search finds what a graph of branches hides, and moves only what may move."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_optimum_ns, branches_problem, problem_of
from tf_placer.planners.local_search import LocalSearch
from tf_placer.search.search import search


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_branches_end_up_spread_over_devices(seed):
    found = search(branches_problem(4, 6), "local_search", budget_evaluations=4000, seed=seed)
    # A local search may end one crossing too many from the optimum; everything on one device takes twice as long.
    assert found.runtime_s <= 1.1 * branches_optimum_ns(4, 6) / 1e9


def test_every_proposal_is_one_connected_legal_move():
    problem = branches_problem(3, 5, num_devices=3)
    allowed = problem.allowed.copy()
    allowed[4, 1:] = False
    problem = dataclasses.replace(problem, allowed=allowed)
    climber = LocalSearch(problem, np.zeros(problem.num_units, np.int32), seed=0)
    proposals = climber.propose(200)
    assert proposals.dtype == np.int32
    assert (proposals[:, 4] == 0).all()
    targets = [set(row[row > 0]) for row in proposals]
    assert max(map(len, targets)) == 1, "a move has one target"
    assert {t for target in targets for t in target} == {1, 2}
    sizes = (proposals > 0).sum(axis=1)
    assert sizes.max() >= 3
    assert (sizes == 1).any()


def test_some_proposals_exchange_pieces_of_like_size():
    problem = branches_problem(4, 6)
    start = np.repeat([0, 1], problem.num_units // 2 + 1)[: problem.num_units].astype(np.int32)
    moves = LocalSearch(problem, start, seed=0).propose(400) - start
    there, back = (moves > 0).sum(axis=1), (moves < 0).sum(axis=1)
    exchanged = (there > 0) & (back > 0)
    assert 0.2 < exchanged.mean() < 0.4
    assert (there[exchanged] == back[exchanged]).mean() > 0.5, "a piece is smaller where it reaches a border"


def test_it_goes_to_the_fastest_that_is_no_slower_than_before():
    problem = branches_problem(2, 3)
    climber = LocalSearch(problem, np.zeros(problem.num_units, np.int32), seed=0)
    climber.learn(climber.device_of_unit[np.newaxis], np.array([2.0]))
    rows = climber.propose(3)
    climber.learn(rows, np.array([2.5, np.inf, 2.1]))
    assert (climber.device_of_unit == 0).all()
    climber.learn(rows, np.array([2.0, 1.5, 1.9]))
    np.testing.assert_array_equal(climber.device_of_unit, rows[1])
    assert climber.runtime_s == 1.5


def test_it_goes_through_slower_placements_only_as_long_as_it_was_there_before():
    problem = branches_problem(2, 3)
    climber = LocalSearch(problem, np.zeros(problem.num_units, np.int32), seed=0)
    climber.learn(climber.device_of_unit[np.newaxis], np.array([2.0]))
    fast, slow = climber.propose(2)
    climber.learn(fast[np.newaxis], np.array([1.5]))
    climber.learn(slow[np.newaxis], np.array([1.9]))
    np.testing.assert_array_equal(climber.device_of_unit, slow)
    for _ in range(200):
        climber.learn(fast[np.newaxis], np.array([1.5]))
    climber.learn(slow[np.newaxis], np.array([1.9]))
    np.testing.assert_array_equal(climber.device_of_unit, fast)


def test_one_device_leaves_nothing_to_move():
    problem = problem_of([[5], [5]], [(0, 1)], cluster=branches_problem(1, 1, num_devices=1).cluster)
    assert (LocalSearch(problem, np.zeros(2), seed=0).propose(3) == 0).all()
