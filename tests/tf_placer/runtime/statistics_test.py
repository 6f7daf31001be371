"""Intervals of medians hold what they promise, and a race keeps the best."""

import numpy as np
import pytest

from tf_placer.runtime.statistics import clearly_slower, median_interval


def test_few_samples_say_nothing():
    for n in range(6):
        assert median_interval([1.0] * n) == (-np.inf, np.inf)
    assert median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)  # misses with 2 / 2^6 = 3 %


@pytest.mark.parametrize("n", [6, 10, 25])
@pytest.mark.parametrize("draw", ["lognormal", "uniform", "spikes"])
def test_the_interval_holds_the_median_as_often_as_it_says(n, draw):
    rng = np.random.default_rng(0)
    samples = {
        "lognormal": lambda: rng.lognormal(0, 0.5, n),
        "uniform": lambda: rng.uniform(0, 2, n),
        "spikes": lambda: rng.uniform(0, 2, n) + 50 * (rng.random(n) < 0.1),
    }[draw]
    true = np.median(np.concatenate([samples() for _ in range(4000)]))
    held = np.mean([low <= true <= high for low, high in (median_interval(samples()) for _ in range(2000))])
    assert held > 0.94
    assert np.isfinite(median_interval(samples())).all()


def test_the_true_best_is_rarely_dropped():
    rng = np.random.default_rng(1)
    dropped = sum(
        clearly_slower(rng.lognormal(0, 0.1, 10), rng.lognormal(0.01, 0.1, 10)) for _ in range(2000)
    )
    assert dropped < 0.025 * 2000
    found = sum(clearly_slower(rng.lognormal(0.3, 0.1, 10), rng.lognormal(0, 0.1, 10)) for _ in range(500))
    assert found > 0.9 * 500
