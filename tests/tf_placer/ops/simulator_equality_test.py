"""The C++ op equals the reference simulator, to the nanosecond and to the byte, on random problems."""

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles.simulator import reference_simulate
from tests.tf_placer.ops.random_inputs import CHORES, random_inputs
from tests.tf_placer.ops.small_arrays import CHAIN, arrays
from tf_placer.ops.simulator import SimulatorInputs, simulate, simulate_schedule, simulate_step

NUM_PROBLEMS = 2400
NUM_CHUNKS = 8
PLACEMENTS_PER_PROBLEM = 3


def check_equal(seed, inputs, device_of_unit, *priority_of_op):
    """Compares the op with the reference on placements, which may have priorities of their own."""
    cost = simulate(inputs, device_of_unit, *priority_of_op)
    schedule = simulate_schedule(inputs, device_of_unit, *priority_of_op)
    rows = zip(device_of_unit, *priority_of_op, strict=True)
    expected = [reference_simulate(inputs, *row) for row in rows]
    for result in (cost, schedule):
        for name in result._fields:
            values = [getattr(one, name) for one in expected]
            np.testing.assert_array_equal(getattr(result, name), values, f"seed {seed}")
    return cost, schedule, expected


@pytest.mark.medium
@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_op_equals_reference(chunk):
    for seed in range(chunk, NUM_PROBLEMS, NUM_CHUNKS):
        rng, message = np.random.default_rng(seed), f"seed {seed}"
        inputs = random_inputs(rng)
        shape = (PLACEMENTS_PER_PROBLEM, inputs.num_units)
        device_of_unit = rng.integers(0, inputs.num_devices, shape, np.int32)
        device_of_unit[0] = 0
        cost, schedule, expected = check_equal(seed, inputs, device_of_unit)
        step = simulate_step(inputs, device_of_unit)
        for got, also in zip(step, (*cost, *schedule), strict=False):
            np.testing.assert_array_equal(got, also, message)
        for got, side in ((step.leg_start_ns, 0), (step.leg_end_ns, 1)):
            legs = np.full((3, len(inputs.tensor_bytes), inputs.num_devices), -1)
            for row, one in zip(got, expected, strict=True):
                legs[:] = -1
                for where, times in one.legs.items():
                    legs[where] = times[side]
                np.testing.assert_array_equal(row, legs, message)


@pytest.mark.parametrize("chunk", range(4))
def test_op_equals_reference_where_placements_have_priorities(chunk):
    for seed in range(chunk, 800, 4):
        rng = np.random.default_rng(seed)
        inputs = random_inputs(rng)
        device_of_unit = rng.integers(0, inputs.num_devices, (3, inputs.num_units), np.int32)
        priority_of_op = rng.choice([-(2**31), -1, 0, 1, 2**31 - 1], (3, inputs.num_ops)).astype(np.int32)
        check_equal(seed, inputs, device_of_unit, priority_of_op)


@pytest.mark.medium
def test_random_problems_cover_what_they_must():
    """Otherwise equality would prove less than it says."""
    problems = [random_inputs(np.random.default_rng(seed)) for seed in range(NUM_PROBLEMS)]
    assert {p.num_devices for p in problems} == {1, 2, 3, 4}
    assert {p.num_units for p in problems} == set(range(1, 41))
    assert any(p.streams.max() > 3 for p in problems)
    for uniform in (True, False):  # the op has a loop of its own for each
        newest = [p.newest_first for p in problems if (np.ptp(p.priority) == 0) == uniform and p.num_ops > 5]
        assert any(n.all() for n in newest) and any(not n.any() for n in newest)
    assert {len(set(p.priority)) > 1 for p in problems} == {True, False}
    assert any((p.compute_ns == 0).any(1).sum() > (p.compute_ns == 0).all(1).sum() for p in problems)
    off_diagonal = [p.channel_of_link[~np.eye(p.num_devices, dtype=bool)] for p in problems]
    assert sum(len(set(c)) < len(c) for c in off_diagonal) > 100  # shared channels
    assert {p.join_ns.any() for p in problems} == {True, False}
    fed = [p.dispatch_ns.any() for p in problems]
    handed_over = [p.link_tensor_ns.any() for p in problems]
    assert len(set(zip(fed, handed_over, strict=True))) == 4
    chores = [sum(np.any(getattr(p, name)) for name in CHORES) for p in problems]
    assert set(chores) == {0, 1, 2, 3, 4}
    assert {0, 1, 2, 5} <= {fanout for p in problems for fanout in np.diff(p.consumer_offset)}


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
