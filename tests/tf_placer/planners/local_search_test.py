"""Local search proposes legal moves and finds what branches hide; in C++ it decides as in Python."""

import dataclasses

import numpy as np
import pytest

from tests.oracles.local_search import PythonLocalSearch, RandomBits
from tests.tf_placer.planners.chains import drawn_problem, legal_start, tell
from tests.tf_placer.problem.small_problems import altered, branches_problem, problem_of, small_cluster
from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import AnyOrderEvaluator, SimulatedEvaluator
from tf_placer.ops.simulator import simulate
from tf_placer.planners.local_search import LocalSearch, LocalSearchConfig, SimulatedLocalSearch, move_tables
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.transform.split.plans import copies_of_units, data_parallel_plan
from tf_placer.transform.split.split_batch import split_program

CONFIG = LocalSearchConfig()


def begun(problem, start, config=CONFIG):
    """A search that has learned how its start fares."""
    climber = LocalSearch(problem, config, start, seed=0)
    tell(climber, climber.ask(np.inf), np.array([2.0]))
    return climber


def proposals(climber, count):
    return np.concatenate([climber.ask(np.inf) for _ in range(count)])


def test_every_proposal_is_one_connected_legal_move():
    problem = branches_problem(3, 5, num_devices=3)
    allowed = problem.allowed.copy()
    allowed[4, 1:] = False
    problem = dataclasses.replace(problem, allowed=allowed)
    climber = LocalSearch(problem, CONFIG, np.zeros(problem.num_units, np.int32), seed=0)
    assert (climber.ask(np.inf) == 0).all(), "first the start"
    tell(climber, climber.ask(np.inf), np.array([1.0]))
    rows = proposals(climber, 200)
    assert rows.dtype == np.int32
    assert (rows[:, 4] == 0).all()
    targets = [set(row[row > 0]) for row in rows]
    assert max(map(len, targets)) == 1, "a move has one target"
    assert {t for target in targets for t in target} == {1, 2}
    sizes = (rows > 0).sum(axis=1)
    assert sizes.max() >= 3
    assert (sizes == 1).any()


