"""What an untaught table draws."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.agents.tabular import tabular_inputs
from tf_placer.grouper.groups import unit_groups

ALLOWED = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0], [0, 0, 1]], bool)
GROUPS = unit_groups(problem_of([1] * 4, [], cluster=small_cluster(3), allowed=ALLOWED), 3)


def drawn(start_probability):
    """[G', D]."""
    inputs = tabular_inputs(GROUPS, np.array([2, 0, 1]), start_probability)
    assert inputs.group_of_unit.numpy().tolist() == [0, 1, 2, 3] and inputs.only_device[3] == 2
    return np.exp(inputs.prior_logits.numpy())


def test_it_leans_as_often_as_asked():
    expected = [[0.1, 0.1, 0.8], [0.8, 0.1, 0.1], [0.2, 0.8, 0]]
    np.testing.assert_allclose(drawn(0.8), expected, atol=1e-6)


def test_or_to_nothing():
    np.testing.assert_allclose(drawn(0.0), [[1 / 3] * 3, [1 / 3] * 3, [0.5, 0.5, 0]], atol=1e-6)
