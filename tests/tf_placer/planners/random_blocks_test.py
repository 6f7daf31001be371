"""Random block placements: legal, of every granularity, a matter of the seed."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import full_problem, loads
from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.plain import RandomBlocks


@pytest.mark.parametrize("seed", range(5))
def test_every_draw_is_legal(seed):
    problem = random_problem(np.random.default_rng(seed), 15, 3)
    for device_of_unit in RandomBlocks(problem, seed).draw(50):
        problem.check_legal(device_of_unit)


def test_granularity_goes_from_one_block_to_single_units():
    units = 40
    problem = problem_of([1] * units, [(i, i + 1) for i in range(units - 1)], cluster=small_cluster(4))
    draws = RandomBlocks(problem, seed=0).draw(400)
    # On a chain the breadth-first order is the chain, so changes along it count the cuts.
    changes = (np.diff(draws, axis=1) != 0).sum(axis=1)
    assert (changes == 0).any() and (changes >= units // 2).any()
    used = {frozenset(row.tolist()) for row in draws}
    assert {frozenset({d}) for d in range(4)} <= used and frozenset(range(4)) in used


def test_draws_are_a_matter_of_the_seed():
    problem = random_problem(np.random.default_rng(0), 15, 3)
    first, again, other = (RandomBlocks(problem, seed).draw(20) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_one_unit():
    draws = RandomBlocks(problem_of([1], []), seed=0).draw(30)
    assert draws.shape == (30, 1) and set(draws[:, 0].tolist()) == {0, 1}


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("fill", [0.6, 0.75, 0.9])
def test_draws_fit_where_memory_is_full(devices, fill):
    for seed in range(5):
        problem = full_problem(devices, fill, seed)
        draws = RandomBlocks(problem, seed).draw(30)
        assert all((loads(problem, row) <= problem.cluster.capacity_bytes()).all() for row in draws)
        # Nor does what is sent and computed, which nobody had counted, make all of them too large.
        fits = SimulatedEvaluator(problem).evaluate(draws).status == Status.OK
        assert fits.mean() > 0.25, f"seed {seed}: {fits.mean():.0%}"
        assert len({row.tobytes() for row in draws[fits]}) > 5, "and they are different ones"


def test_what_fits_as_drawn_is_left_as_drawn():
    problem = problem_of([1] * 20, [(i, i + 1) for i in range(19)], 1, cluster=small_cluster(3))
    full = dataclasses.replace(problem, resident_bytes=np.full(20, 1))
    np.testing.assert_array_equal(RandomBlocks(problem, 3).draw(30), RandomBlocks(full, 3).draw(30))
