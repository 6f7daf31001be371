"""What ColocRL's policy is given."""

import math

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.inputs import colocated_groups, colocrl_inputs, leaning

CONFIG = ColocRlConfig(largest_share=0.3, max_groups=12)


@pytest.fixture(scope="module")
def problem():
    return branches_problem(4, 4)


@pytest.fixture(scope="module")
def groups(problem):
    return colocated_groups(problem, CONFIG)


def test_leaning_is_of_the_bounded_logits():
    # 0.9 against one other: log 9 apart, 5 tanh(u / 10) on either side of 0.
    config = ColocRlConfig(start_probability=0.9)
    (row,) = leaning(np.array([1]), np.ones((1, 2), bool), config)
    bounded = 5 * np.tanh(row / 10)
    assert bounded[1] - bounded[0] == pytest.approx(math.log(9), rel=1e-5)
    assert not leaning(np.array([1]), np.ones((1, 2), bool), ColocRlConfig(preset="paper")).any()


def test_the_adjacency_is_as_wide_as_what_the_weights_are_for(problem, groups):
    start = groups.legal.argmax(axis=1)
    inputs = colocrl_inputs(problem, groups, CONFIG, start)
    fewer = colocrl_inputs(problem, groups, ColocRlConfig(largest_share=0.3, max_groups=2), start)
    assert inputs.embeddings.shape[1] - fewer.embeddings.shape[1] == 12 - groups.count
