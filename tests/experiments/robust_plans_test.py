"""Robust plans beside plans by the estimates, on a small program."""

from tests.experiments.without_flags import loaded


def test_a_small_program_is_compared():
    experiment, _ = loaded("robust_plans")
    compared = experiment.compared
    found = compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)
    assert min(found.step_s) > 0 and min(found.worst_gain) > 0 and 0 <= found.faster <= 1
    assert found == compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)
