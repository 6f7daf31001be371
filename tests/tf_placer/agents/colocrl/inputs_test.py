"""What ColocRL's policy is given."""

import pytest

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.colocrl import ColocRlConfig, colocated_groups, colocrl_inputs

CONFIG = ColocRlConfig(largest_share=0.3, max_groups=12)


@pytest.fixture(scope="module")
def problem():
    return branches_problem(4, 4)


@pytest.fixture(scope="module")
def groups(problem):
    return colocated_groups(problem, CONFIG)


def test_the_adjacency_is_as_wide_as_what_the_weights_are_for(problem, groups):
    start = groups.legal.argmax(axis=1)
    inputs = colocrl_inputs(problem, groups, CONFIG, start)
    fewer = colocrl_inputs(problem, groups, ColocRlConfig(largest_share=0.3, max_groups=2), start)
    assert inputs.embeddings.shape[1] - fewer.embeddings.shape[1] == 12 - groups.count
