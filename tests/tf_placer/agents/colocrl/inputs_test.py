"""Where ColocRL begins."""

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.groups import colocated_groups
from tf_placer.agents.colocrl.inputs import colocrl_inputs, start_of
from tf_placer.agents.learner import Beginning

CONFIG = ColocRlConfig(largest_share=0.3, max_groups=12)


@pytest.fixture(scope="module")
def problem():
    return branches_problem(4, 4)


@pytest.fixture(scope="module")
def groups(problem):
    return colocated_groups(problem, CONFIG)


def test_it_begins_at_the_plan_that_is_best_as_groups(problem, groups):
    halves = np.array([0] + [b % 2 for _ in range(4) for b in range(4)] + [1], np.int32)
    scattered = np.arange(problem.num_units, dtype=np.int32) % 2
    asked = []

    def simulate(rows):
        asked.append(rows)
        return np.array([3.0, 1.0, 2.0]), np.array([True, False, True])

    plans = np.stack([problem.everything_on(1), scattered, halves])
    start = start_of(problem, groups, Beginning(plans, 1.0, simulate))
    np.testing.assert_array_equal(asked[0][0], problem.everything_on(1))
    np.testing.assert_array_equal(groups.rows(start[np.newaxis])[0], asked[0][2])  # the second does not fit
    # Whole branches are where they were.
    np.testing.assert_array_equal(asked[0][2][1:17], halves[1:17])


def test_where_none_fits_it_is_the_first(problem, groups):
    plans = np.stack([problem.everything_on(1), problem.everything_on(0)])
    nothing = Beginning(plans, 1.0, lambda rows: (np.ones(2), np.zeros(2, bool)))
    np.testing.assert_array_equal(start_of(problem, groups, nothing), np.ones(groups.count))


def test_a_start_is_legal():
    allowed = np.array([[1, 1, 0], [0, 1, 1]], bool)
    problem = problem_of([1, 1], [], cluster=small_cluster(3), allowed=allowed)
    groups = colocated_groups(problem, CONFIG)
    plan = np.array([[1, 2]], np.int32)
    start = start_of(problem, groups, Beginning(plan, 1.0, lambda rows: (np.ones(1), np.ones(1, bool))))
    np.testing.assert_array_equal(start, [1, 2])


def test_the_adjacency_is_as_wide_as_what_the_weights_are_for(problem, groups):
    start = groups.legal.argmax(axis=1)
    inputs = colocrl_inputs(problem, groups, CONFIG, start)
    fewer = colocrl_inputs(problem, groups, ColocRlConfig(largest_share=0.3, max_groups=2), start)
    assert inputs.embeddings.shape[1] - fewer.embeddings.shape[1] == 12 - groups.count
