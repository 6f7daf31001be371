"""Points of a search and what is seen of a learner, by hand; and being watched changes nothing."""

import math

import numpy as np
import pytest

from experiments.studies.observed import Point, Seen, Window, best_at, curve_of, observed
from tests.tf_placer.agents.tiny_learner import TINY, TinyConfig
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.search.recorder import HistoryEntry
from tf_placer.search.search import search

RAN = np.array([True, True, True, False])


@pytest.fixture
def seen():
    """Four, four and two samples; the last update had four, of which two are beyond the budget."""
    seen = Seen(most=10)
    seen.add(np.array([9.0, 5.0, 4.0, 0.0]), RAN)
    seen.add(np.array([3.0, 8.0, 0.0, 0.0]), np.array([True, True, False, False]))
    seen.add(np.array([7.0, 6.0, 1.0, 1.0]), RAN)
    return seen


def test_rounds_by_hand(seen):
    assert (seen.updates, seen.samples, seen.best_s) == (3, 10, 3.0)
    told = [(entry.evaluations, entry.best_s, entry.mean_s, entry.failed) for entry in seen.history]
    assert told == [(4, 4.0, 6.0, 1), (8, 3.0, 5.5, 2), (10, 3.0, 6.5, 0)]


def test_first_and_last_samples_by_hand(seen):
    assert seen.first(4) == Window(4.0, 6.0)
    # (9 + 5 + 4 + 3 + 8) / 5, and (3 + 8 + 7 + 6) / 4
    assert seen.first(5) == Window(3.0, 5.8)
    assert seen.last(3) == Window(3.0, 6.0)
    assert seen.last(2) == Window(6.0, 6.5)
    assert seen.last(99) == Window(3.0, 42 / 7)


def test_nothing_that_ran_is_no_best():
    seen = Seen()
    assert math.isnan(seen.best_s)
    seen.add(np.zeros(2), np.zeros(2, bool))
    assert math.isnan(seen.best_s) and seen.first(1).best_s == math.inf and math.isnan(seen.last(1).mean_s)


def test_a_search_that_is_watched_is_the_search():
    problem, config = branches_problem(2, 3), TinyConfig(samples=8)
    plain = search(problem, TINY, budget_evaluations=44, seed=1, config=config)
    spec, seen = observed(TINY, 44)
    watched = search(problem, spec, budget_evaluations=44, seed=1, config=config)
    assert watched.placement.device_of_unit.tolist() == plain.placement.device_of_unit.tolist()
    seen_rounds, rounds = (
        [(entry.evaluations, entry.best_s, entry.mean_s) for entry in history]
        for history in (seen.history, watched.history)
    )
    np.testing.assert_allclose(seen_rounds, rounds)
    # Each update up to the sixth is asked; a table that is sure of nothing yet knows log 2 of each unit.
    assert [samples for samples, _ in seen.entropy] == [8, 16, 24, 32, 40, 44]
    assert seen.entropy[-1][1] < seen.entropy[0][1] < math.log(2)


def test_points_are_as_far_apart_as_can_be_and_means_count_what_ran():
    nan = math.nan
    history = [
        HistoryEntry(10, 1.0, nan, nan, failed=10),
        HistoryEntry(20, 2.0, 4.0, 5.0, failed=5),
        HistoryEntry(30, 3.0, 3.0, 8.0, failed=0),
        HistoryEntry(40, 4.0, 3.0, 6.0, failed=0),
        HistoryEntry(45, 5.0, 2.0, 2.0, failed=4),
    ]
    # A point at each 22.5 of 45: after the third round, and the end. (5 * 5 + 10 * 8) / 15; (10 * 6 + 1 * 2) / 11
    assert curve_of(history, 2) == [Point(30, 3.0, 3.0, 7.0), Point(45, 5.0, 2.0, 62 / 11)]
    assert [point.evaluations for point in curve_of(history, 100)] == [10, 20, 30, 40, 45]
    assert curve_of([], 3) == []


def test_the_best_at_a_count_never_flatters_who_is_compared_with_it():
    curve = [Point(10, 1.0, math.nan, 5.0), Point(20, 2.0, 4.0, 5.0), Point(30, 3.0, 3.0, 5.0)]
    assert [best_at(curve, count) for count in (5, 10, 11, 20, 21, 30, 99)] == [
        math.inf,
        math.inf,
        4,
        4,
        3,
        3,
        3,
    ]
    assert best_at([], 5) == math.inf
