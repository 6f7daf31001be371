"""The program that links are fitted to crosses seldom in some placements and often in others."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import altered, small_cluster
from tf_placer.calibration.refit import Correction, Traffic, refit, traffic_item, traffic_placements
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.unit_graph import crossings


@pytest.fixture(scope="module")
def problem():
    links = {"latency_ns": 20_000, "send_ns": 90_000, "receive_ns": 90_000, "send_ps_per_byte": 300}
    links |= {"receive_ps_per_byte": 300}
    return analytic_problem(traffic_item(), altered(small_cluster(), links=links))


@pytest.mark.medium
def test_placements_cover_few_crossings_and_many(problem):
    rows = traffic_placements(problem)
    counts = [len(crossings(problem, row)) for row in rows]
    assert 0 == min(counts) < sorted(counts)[1] < 120 < 500 < max(counts)
    assert len({row.tobytes() for row in rows}) == len(rows)


@pytest.mark.medium
def test_scalars_are_among_what_crosses_and_not_most_of_it(problem):
    shares = []
    for row in traffic_placements(problem):
        num_bytes = np.array([crossing.num_bytes for crossing in crossings(problem, row)])
        if len(num_bytes):
            shares.append((num_bytes <= 8).mean())
    assert np.median(shares) < 0.3 < max(shares) < 0.6


@pytest.mark.medium
def test_in_some_placements_every_message_is_waited_for(problem):
    slow = altered(problem, links={"latency_ns": lambda latency_ns: latency_ns + 10_000})
    rows = traffic_placements(problem)
    before_s, after_s = (SimulatedEvaluator(one).evaluate(rows).runtime_s for one in (problem, slow))
    waited = [round((late - soon) / 10e-6) for soon, late in zip(before_s, after_s, strict=True)]
    counts = [len(crossings(problem, row)) for row in rows]
    of_all = [wait / count for wait, count in zip(waited, counts, strict=True) if count]
    assert max(of_all) > 0.9
    assert sum(share > 0.5 for share in of_all) >= 3


@pytest.mark.medium
def test_its_placements_tell_what_crossing_costs(problem):
    truth = Correction(alone=2.0, ends=0.6, per_byte=1.3)
    rows = traffic_placements(problem)
    measured_s = SimulatedEvaluator(truth.apply(problem)).evaluate(rows).runtime_s
    found = refit(problem, rows, measured_s * np.random.default_rng(0).lognormal(0, 0.02, len(rows)))
    assert found.alone == pytest.approx(2.0, rel=0.1)
    assert found.ends == pytest.approx(0.6, rel=0.2)
    assert found.per_byte == pytest.approx(1.3, rel=0.25)


def test_the_error_is_the_median_of_the_corrected_times():
    traffic = Traffic(Correction(), (1.0, 1.0, 2.0), (2.0, 2.0, 2.0), (1.1, 0.8, 2.0))
    assert traffic.error == pytest.approx(0.1)
