"""A policy places what it has never seen, without asking for a time."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.agents.go.small_go import OF_UNITS, SMALL, WIDE
from tf_placer.agents.go.policy import GoPolicy
from tf_placer.agents.go.zero_shot import zero_shot


@pytest.fixture(scope="module")
def policy():
    return GoPolicy(dataclasses.replace(OF_UNITS, keep_probability=0.999999), seed=5)


def test_any_problem_is_placed_the_same_each_time(policy):
    for problem in (SMALL, WIDE):
        row = zero_shot(policy, problem)
        problem.check_legal(row)
        assert row.dtype == np.int32
        np.testing.assert_array_equal(zero_shot(policy, problem), row)


def test_a_plan_is_seen(policy):
    # A policy that leaves nearly everything where it is leaves the plan as it is.
    plan = np.array([4, 3, 2, 1, 0, 1, 2, 3, 4, 0, 1], np.int32)
    np.testing.assert_array_equal(zero_shot(policy, WIDE, plan), plan)
    np.testing.assert_array_equal(zero_shot(policy, WIDE, plan, passes=3), plan)
