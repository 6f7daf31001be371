"""Placements by rules: legal, within memory, alike on devices that are alike."""

import dataclasses

import numpy as np

from tests.tf_placer.agents.learned_list.small_lists import CONFIG
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.agents.learned_list.learned_list import ListPlacer, RulePrior, Rules


def drawn(seed: int, spread: float = 1.0) -> np.ndarray:
    prior = RulePrior()
    return Rules(prior.mean.numpy(), spread * prior.spread, CONFIG).draw(np.random.default_rng(seed))


def test_placements_are_legal_whatever_the_rule():
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed), units=12, num_devices=3)
        rows = ListPlacer(problem, CONFIG)(drawn(seed, spread=10.0))
        assert rows.shape == (CONFIG.rules, problem.num_units) and rows.dtype == np.int32
        assert problem.allowed[np.arange(problem.num_units), rows].all(), seed


def test_what_a_device_cannot_hold_goes_elsewhere():
    cluster = small_cluster(2, memory_bytes=100)
    problem = problem_of(
        [1] * 4, [(0, 1), (1, 2), (2, 3)], [1, 1, 1], cluster=cluster, resident_bytes=[40] * 4
    )
    for row in ListPlacer(problem, CONFIG)(drawn(0)):
        held = np.bincount(row, problem.resident_bytes, 2)
        assert (held <= 100).all()


def test_a_wider_machine_is_placed_by_the_same_rules():
    rules = drawn(0)
    for devices in (2, 5, 8):
        rows = ListPlacer(branches_problem(4, 3, num_devices=devices), CONFIG)(rules)
        assert rows.max() < devices


def test_devices_that_are_alike_are_treated_alike():
    """Where the second device is the first one, and the first one the second, a plan is the same but for its names."""
    problem = branches_problem(4, 3)
    assert (problem.compute_ns[:, 0] == problem.compute_ns[:, 1]).all()
    inputs_rows = ListPlacer(problem, CONFIG)(drawn(3))
    swapped = dataclasses.replace(problem, compute_ns=problem.compute_ns[:, ::-1].copy())
    np.testing.assert_array_equal(ListPlacer(swapped, CONFIG)(drawn(3)), inputs_rows)
