"""Intervals of medians hold what they promise, a race and an early stop keep the best."""

import math

import numpy as np
import pytest

from tf_placer.runtime.timing import clearly_slower, hopeless, median_interval


def test_few_samples_say_nothing():
    for n in range(6):
        assert median_interval([1.0] * n) == (-np.inf, np.inf)
    assert median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)  # misses with 2 / 2^6 = 3 %


@pytest.mark.medium
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


def test_a_machine_that_drifts_hides_no_difference():
    rng = np.random.default_rng(2)

    def race():
        machine = rng.uniform(0.8, 1.25, 20)  # what a turn meets, whoever runs
        return machine * rng.lognormal(0, 0.02, 20), 0.95 * machine * rng.lognormal(0, 0.02, 20)

    races = [race() for _ in range(500)]
    assert sum(clearly_slower(slow, fast) for slow, fast in races) > 0.95 * 500
    assert sum(clearly_slower(fast, slow) for slow, fast in races) == 0
    # Taken each by itself, the intervals of the two medians nearly always meet.
    assert sum(median_interval(slow)[0] > median_interval(fast)[1] for slow, fast in races) < 0.05 * 500


NOISES = {  # factors on a step time, [steps]
    "lognormal": lambda rng, n: rng.lognormal(0, 0.05, n),
    "wide": lambda rng, n: rng.lognormal(0, 0.3, n),
    "uniform": lambda rng, n: rng.uniform(0.9, 1.1, n),
    "spikes": lambda rng, n: rng.lognormal(0, 0.03, n) * np.where(rng.random(n) < 0.1, 3.0, 1.0),
    "Pareto": lambda rng, n: 1 + 0.05 * rng.pareto(1.5, n),  # infinite variance
    "none": lambda rng, n: np.ones(n),
}
STEPS = 10


def drift(rng, count):
    """[count] a random wave between 0.95 and 1.05, one value for each placement: minutes lie between two."""
    return 1 + 0.05 * np.sin(rng.uniform(0, 2 * np.pi) + rng.uniform(0.05, 1.0) * np.arange(count))


def stop_of(samples, incumbent, **options):
    """How many steps are timed until the candidate is hopeless; all of them if it never is."""
    stops = (j for j in range(1, len(samples) + 1) if hopeless(samples[:j], incumbent, **options))
    return next(stops, len(samples))


def search_order_keeps_the_best(rng, noise, drifts):
    """Whether the fastest of 12 placements is timed to the end when each meets the best before it."""
    means = np.append(1.0, 1.02 + rng.exponential(0.2, 11))
    order = rng.permutation(len(means))
    machine = drift(rng, len(means)) if drifts else np.ones(len(means))
    incumbent = []
    for when, placement in enumerate(order):
        samples = (means[placement] * machine[when] * noise(rng, STEPS)).tolist()
        timed = stop_of(samples, incumbent)
        if placement == 0:
            return timed == STEPS
        if timed == STEPS and (not incumbent or np.median(samples[-5:]) < np.median(incumbent[-5:])):
            incumbent = samples
    raise AssertionError("the best placement was never timed")


@pytest.mark.medium
@pytest.mark.parametrize("drifts", [False, True], ids=["steady", "drifting"])
@pytest.mark.parametrize("noise", NOISES)
def test_early_stopping_keeps_the_true_best(noise, drifts):
    rng = np.random.default_rng(2)
    trials = 2000
    kept = sum(search_order_keeps_the_best(rng, NOISES[noise], drifts) for _ in range(trials))
    assert kept >= 0.99 * trials, f"{kept} of {trials}"


@pytest.mark.parametrize("noise", [name for name in NOISES if name != "none"])
def test_one_that_is_as_fast_is_stopped_no_oftener_than_the_rate(noise):
    # Without margin and drift, where the rule says exactly how often: 1 / C(13, 3) = 0.35 %.
    rng = np.random.default_rng(3)
    trials = 4000
    stopped = sum(
        stop_of(NOISES[noise](rng, STEPS).tolist(), NOISES[noise](rng, STEPS).tolist(), margin=0.0) < STEPS
        for _ in range(trials)
    )
    expected = trials / math.comb(13, 3)
    assert abs(stopped - expected) < 4 * math.sqrt(expected), (stopped, expected)


def test_clearly_slower_ones_are_stopped_after_three_steps():
    rng = np.random.default_rng(4)
    for noise, slower, share in [("lognormal", 1.5, 0.98), ("lognormal", 3.0, 1.0), ("uniform", 1.5, 1.0)]:
        stops = [
            stop_of((slower * NOISES[noise](rng, STEPS)).tolist(), NOISES[noise](rng, STEPS).tolist())
            for _ in range(1000)
        ]
        assert np.mean(np.array(stops) == 3) >= share, (noise, slower)


@pytest.mark.parametrize(
    ("samples", "incumbent", "options", "is_hopeless"),
    [
        ([], [1.0] * 10, {}, False),
        ([9.0] * 10, [], {}, False),
        # C(11, 1) = 11, C(12, 2) = 66 and C(13, 3) = 286: the first above 1 / 0.005 = 200.
        ([9.0], [1.0] * 10, {}, False),
        ([9.0] * 2, [1.0] * 10, {}, False),
        ([9.0] * 3, [1.0] * 10, {}, True),
        ([9.0] * 2, [1.0] * 10, {"false_stop_rate": 1 / 66}, True),
        # Of three steps only: C(11, 8) = 165, C(12, 9) = 220.
        ([9.0] * 8, [1.0] * 3, {}, False),
        ([9.0] * 9, [1.0] * 3, {}, True),
        # Each step is slower than the slowest by the margin.
        ([9.0, 9.0, 2.2], [1.0] * 9 + [2.0], {}, False),
        ([9.0, 9.0, 2.3], [1.0] * 9 + [2.0], {}, True),
        ([9.0, 9.0, 2.1], [1.0] * 9 + [2.0], {"margin": 0.0}, True),
    ],
)
def test_how_many_steps_of_what_length_it_takes_to_be_hopeless(samples, incumbent, options, is_hopeless):
    assert hopeless(samples, incumbent, **options) == is_hopeless
