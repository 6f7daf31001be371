"""Robust plans beside plans by the estimates, on a small program."""

from tests.experiments.without_flags import loaded
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.problem.placement import Decisions


def test_a_small_program_is_compared():
    experiment, _ = loaded("robust_plans")
    compared = experiment.compared
    found = compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)
    assert min(found.step_s) > 0 and min(found.worst_gain) > 0 and 0 <= found.faster <= 1
    assert found == compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)


def test_plans_under_draws_that_no_search_knows():
    experiment, _ = loaded("robust_plans")
    # A message that takes about as long as it gains.
    dear = problem_of([10**6] * 3, [(0, 2), (1, 2)], 10**6)
    step_ns = experiment.drawn_step_ns(dear, Decisions([[0, 1, 0], [0, 0, 0]]), 100, 0)
    assert 20 < (step_ns[:, 0] < step_ns[:, 1]).sum() < 80
