"""Local search in C++ makes the very decisions of the one in Python, in any number of bursts."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.planners.chains import drawn_problem, legal_start, tell
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import AnyOrderEvaluator, SimulatedEvaluator
from tf_placer.ops.simulator import simulate
from tf_placer.planners.local_search import LocalSearch, LocalSearchConfig, SimulatedLocalSearch
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.transform.split.split_batch import split_program

ROUNDS = 150


def python_walk(problem, config, start, seed, chain, simulator, rounds):
    """(search, best runtime in ns, best placement) after as many rounds of the Python search.

    It is told whole nanoseconds, summed over the orders, so that none is lost.
    """
    climber = LocalSearch(problem, config, start, seed, chain)
    best, fastest = np.inf, start
    capacity = problem.cluster.capacity_bytes()
    for _ in range(rounds):
        row = climber.ask(np.inf)
        costs = [simulate(order, row) for order in simulator.orders]
        fits = all((cost.peak_bytes.numpy() <= capacity).all() for cost in costs)
        total = float(sum(int(cost.runtime_ns[0]) for cost in costs)) if fits else np.inf
        tell(climber, row, np.array([total]))
        if climber.runtime_s < best:
            best, fastest = climber.runtime_s, climber.device_of_unit
    return climber, best, fastest


def check_equal(problem, config, start, seed, simulator, rounds=ROUNDS):
    """Every chain of the C++ against the Python search alone."""
    search = SimulatedLocalSearch(problem, config, start, seed, simulator)
    burst = search.advance(rounds * config.chains)
    state = search.state()
    for chain in range(config.chains):
        climber, best, fastest = python_walk(problem, config, start, seed, chain, simulator, rounds)
        np.testing.assert_array_equal(state["device_of_unit"][chain], climber.device_of_unit)
        late = np.where(state["late_ns"][chain] == 2**63 - 1, np.inf, state["late_ns"][chain])
        np.testing.assert_array_equal(late, climber.state()["late_s"])
        assert int(state["counts"][chain, 3]) % 2**64 == climber.state()["random_bits"]
        assert state["counts"][chain, 2] == rounds
        np.testing.assert_array_equal(burst.device_of_unit[chain], fastest)
        assert burst.runtime_s[chain] == pytest.approx(best / 1e9 / len(simulator.orders), rel=1e-15)
    return state


@pytest.mark.parametrize("seed", range(6))
def test_it_decides_as_python_does(seed):
    rng = np.random.default_rng(seed)
    problem = drawn_problem(rng)
    config = LocalSearchConfig(chains=2, late=int(rng.integers(1, 9)), largest_piece=float(rng.random()))
    check_equal(problem, config, legal_start(problem, rng), seed, SimulatedEvaluator(problem))


@pytest.mark.parametrize("parts, cluster", [(2, "p100x2"), (4, "k40x4")])
def test_copies_go_along_as_in_python(parts, cluster):
    item = split_program(workloads.build("dense_small"), parts).item
    problem = analytic_problem(item, Cluster.preset(cluster))
    config = LocalSearchConfig(chains=1, late=5, copies=0.8)
    check_equal(problem, config, problem.everything_on(0), parts, SimulatedEvaluator(problem), 60)


@pytest.mark.parametrize("seed", range(6))
def test_it_keeps_within_memory_as_python_does(seed):
    rng = np.random.default_rng(100 + seed)
    problem = drawn_problem(rng, memory=True)
    config = LocalSearchConfig(chains=1, late=5)
    state = check_equal(problem, config, legal_start(problem, rng), seed, SimulatedEvaluator(problem))
    best = state["best_device_of_unit"]
    assert (SimulatedEvaluator(problem).evaluate(best).status == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_it_takes_the_mean_of_several_orders_as_python_does(seed):
    rng = np.random.default_rng(200 + seed)
    problem = drawn_problem(rng)
    devices = tuple(dataclasses.replace(d, newest_first=True) for d in problem.cluster.devices)
    problem = dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, devices=devices))
    simulator = AnyOrderEvaluator(problem)
    assert len(simulator.orders) == 3
    check_equal(problem, LocalSearchConfig(chains=2, late=5), legal_start(problem, rng), seed, simulator, 60)


def test_chains_differ_and_each_is_the_same_alone():
    problem = branches_problem(4, 6)
    start, simulator = np.zeros(problem.num_units, np.int32), SimulatedEvaluator(problem)
    three = SimulatedLocalSearch(problem, LocalSearchConfig(chains=3), start, 5, simulator)
    one = SimulatedLocalSearch(problem, LocalSearchConfig(chains=1), start, 5, simulator)
    three.advance(3 * ROUNDS)
    one.advance(ROUNDS)
    states = three.state()["counts"][:, 3]
    assert len(set(states)) == 3 and states[0] == one.state()["counts"][0, 3]
    np.testing.assert_array_equal(three.state()["late_ns"][0], one.state()["late_ns"][0])


def test_many_bursts_are_one_long_burst_also_in_another_process():
    problem = branches_problem(4, 6)
    start, simulator = np.zeros(problem.num_units, np.int32), SimulatedEvaluator(problem)
    config = LocalSearchConfig(chains=2)
    long = SimulatedLocalSearch(problem, config, start, 1, simulator)
    short = SimulatedLocalSearch(problem, config, start, 1, simulator)
    whole = long.advance(10 * 31)
    for _ in range(10):
        burst = short.advance(31)  # an odd number for two chains
        assert burst.evaluations == 31
        saved = short.state()
        short = SimulatedLocalSearch(problem, config, start, 9, simulator)
        short.restore(saved)
    np.testing.assert_array_equal(burst.device_of_unit, whole.device_of_unit)
    np.testing.assert_array_equal(burst.runtime_s, whole.runtime_s)
    for name, value in long.state().items():
        np.testing.assert_array_equal(short.state()[name], value)


def test_what_nothing_fits_is_searched_on():
    # Each unit keeps 10 bytes, a device holds 19: of all placements only one unit on each device fits.
    problem = problem_of([5, 5], [(0, 1)], resident_bytes=10, cluster=small_cluster(2, memory_bytes=19))
    search = SimulatedLocalSearch(
        problem, LocalSearchConfig(chains=1), np.zeros(2), 0, SimulatedEvaluator(problem)
    )
    assert search.advance(1).runtime_s.tolist() == [np.inf]
    # 5, a message of no bytes (10), 5.
    found = search.advance(50)
    assert found.runtime_s.tolist() == [20e-9] and sorted(found.device_of_unit[0]) == [0, 1]


def test_one_device_leaves_nothing_to_move():
    problem = problem_of([5, 5], [(0, 1)], cluster=small_cluster(1))
    found = SimulatedLocalSearch(
        problem, LocalSearchConfig(chains=2), np.zeros(2), 0, SimulatedEvaluator(problem)
    ).advance(20)
    assert (found.device_of_unit == 0).all() and found.runtime_s.tolist() == [10e-9] * 2
