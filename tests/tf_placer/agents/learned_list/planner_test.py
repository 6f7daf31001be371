"""The search over rules: what it tries first, that it gains, and that it goes on where it was."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.agents.learned_list.small_lists import CONFIG
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.learned_list.learned_list import LearnedList, RulePrior, learned_list_kind
from tf_placer.agents.weights import weights_bytes
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.search.search import search

PROBLEM = branches_problem(6, 5, num_devices=3)
SIMULATOR = SimulatedEvaluator(PROBLEM)


def times_s(rows: np.ndarray) -> np.ndarray:
    return SIMULATOR.evaluate(rows).runtime_s


def test_the_first_placement_is_by_the_prior_alone():
    planners = [LearnedList(PROBLEM, CONFIG, None, seed) for seed in (0, 1)]
    rows = [planner.propose() for planner in planners]
    np.testing.assert_array_equal(rows[0][0], rows[1][0])
    assert (rows[0] != rows[1]).any()
    np.testing.assert_array_equal(planners[0].propose(), rows[0])


def test_the_mean_of_what_is_drawn_becomes_faster():
    """And not because of luck: where times are told of other placements it does not."""
    first, last, shuffled_last = [], [], []
    for seed in range(6):
        for shuffled, ends in ((False, last), (True, shuffled_last)):
            planner = LearnedList(
                PROBLEM, dataclasses.replace(CONFIG, rules=16, spread=2.0), None, 100 + seed
            )
            order = np.random.default_rng(seed)
            for number in range(25):
                rows = planner.propose()
                found = times_s(rows)
                if number == 0 and not shuffled:
                    first.append(found.mean())
                planner.learn(rows, order.permutation(found) if shuffled else found)
            ends.append(times_s(planner.propose()).mean())
    assert np.mean(last) < 0.97 * np.mean(first)
    assert np.mean(last) < 0.97 * np.mean(shuffled_last)


def test_it_goes_on_in_another_process_as_it_would_have_here():
    one = LearnedList(PROBLEM, CONFIG, None, 5)
    for _ in range(3):
        rows = one.propose()
        one.learn(rows, times_s(rows))
    other = LearnedList(PROBLEM, CONFIG, None, 5)
    other.restore(one.state())
    np.testing.assert_array_equal(one.propose(), other.propose())


def test_weights_of_a_file_are_the_prior(tmp_path):
    prior = RulePrior()
    prior.mean.assign(-prior.mean)
    path = tmp_path / "rules.npz"
    path.write_bytes(weights_bytes(learned_list_kind(), prior, {}))
    by_file = LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights=str(path)), None, 0).propose()
    np.testing.assert_array_equal(by_file, LearnedList(PROBLEM, CONFIG, None, 0, prior).propose())
    assert (by_file[0] != LearnedList(PROBLEM, CONFIG, None, 0).propose()[0]).any()


def test_weights_that_ship_are_there_and_are_no_untaught_ones():
    shipped = LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights="shipped"), None, 0)
    assert (shipped.state()["mean"] != LearnedList(PROBLEM, CONFIG, None, 0).state()["mean"]).all()


@pytest.mark.parametrize("times_slower", [1, 1000])
def test_more_devices_and_slower_links_than_any_that_were_taught(times_slower):
    problem = branches_problem(20, 3, num_devices=12)
    links = tuple(
        dataclasses.replace(
            link, latency_ns=times_slower * link.latency_ns, bytes_per_s=link.bytes_per_s / times_slower
        )
        for link in problem.cluster.links
    )
    problem = dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, links=links))
    found = search(problem, "learned_list", budget_evaluations=64)
    single_s = search(problem, "single", budget_evaluations=100).runtime_s
    assert found.runtime_s <= (0.5 if times_slower == 1 else 1.0) * single_s


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "rules.npz"
    kind = dataclasses.replace(learned_list_kind(), versions={"rule": 0, "inputs": 1})
    path.write_bytes(weights_bytes(kind, RulePrior(), {}))
    with pytest.raises(InputError, match=r"rules\.npz was taught with version 0 of rule"):
        LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights=str(path)), None, 0)
    with pytest.raises(InputError, match="missing"):
        LearnedList(PROBLEM, dataclasses.replace(CONFIG, weights=str(tmp_path / "missing.npz")), None, 0)
