"""A placement's own priorities come before the problem's: the op equals the reference, and what hand computes."""

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles.simulator import reference_simulate
from tests.tf_placer.ops.random_inputs import random_inputs
from tests.tf_placer.ops.small_arrays import CHAIN, arrays
from tf_placer.ops.simulator import SimulatorInputs, simulate, simulate_schedule

ROWS = 3


@pytest.mark.parametrize("chunk", range(4))
def test_op_equals_reference(chunk):
    for seed in range(chunk, 800, 4):
        rng = np.random.default_rng(seed)
        inputs = random_inputs(rng)
        device_of_unit = rng.integers(0, inputs.num_devices, (ROWS, inputs.num_units), np.int32)
        priority_of_op = rng.choice([-(2**31), -1, 0, 1, 2**31 - 1], (ROWS, inputs.num_ops)).astype(np.int32)
        cost = simulate(inputs, device_of_unit, priority_of_op)
        schedule = simulate_schedule(inputs, device_of_unit, priority_of_op)
        expected = [
            reference_simulate(inputs, *row) for row in zip(device_of_unit, priority_of_op, strict=True)
        ]
        message = f"seed {seed}"
        np.testing.assert_array_equal(cost.runtime_ns, [e.runtime_ns for e in expected], message)
        np.testing.assert_array_equal(cost.peak_bytes, [e.peak_bytes for e in expected], message)
        np.testing.assert_array_equal(schedule.start_ns, [e.start_ns for e in expected], message)
        np.testing.assert_array_equal(schedule.end_ns, [e.end_ns for e in expected], message)


def test_the_problems_priority_breaks_ties_only():
    # Three ops of 10, all ready at 0. The plan puts op 0 last; of 1 and 2, equal to it, the problem prefers 2.
    graph = arrays(3, [], [10, 10, 10], num_devices=1, priority=np.array([0, 2, 1]))
    inputs, place = SimulatorInputs(**graph), np.zeros((2, 3), np.int32)
    starts = simulate_schedule(inputs, place, [[5, 4, 4], [0, 0, 0]]).start_ns.numpy().tolist()
    assert starts == [[20, 10, 0], [0, 20, 10]]


def test_equal_priorities_decide_nothing():
    rng = np.random.default_rng(3)
    inputs = random_inputs(rng)
    place = rng.integers(0, inputs.num_devices, (4, inputs.num_units), np.int32)
    without, with_equal = (
        simulate_schedule(inputs, place, *given) for given in ([], [np.full((4, inputs.num_ops), 9)])
    )
    np.testing.assert_array_equal(without.end_ns, with_equal.end_ns)


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (1, 2, 1)])
def test_refuses_other_shapes(shape):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=r"priority_of_op|rank 2"):
        simulate(SimulatorInputs(**CHAIN), np.zeros((1, 2), np.int32), np.zeros(shape, np.int32))