def test_some_proposals_exchange_pieces_of_like_size():
    problem = branches_problem(4, 6)
    start = np.repeat([0, 1], problem.num_units // 2 + 1)[: problem.num_units].astype(np.int32)
    moves = proposals(begun(problem, start), 400) - start
    there, back = (moves > 0).sum(axis=1), (moves < 0).sum(axis=1)
    exchanged = (there > 0) & (back > 0)
    assert 0.2 < exchanged.mean() < 0.4
    assert (there[exchanged] == back[exchanged]).mean() > 0.5, "a piece is smaller where it reaches a border"


def test_pieces_of_one_kind_leave_what_others_wait_for():
    # A chain of four takes the step's 40 ns; nothing waits for the three units that read its first three.
    chain = [(0, 1), (1, 2), (2, 3)]
    problem = problem_of([10] * 4 + [5] * 3, chain + [(i, 4 + i) for i in range(3)], edge_bytes=100)
    config = LocalSearchConfig(one_kind=1.0, largest_piece=1.0, swaps=0.0)
    tables = move_tables(problem, config)
    # 40 - (10 + 5), 40 - (20 + 5) and 40 - (30 + 5) ns of slack, all above 40 / 20.
    assert tables.kind_of_unit.tolist() == [0, 0, 0, 0, 1, 1, 1]
    kinds = [set(tables.kind_of_unit[row > 0]) for row in proposals(begun(problem, np.zeros(7), config), 60)]
    assert all(len(kind) == 1 for kind in kinds) and {0} in kinds and {1} in kinds


@pytest.mark.parametrize("together", [0.0, 1.0])
def test_copies_go_along_together_or_as_far_apart_as_they_are(together):
    split = split_program(workloads.build("dense_small"), 2)
    problem = analytic_problem(split.item, Cluster.preset("p100x2"))
    gpus = [d for d, device in enumerate(problem.cluster.devices) if device.type == "GPU"]
    start = data_parallel_plan(problem, gpus)
    climber = begun(problem, start, dataclasses.replace(CONFIG, copies=1.0, together=together))
    part, copies = copies_of_units(problem)
    pairs = np.array([(u, copies[u, 1]) for u in np.flatnonzero(part == 0) if copies[u, 1] >= 0])
    changed = 0
    for row in proposals(climber, 100):
        for first, second in row[pairs[(row[pairs] != start[pairs]).all(axis=1)]]:
            changed += 1
            if first in gpus:
                assert (first == second) == bool(together) and second in gpus
            else:
                assert first == second
    assert changed > 5


def test_it_goes_to_what_is_no_slower_than_before():
    problem = branches_problem(2, 3)
    climber = begun(problem, np.zeros(problem.num_units, np.int32))
    rows = proposals(climber, 3)
    tell(climber, rows, np.array([2.5, np.inf, 2.1]))
    assert (climber.device_of_unit == 0).all()
    tell(climber, rows, np.array([2.0, 1.5, 1.9]))
    np.testing.assert_array_equal(climber.device_of_unit, rows[1])
    assert climber.runtime_s == 1.5


def test_it_goes_through_slower_placements_only_as_long_as_it_was_there_before():
    problem = branches_problem(2, 3)
    climber = begun(problem, np.zeros(problem.num_units, np.int32))
    fast, slow = proposals(climber, 2)
    tell(climber, fast[np.newaxis], np.array([1.5]))
    tell(climber, slow[np.newaxis], np.array([1.9]))
    np.testing.assert_array_equal(climber.device_of_unit, slow)
    for _ in range(4 * CONFIG.late):
        tell(climber, fast[np.newaxis], np.array([1.5]))
    tell(climber, slow[np.newaxis], np.array([1.9]))
    np.testing.assert_array_equal(climber.device_of_unit, fast)


def test_one_device_leaves_nothing_to_move():
    problem = problem_of([[5], [5]], [(0, 1)], cluster=branches_problem(1, 1, num_devices=1).cluster)
    assert (proposals(begun(problem, np.zeros(2)), 3) == 0).all()


def test_random_numbers_are_those_of_splitmix64():
    # The first three of state 1234567, as published with the generator's reference code.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    random = RandomBits(1234567)
    assert [random.next() for _ in range(3)] == published
    assert {RandomBits(state).below(3) for state in range(50)} == {0, 1, 2}


ROUNDS = 150


def python_walk(problem, config, start, seed, chain, simulator, rounds):
    """(search, best runtime in ns, best placement) after as many rounds of the Python search.

    It is told whole nanoseconds, summed over the orders, so that none is lost.
    """
    climber = PythonLocalSearch(problem, config, start, seed, chain)
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
        np.testing.assert_array_equal(burst.decisions.device_of_unit[chain], fastest)
        assert burst.runtime_s[chain] == pytest.approx(best / 1e9 / len(simulator.orders), rel=1e-15)
    return state


@pytest.mark.parametrize("seed", range(4))
def test_one_move_at_a_time_is_drawn_as_in_python(seed):
    """Whatever fits and whatever it takes: the times that both are told are random, and memory is short."""
    rng = np.random.default_rng(300 + seed)
    problem = drawn_problem(rng, memory=True)
    start, config = legal_start(problem, rng), LocalSearchConfig(late=5, largest_piece=float(rng.random()))
    ours, oracle = (kind(problem, config, start, seed) for kind in (LocalSearch, PythonLocalSearch))
    for _ in range(60):
        rows, runtime_s = ours.ask(np.inf), rng.random(1)
        np.testing.assert_array_equal(rows, oracle.ask(np.inf))
        for climber in (ours, oracle):
            tell(climber, rows, runtime_s)
    assert ours.state()["random_bits"] == oracle.state()["random_bits"]


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
    assert (SimulatedEvaluator(problem).evaluate(state["best_device_of_unit"]).status == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_it_takes_the_mean_of_several_orders_as_python_does(seed):
    rng = np.random.default_rng(200 + seed)
    problem = drawn_problem(rng)
    problem = altered(problem, {"newest_first": True})
    simulator = AnyOrderEvaluator(problem)
    assert len(simulator.orders) == 3
    check_equal(problem, LocalSearchConfig(chains=2, late=5), legal_start(problem, rng), seed, simulator, 60)


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
    np.testing.assert_array_equal(burst.decisions.device_of_unit, whole.decisions.device_of_unit)
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
    assert found.runtime_s.tolist() == [20e-9] and sorted(found.decisions.device_of_unit[0]) == [0, 1]
