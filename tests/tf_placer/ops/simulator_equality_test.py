"""The C++ op equals the reference simulator, to the nanosecond and to the byte, on random problems."""

import numpy as np
import pytest

from tests.oracles.simulator import reference_simulate
from tests.tf_placer.ops.random_inputs import CHORES, random_inputs
from tf_placer.ops.simulator import simulate, simulate_schedule, simulate_step

pytestmark = pytest.mark.medium

NUM_PROBLEMS = 2400
NUM_CHUNKS = 8
PLACEMENTS_PER_PROBLEM = 3


@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_op_equals_reference(chunk):
    for seed in range(chunk, NUM_PROBLEMS, NUM_CHUNKS):
        rng = np.random.default_rng(seed)
        inputs = random_inputs(rng)
        shape = (PLACEMENTS_PER_PROBLEM, inputs.num_units)
        device_of_unit = rng.integers(0, inputs.num_devices, shape, np.int32)
        device_of_unit[0] = 0
        cost = simulate(inputs, device_of_unit)
        schedule = simulate_schedule(inputs, device_of_unit)
        step = simulate_step(inputs, device_of_unit)
        expected = [reference_simulate(inputs, row) for row in device_of_unit]
        message = f"seed {seed}"
        np.testing.assert_array_equal(cost.runtime_ns, [e.runtime_ns for e in expected], message)
        np.testing.assert_array_equal(cost.peak_bytes, [e.peak_bytes for e in expected], message)
        np.testing.assert_array_equal(schedule.start_ns, [e.start_ns for e in expected], message)
        np.testing.assert_array_equal(schedule.end_ns, [e.end_ns for e in expected], message)
        for got, also in zip(step, (*cost, *schedule), strict=False):
            np.testing.assert_array_equal(got, also, message)
        for got, side in ((step.leg_start_ns, 0), (step.leg_end_ns, 1)):
            legs = np.full((3, len(inputs.tensor_bytes), inputs.num_devices), -1)
            for row, one in zip(got, expected, strict=True):
                legs[:] = -1
                for where, times in one.legs.items():
                    legs[where] = times[side]
                np.testing.assert_array_equal(row, legs, message)


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
