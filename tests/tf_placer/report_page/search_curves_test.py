"""A curve has what was better than before, and where the search ended."""

from tf_placer.report_page.search_curves import search_curve
from tf_placer.search.result import HistoryEntry


def test_only_what_is_better_and_the_end_are_kept():
    best_s = [float("nan"), 5.0, 5.0, 4.0, 4.0, 4.0]
    history = [HistoryEntry(i, float(i), best, best, 0) for i, best in enumerate(best_s)]
    curve = search_curve("random", history, is_written=True)
    assert curve.elapsed_s == (1.0, 3.0, 5.0) and curve.best_s == (5.0, 4.0, 4.0) and curve.is_written


def test_a_search_that_found_nothing_has_no_point():
    assert search_curve("random", [HistoryEntry(1, 1.0, float("nan"), float("nan"), 1)]).best_s == ()
