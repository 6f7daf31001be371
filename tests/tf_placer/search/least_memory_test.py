"""The least memory within a slow-down: both plans are told, the limit holds, and the bound is below."""

from __future__ import annotations

import numpy as np
import pytest

import tf_placer
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import fullest_share
from tf_placer.problem.bounds import least_share


def eight_towers() -> tf_placer.Problem:
    """8 ops that need not wait for each other, 1000 ns and 100 resident bytes each, on two devices of 1000 bytes.

    A crossing costs nothing here, so any split is as good for memory as any other; the second device is slower by half.
    """
    compute_ns = np.repeat([[1000, 1500]], 8, axis=0)
    cluster = small_cluster(2, memory_bytes=1000)
    return problem_of(compute_ns, np.zeros((0, 2), int), cluster=cluster, resident_bytes=100)


def test_the_peak_falls_within_the_slow_down():
    # Fastest: 5 and 3 ops, 5000 ns. With 4 and 4 the step takes 6000 ns, 20 % longer, and the peak is 400 of 1000.
    problem = eight_towers()
    result = tf_placer.search(problem, budget_evaluations=400, objective="memory", slow_down=0.25)
    found = result.least_memory
    assert found is not None
    assert found.fastest.runtime_s == 5e-6
    assert (result.runtime_s, found.share) == (6e-6, 0.4)
    assert sorted(result.peak_bytes.values()) == [400, 400]
    assert found.bound_share == 0.4  # 800 bytes on 2000


def test_a_slow_down_that_is_too_small_keeps_the_fastest():
    result = tf_placer.search(eight_towers(), budget_evaluations=400, objective="memory", slow_down=0.1)
    found = result.least_memory
    assert found is not None
    assert (result.runtime_s, found.share) == (5e-6, 0.5)
    assert found.fastest.peak_bytes == result.peak_bytes


def test_equal_seeds_give_equal_plans_and_the_budget_holds():
    results = [
        tf_placer.search(eight_towers(), budget_evaluations=100, seed=3, objective="memory") for _ in range(2)
    ]
    assert np.array_equal(*(result.placement.device_of_unit for result in results))
    assert results[0].evaluations == results[1].evaluations


@pytest.mark.parametrize("more", [{"start": np.zeros(8, int)}, {"checkpoint": "folder"}])
def test_what_it_does_not_take_is_refused(more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"{next(iter(more))} is given with objective"):
        tf_placer.search(eight_towers(), budget_evaluations=9, objective="memory", **more)


def test_the_bound_is_below_every_plan_in_time():
    random = np.random.default_rng(0)
    cluster = tf_placer.Cluster.preset("k40x2")
    assert cluster.accelerators().tolist() == [True, True, False]
    for _ in range(20):
        resident = random.integers(0, 2**30, 5)
        problem = problem_of(
            random.integers(1, 10**6, (5, 3)),
            [[0, 1], [0, 2], [1, 3], [2, 4]],
            edge_bytes=random.integers(0, 2**28, 4),
            cluster=cluster,
            resident_bytes=resident,
        )
        every = np.array(np.meshgrid(*[range(3)] * 5)).reshape(5, -1).T.astype(np.int32)  # 3^5 plans
        measured = tf_placer.SimulatedEvaluator(problem).evaluate(every)
        shares = fullest_share(cluster, measured.peak_bytes)
        for limit_s in np.quantile(measured.runtime_s, [0.0, 0.2, 1.0]):
            in_time = measured.runtime_s <= limit_s
            assert least_share(problem, float(limit_s)) <= shares[in_time].min() + 1e-12


def test_the_bound_counts_what_the_host_has_no_time_for():
    # 10 GB on a GPU of about 11.4: the host, where it would take a second, holds it only where that is in time.
    cluster = tf_placer.Cluster.preset("k40x2")
    problem = problem_of([[1000, 1000, 10**12]], [], cluster=cluster, resident_bytes=10**10)
    assert least_share(problem, 2e-6) == pytest.approx(10**10 / cluster.devices[0].memory_bytes)
    assert least_share(problem) == 0.0
