"""A table moves to the fastest draws."""

from __future__ import annotations

import numpy as np

from tf_placer.planners.cross_entropy import toward_elites

HALF = np.full((2, 2), 0.5)
DRAWN = np.array([[0, 1], [0, 0], [1, 1], [1, 0]])


def test_it_moves_to_the_frequencies_of_the_fastest() -> None:
    # The fastest two are rows 1 and 0: group 0 is on device 0 in both, group 1 on each once.
    moved = toward_elites(HALF, DRAWN, np.array([2.0, 1.0, 4.0, 3.0]), elites=2, smoothing=0.2)
    np.testing.assert_allclose(moved, [[0.8 * 0.5 + 0.2, 0.8 * 0.5], [0.5, 0.5]])


def test_what_does_not_run_is_no_elite() -> None:
    times = np.array([np.inf, np.nan, np.inf, 3.0])
    moved = toward_elites(HALF, DRAWN, times, elites=2, smoothing=1.0)
    np.testing.assert_array_equal(moved, [[0, 1], [1, 0]])  # row 3 alone


def test_where_nothing_runs_nothing_moves() -> None:
    moved = toward_elites(HALF, DRAWN, np.full(4, np.inf), elites=2, smoothing=1.0)
    np.testing.assert_array_equal(moved, HALF)
    assert moved is not HALF
