"""The search from coarse to fine loses no plan and finds optima; random keys have children."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.tf_placer.planners.chains import least_s, tell
from tests.tf_placer.problem.small_problems import (
    branches_optimum_ns,
    branches_problem,
    layered_problem,
    problem_of,
    random_problem,
    sparse_problem,
)
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import Groups, cut_by_plans, repeated_groups
from tf_placer.planners.cp_sat import CpSat, CpSatConfig
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.planners.local_search import cheap_starts
from tf_placer.planners.memetic import MemeticConfig, SimulatedMemetic, edit_weights
from tf_placer.planners.population import Brkga, BrkgaConfig, Cem, CemConfig, devices_of_keys, keys_of_devices
from tf_placer.problem.problem import Problem

# Every kind of turn within 700 evaluations: 40, 80, units 160, then groups 40 and units 320, then 80 and 640.
QUICK = MemeticConfig(chains=2, late=20, parts=4, finer=2, levels=2, turn=40, setback=0.05, draws=1)


CHOOSING = dataclasses.replace(QUICK, draws=4)
BOTH = pytest.mark.parametrize("config", [QUICK, CHOOSING], ids=["one drawn", "four drawn"])


def begun(problem: Problem, seed: int = 0, config: MemeticConfig = QUICK) -> SimulatedMemetic:
    return SimulatedMemetic(problem, config, problem.everything_on(0), seed, SimulatedEvaluator(problem))


@BOTH
def test_it_is_the_same_in_any_number_of_bursts(config):
    problem = branches_problem(4, 6)
    whole, parts = begun(problem, config=config), begun(problem, config=config)
    expected = whole.advance(700)
    for count in (1, 2, 5, 92, 300, 0, 300):
        found = parts.advance(count)
    np.testing.assert_array_equal(found.decisions.device_of_unit, expected.decisions.device_of_unit)
    np.testing.assert_array_equal(found.runtime_s, expected.runtime_s)


@BOTH
@pytest.mark.parametrize("evaluations", [3, 30, 100, 200, 400, 600])
def test_it_goes_on_from_its_state(evaluations, config):
    problem = branches_problem(4, 6)
    search, other = begun(problem, config=config), begun(problem, seed=0, config=config)
    search.advance(evaluations)
    other.restore(search.state())
    found, expected = other.advance(300), search.advance(300)
    np.testing.assert_array_equal(found.decisions.device_of_unit, expected.decisions.device_of_unit)
    np.testing.assert_array_equal(found.runtime_s, expected.runtime_s)


def test_of_several_starts_each_chain_begins_at_one_unless_it_is_much_slower():
    problem = sparse_problem(np.random.default_rng(1), 200, 4)
    fastest, slower = cheap_starts(problem, problem.everything_on(0), 0)[:2], problem.everything_on(1)
    simulator = SimulatedEvaluator(problem)
    for given in (fastest, np.stack([fastest[1], slower])):
        times_s = simulator.evaluate(given).runtime_s
        search = SimulatedMemetic(problem, QUICK, given, 0, simulator)
        search.advance(len(cheap_starts(problem, given, 0)))
        begun_at = search.state()["best"]
        near = given[np.argsort(times_s)][np.sort(times_s) <= times_s.min() / 0.8]
        np.testing.assert_array_equal(begun_at, np.resize(near, given.shape))


def turns_of(problem: Problem, search: SimulatedMemetic, evaluations: int) -> list[tuple[int, int, int]]:
    """(turn, evaluations in it, length of the history), one after the other; the last one is not complete."""
    search.advance(len(cheap_starts(problem, problem.everything_on(0), 0)))
    seen = []
    for _ in range(evaluations):
        search.advance(1)
        seen.append((search.state()["turn"], search.state()["chains_late_ns"].shape[1]))
    return [(turn, len(list(same)), late) for (turn, late), same in itertools.groupby(seen)]


def test_turns_after_units_that_gained_are_twice_as_long_and_remember_twice_as_much():
    problem = sparse_problem(np.random.default_rng(2), 200, 4)
    assert turns_of(problem, begun(problem), 40 + 80 + 160 + 40 + 320 + 80 + 640) == [
        (1, 40, 20), (2, 80, 20), (3, 160, 20), (4, 40, 20), (5, 320, 40), (6, 80, 40), (7, 640, 80)
    ]  # fmt: skip


def test_units_that_gain_nothing_are_not_searched_longer_but_from_another_start():
    # Coarse turns find the optimum.
    problem = branches_problem(4, 6)
    search = begun(problem)
    turns = turns_of(problem, search, 40 + 80 + 160 + 40 + 160 + 40 + 1)
    assert turns[-4:] == [(4, 40, 20), (5, 160, 20), (6, 40, 20), (7, 1, 20)]
    state = search.state()
    assert state["restarts"] == 2  # of one of two chains, in turns 5 and 7
    # The plans that it took the places of are kept.
    optimum_ns = branches_optimum_ns(4, 6)
    assert min(state["best_ns"].min(), state["start_ns"].min()) == optimum_ns
    assert state["best_ns"].max() > optimum_ns and (state["start_ns"] == optimum_ns).sum() >= 2
    # The history of the chain that stays begins 4 * 5 % above where it is: the setback was doubled twice.
    assert state["chains_late_ns"].min(axis=1).min() <= optimum_ns * 1.2


@pytest.mark.medium
def test_it_goes_on_however_long_nothing_is_gained():
    # Two units have four plans. A turn of units is a few evaluations, and each that gains nothing doubles the setback,
    # which is no number any more after 1,024 of them.
    config = MemeticConfig(chains=1, parts=2, finer=2, levels=1, turn=1, draws=1)
    search = begun(branches_problem(1, 2), config=config)
    search.advance(6_000)
    assert search.state()["stalls"] > 1024
    assert len(search.advance(100).runtime_s) > 0


@pytest.mark.parametrize("seed", [11, 14])
def test_it_does_not_freeze_on_a_few_units(seed):
    generator = np.random.default_rng(seed)
    problem = sparse_problem(generator, int(generator.integers(4, 31)), int(generator.integers(2, 5)))
    # Late acceptance alone stayed a fifth above it, however long it went on.
    assert begun(problem, seed, MemeticConfig(chains=2)).advance(20_000).runtime_s.min() == least_s(problem)


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_what_it_says_is_so_and_its_best_never_grows(seed, config):
    problem = random_problem(np.random.default_rng(seed), 20, 3)
    evaluator, search = SimulatedEvaluator(problem), begun(problem, seed, config)
    rows = cheap_starts(problem, problem.everything_on(0), seed)
    best_s = np.inf
    search.advance(len(rows))
    start_s = np.nanmin(evaluator.evaluate(rows).runtime_s)
    for _ in range(30):
        burst = search.advance(37)
        measured = evaluator.evaluate(burst.decisions.device_of_unit)
        assert (measured.status == 0).all()
        np.testing.assert_allclose(measured.runtime_s, burst.runtime_s, rtol=1e-12)
        assert burst.runtime_s.min() <= min(best_s, start_s)
        best_s = burst.runtime_s.min()


@BOTH
@pytest.mark.parametrize("seed", range(8))
def test_small_problems_end_within_three_percent_of_brute_force(seed, config):
    problem = random_problem(np.random.default_rng(seed), 9, 2)
    assert begun(problem, seed, config).advance(1500).runtime_s.min() <= 1.03 * least_s(problem)


@BOTH
def test_branches_end_up_spread_over_devices(config):
    problem = branches_problem(4, 6)
    assert begun(problem, config=config).advance(700).runtime_s.min() == branches_optimum_ns(4, 6) / 1e9


def test_the_network_decides_what_is_tried():
    problem = random_problem(np.random.default_rng(0), 20, 3)
    start, simulator = problem.everything_on(0), SimulatedEvaluator(problem)
    found = [
        SimulatedMemetic(problem, CHOOSING, start, 0, simulator, weights)
        .advance(700)
        .decisions.device_of_unit
        for weights in (None, edit_weights(), -edit_weights())
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


def two_branches_in_each_layer(layers: int = 300, length: int = 8) -> Problem:
    """Chains ``a`` and ``b`` beside each other in each of many layers; it is best to have all of ``b`` elsewhere."""
    names, edges = [], []
    for layer in range(layers):
        first = len(names)
        for branch in "ab":
            names += [f"layer_{layer}/{branch}{'xyzuvwst'[i]}" for i in range(length)]
        for start in (first, first + length):
            edges += [(op, op + 1) for op in range(start, start + length - 1)]
            if layer:
                edges += [(first - 1, start), (first - length - 1, start)]
    return problem_of([1000] * len(names), edges, edge_bytes=8, names=names)


def test_what_repeats_is_decided_first():
    problem = two_branches_in_each_layer()
    search = begun(problem, config=MemeticConfig(chains=2))
    starts = len(cheap_starts(problem, problem.everything_on(0), 0))
    search.advance(starts + 1)
    state = search.state()
    assert state["turn"] == 1
    expected = cut_by_plans(repeated_groups(problem), state["starts"][[int(state["start_ns"].argmin())] * 2])
    np.testing.assert_array_equal(state["unit"], Groups.of(problem, expected).group_of_unit)
    assert search.advance(500).runtime_s.min() < 1.1 * 300 * 8 * 1e-6
    few = begun(problem, config=MemeticConfig(chains=2, repeats=False))
    few.advance(starts + 1)
    assert few.state()["unit"].max() > 3 * state["unit"].max()


@pytest.mark.slow
def test_a_hundred_thousand_units_end_ahead_of_stripes():
    generator = np.random.default_rng(0)
    columns = generator.permutation(1000)
    problem = layered_problem(generator, columns, layers=100)
    stripes = np.empty(1000, np.int32)
    stripes[columns] = np.arange(1000) // 250
    simulator = SimulatedEvaluator(problem)
    stripes_s = simulator.evaluate(np.tile(stripes, 100)[np.newaxis]).runtime_s[0]
    draws = generator.integers(0, 4, (20, problem.num_units)).astype(np.int32)
    # Else anything would do: what is drawn is more than a tenth behind, and so is a list schedule.
    others = np.concatenate([draws, list_schedule(problem)])
    assert simulator.evaluate(others).runtime_s.min() > 1.1 * stripes_s
    assert begun(problem, config=MemeticConfig(chains=2)).advance(5_000).runtime_s.min() < stripes_s


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_larger_problems_end_within_three_percent_of_a_proven_optimum(seed):
    generator = np.random.default_rng(seed)
    problem = sparse_problem(generator, int(generator.integers(4, 31)), int(generator.integers(2, 5)))
    burst = begun(problem, seed, MemeticConfig(chains=2)).advance(20_000)
    first = int(np.argmin(burst.runtime_s))
    # The solver looks for faster plans than this, until it has proven a bound that is near enough.
    solver = CpSat(problem, CpSatConfig(), burst.decisions.device_of_unit[first], seed=0)
    tell(solver, burst.decisions.device_of_unit[first : first + 1], burst.runtime_s[first : first + 1])
    for _ in range(50):
        if solver.is_proven or burst.runtime_s[first] * 1e9 <= 1.03 * solver.proven_bound_ns:
            break
        rows = solver.ask(np.inf)
        runtime_s = SimulatedEvaluator(problem).evaluate(rows).runtime_s
        tell(solver, rows, np.where(np.isnan(runtime_s), np.inf, runtime_s))
    assert burst.runtime_s[first] * 1e9 <= 1.03 * solver.proven_bound_ns


def test_there_are_as_many_weights_as_the_network_has_and_nobody_changes_them():
    # 34 features, two layers of 16 with biases, and a score.
    assert edit_weights().shape == (34 * 16 + 16 + 16 * 16 + 16 + 16 + 1,)
    assert edit_weights().dtype == np.float32 and np.isfinite(edit_weights()).all()
    with pytest.raises(ValueError, match="read-only"):
        edit_weights()[0] = 1.0


def chain(allowed: np.ndarray | None = None) -> Problem:
    more = {} if allowed is None else {"allowed": allowed}
    return problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100, **more)


@pytest.mark.parametrize(("kind", "config"), [(Brkga, BrkgaConfig()), (Cem, CemConfig())])
def test_each_single_device_is_tried_first(kind, config):
    assert kind(chain(), config, None, 0).ask(np.inf)[:2].tolist() == [[0] * 8, [1] * 8]


def test_a_key_is_a_share_of_the_devices_that_are_allowed():
    allowed = np.ones((8, 2), bool)
    allowed[3, 0] = False
    planner = Brkga(chain(allowed), BrkgaConfig(population=10), None, seed=0)
    rows = planner.ask(np.inf)
    # Below a half the first of two devices; unit 3 has only the second one.
    expected = (planner._offered >= 0.5).astype(int)
    expected[:, 3] = 1
    np.testing.assert_array_equal(rows, expected)


def test_elites_live_on_and_are_not_tried_again():
    planner = Brkga(chain(), BrkgaConfig(population=10, elites=0.2, mutants=0.3), None, seed=0)
    tell(planner, planner.ask(np.inf), np.arange(10.0))
    keys = planner.state()["keys"]
    second = planner.ask(np.inf)
    assert len(second) == 8  # ten without two elites
    tell(planner, second, np.full(8, 5.0))
    np.testing.assert_array_equal(planner.state()["keys"][:2], keys[:2])
    assert planner.state()["times"].tolist() == [0.0, 1.0] + [5.0] * 8


def test_children_have_the_keys_of_their_parents():
    config = BrkgaConfig(population=10, elites=0.2, mutants=0.0, bias=1.0, mutation=0.0)
    planner = Brkga(chain(), config, None, seed=0)
    tell(planner, planner.ask(np.inf), np.arange(10.0))
    # All keys from an elite: all on device 0, or all on device 1.
    children = planner.ask(np.inf)
    assert len(children) == 8 and {tuple(row) for row in children.tolist()} == {(0,) * 8, (1,) * 8}


def test_elites_that_are_alike_go_on_with_finer_groups():
    planner = Brkga(chain(), BrkgaConfig(population=4, elites=0.25, parts=2, levels=2), None, seed=0)
    rows = planner.ask(np.inf)
    tell(planner, rows, [2.0, 1.0, 3.0, 4.0])  # one elite is like itself
    assert planner.state()["level"] == 1
    assert planner.ask(np.inf)[0].tolist() == rows[1].tolist()  # the best one is where the next level begins


def test_keys_in_the_middle_of_a_share_stand_for_its_device():
    allowed = np.array([[True, True, True], [False, True, True], [False, False, True]])
    devices = devices_of_keys(np.array([[0.0, 0.49, 0.0], [0.34, 0.5, 0.9], [0.99, 0.99, 0.5]]), allowed)
    np.testing.assert_array_equal(devices, [[0, 1, 2], [1, 2, 2], [2, 2, 2]])
    middle = np.stack([keys_of_devices(row, allowed) for row in devices])
    np.testing.assert_array_equal(devices_of_keys(middle, allowed), devices)
    # Group 1 may not be on device 0: its first one is device 1, the lower half of its keys.
    np.testing.assert_allclose(keys_of_devices(np.array([0, 0, 0]), allowed), [1 / 6, 1 / 4, 1 / 2])


def test_the_table_moves_to_the_frequencies_of_the_elites():
    planner = Cem(chain(), CemConfig(samples=10, elites=0.2, smoothing=0.5), None, seed=0)
    rows = planner.ask(np.inf)
    tell(planner, rows, np.arange(10.0)[::-1])
    # Of ten the last two are the elites; (1 - 0.5) * 0.5 + 0.5 * their share.
    np.testing.assert_allclose(planner.state()["probability"][:, 1], 0.25 + 0.5 * rows[-2:].mean(axis=0))
    assert planner.state()["best"].tolist() == rows[-1].tolist()


def test_what_does_not_run_is_no_elite():
    planner = Cem(chain(), CemConfig(samples=10, elites=0.5, smoothing=0.9), None, seed=0)
    rows = planner.ask(np.inf)
    tell(planner, rows, np.where(np.arange(10) == 3, 1.0, np.inf))
    # The only elite, and 0.1 of what the table was.
    np.testing.assert_allclose(planner.state()["probability"][:, 1], 0.05 + 0.9 * rows[3])
    before = Cem(chain(), CemConfig(samples=10), None, seed=0)
    tell(before, before.ask(np.inf), np.full(10, np.inf))
    assert (before.state()["probability"] == 0.5).all()


def test_a_table_that_has_converged_goes_on_with_finer_groups():
    planner = Cem(chain(), CemConfig(samples=2, elites=0.5, smoothing=1.0, parts=2, levels=2), None, seed=0)
    tell(planner, planner.ask(np.inf), [2.0, 1.0])  # one elite: the table says it and nothing else
    state = planner.state()
    # Uniform, and 0.7 of the way to the best plan: 0.3 * 0.5 + 0.7.
    assert state["level"] == 1 and state["probability"].shape == (4, 2)
    np.testing.assert_allclose(state["probability"][:, 1], 0.85)
