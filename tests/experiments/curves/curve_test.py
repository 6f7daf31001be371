"""Points of a search, by hand."""

import math

from experiments.curves.curve import Point, best_at, curve_of
from tf_placer.search.result import HistoryEntry


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
