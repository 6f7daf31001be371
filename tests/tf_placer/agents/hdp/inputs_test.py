"""What the policy is called with: standardized columns and a leaning of the asked strength."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem, problem_of
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.inputs import group_leaning, hdp_inputs
from tf_placer.agents.hdp.start import HdpStart


def test_dense_columns_have_mean_0_and_deviation_1():
    problem = branches_problem(3, 4)
    config = HdpConfig(num_groups=3, landmarks=4)
    inputs = hdp_inputs(problem, config, HdpStart.on_device(problem, config, 0), seed=0)
    dense, raw = inputs.dense.numpy(), inputs.graph.unit_features.numpy()
    varies = raw.std(axis=0) > 0
    assert varies.sum() > 10 and (np.abs(dense[:, ~varies]) < 1e-3).all()
    np.testing.assert_allclose(dense[:, varies].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(dense[:, varies].std(axis=0), 1, rtol=1e-2)
    # One of U standardized numbers is at most sqrt(U - 1).
    assert np.abs(dense).max() <= np.sqrt(problem.num_units - 1) + 1e-3


def test_it_is_a_nest_of_tensors():
    problem = branches_problem(2, 2)
    config = HdpConfig(num_groups=3, landmarks=4)
    inputs = hdp_inputs(problem, config, HdpStart.on_device(problem, config, 0), seed=0)
    again = tf.function(lambda given: given)(inputs)
    assert type(again) is type(inputs)
    assert all(tf.is_tensor(tensor) for tensor in tf.nest.flatten(again))


def test_a_unit_that_leaves_its_group_goes_to_its_neighbors():
    # Unit 0 in group 0, units 1 and 2 in group 1, unit 3 in group 2; 0 - 1 - 2 - 3 and 0 - 3.
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], 9)
    start = HdpStart.on_device(problem, HdpConfig(num_groups=3), 0)
    groups = dataclasses.replace(start.groups, group_of_unit=np.array([0, 1, 1, 2], np.int32))
    rows = np.exp(group_leaning(problem, dataclasses.replace(start, groups=groups), 0.8))
    # 0.2 of which 9 parts go by edges (1 and 3 are one each) and 1 part evenly.
    np.testing.assert_allclose(rows[0], [0.8, 0.1, 0.1], rtol=1e-5)
    # Unit 1: one edge to group 0, none to 2.
    np.testing.assert_allclose(rows[1], [0.18 + 0.01, 0.8, 0.01], rtol=1e-5)
    assert not group_leaning(problem, start, 0.0).any()
