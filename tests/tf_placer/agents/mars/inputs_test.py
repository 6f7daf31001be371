"""Groups in numbers, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.features import RELATIVE_WIDTH
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.groups import MarsGroups
from tf_placer.agents.mars.inputs import SUMMARY_WIDTH, mars_inputs


@pytest.fixture(scope="module")
def inputs():
    # 0 -> 1 -> 2, of 10, 30 and 60 ns; 0 and 1 are one group.
    problem = problem_of([10, 30, 60], [(0, 1), (1, 2)], 0, resident_bytes=[0, 900, 2700])
    groups = MarsGroups(
        group_of_unit=np.array([0, 0, 1], np.int32),
        only_device=np.zeros(3, np.int32),
        legal=np.ones((2, 2), bool),
        device_of_group=np.array([0, 1], np.int32),
    )
    return mars_inputs(problem, groups, MarsConfig(start_probability=0.9), seed=0)


def test_shares_of_work_add_up_to_one_in_each_group(inputs):
    np.testing.assert_allclose(inputs.share_of_unit, [0.25, 0.75, 1.0], rtol=1e-4)


def test_summaries(inputs):
    relative, rows = inputs.graph.relative_features.numpy(), inputs.summaries.numpy()
    assert rows.shape == (2, SUMMARY_WIDTH) and rows.dtype == np.float32
    np.testing.assert_allclose(
        rows[0, :RELATIVE_WIDTH], 0.25 * relative[0] + 0.75 * relative[1], rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(rows[1, :RELATIVE_WIDTH], relative[2], rtol=1e-6)
    # Work 40 and 60 of 100, bytes 1 and 3 of 4, 2 and 1 units.
    np.testing.assert_allclose(rows[:, -3], np.sqrt([0.4, 0.6]), rtol=1e-6)
    np.testing.assert_allclose(rows[:, -2], np.sqrt([0.25, 0.75]), rtol=1e-6)
    np.testing.assert_allclose(rows[:, -1], np.log2([3, 2]) / 8, rtol=1e-6)


def test_the_start_is_leaned_to_and_all_is_a_nest_of_tensors(inputs):
    assert np.argmax(inputs.choices.leaning, axis=1).tolist() == [0, 1]
    again = tf.function(lambda given: given)(inputs)
    assert type(again) is type(inputs)
    assert all(tf.is_tensor(tensor) for tensor in tf.nest.flatten(again))
