"""Factors that were put in are found again."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.calibration.refit import Correction, refit
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.plain import RandomBlocks


@pytest.fixture(scope="module")
def problem():
    problem = branches_problem(4, 6)
    links = tuple(
        dataclasses.replace(
            link, latency_ns=200, send_ns=100, receive_ns=100, send_ps_per_byte=50, receive_ps_per_byte=50
        )
        for link in problem.cluster.links
    )
    return dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, links=links))


def simulated_s(problem, placements):
    return SimulatedEvaluator(problem).evaluate(placements).runtime_s


def test_a_correction_scales_what_it_says(problem):
    corrected = Correction(compute=2.0, alone=3.0, ends=0.5, per_byte=5.0).apply(problem)
    np.testing.assert_array_equal(corrected.compute_ns, 2 * problem.compute_ns)
    link = corrected.cluster.links[0]
    assert (link.latency_ns, link.send_ns, link.receive_ns) == (3 * 400 - 2 * 150, 150, 150)
    assert (link.send_ps_per_byte, link.receive_ps_per_byte) == (250, 250)
    assert link.bytes_per_s == problem.cluster.links[0].bytes_per_s


def test_what_the_ends_are_spared_a_tensor_is_longer_on_its_way(problem):
    link = problem.cluster.links[0]
    corrected = Correction(ends=0.25).apply_to_cluster(problem.cluster).links[0]
    assert (corrected.send_ns, corrected.receive_ns) == (25, 25)
    alone_ns = [one.send_ns + one.latency_ns + one.receive_ns for one in (link, corrected)]
    assert alone_ns == [400, 400]


def test_a_correction_scales_what_joining_takes(problem):
    devices = tuple(
        dataclasses.replace(device, join_ns=500 * d) for d, device in enumerate(problem.cluster.devices)
    )
    cluster = dataclasses.replace(problem.cluster, devices=devices)
    assert Correction(join=1.5).apply_to_cluster(cluster).join_ns().tolist() == [0, 750]


def test_a_simulator_that_was_off_is_nearer_on_placements_it_has_not_seen(problem):
    truth = Correction(compute=1.2, alone=1.7, ends=1.2, per_byte=1.0).apply(problem)
    placements = RandomBlocks(problem, 0).draw(40)
    measured_s = simulated_s(truth, placements)
    found = refit(problem, placements[:20], measured_s[:20])
    before = np.abs(np.log(simulated_s(problem, placements[20:]) / measured_s[20:]))
    after = np.abs(np.log(simulated_s(found.apply(problem), placements[20:]) / measured_s[20:]))
    assert np.median(before) > 0.15
    assert after.max() < 0.05
    assert found.compute == pytest.approx(1.2, rel=0.05)


def test_one_measurement_moves_the_factors_little(problem):
    single = np.zeros((1, problem.num_units), int)
    found = refit(problem, single, simulated_s(problem, single) * 1.05)
    assert 1.0 < found.compute < 1.06
    assert found.ends == pytest.approx(1.0, abs=0.02)
