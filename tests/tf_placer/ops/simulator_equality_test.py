"""The C++ op equals the reference simulator, to the nanosecond and to the byte, on random problems."""

import numpy as np
import pytest

from tf_placer.ops.reference_simulator import reference_simulate
from tf_placer.ops.simulator import simulate, simulate_schedule
from tf_placer.ops.simulator_inputs import SimulatorInputs

NUM_PROBLEMS = 2400
NUM_CHUNKS = 8
PLACEMENTS_PER_PROBLEM = 3
CHORES = ("link_send_ns", "link_send_ps_per_byte", "link_receive_ns", "link_receive_ps_per_byte")


def random_inputs(rng: np.random.Generator) -> SimulatorInputs:
    """1 to 40 units of 1 to 3 ops, 1 to 4 devices; small numbers, so that ties are common."""
    num_units = int(rng.integers(1, 41))
    num_ops = num_units + int(rng.integers(0, 2 * num_units + 1))
    num_devices = int(rng.integers(1, 5))
    unit_of_op = np.concatenate([np.arange(num_units), rng.integers(0, num_units, num_ops - num_units)])
    rng.shuffle(unit_of_op)
    # Tie-heavy on some problems, tie-free on others.
    largest = int(rng.choice([4, 30, 10**6]))
    compute_ns = rng.integers(0, largest, (num_ops, num_devices))
    compute_ns[rng.random(num_ops) < rng.random()] = 0  # free everywhere, others free on some devices only
    producer, offset, consumer = [], [0], []
    density = rng.random() * 3
    for op in range(num_ops):
        for _ in range(int(rng.integers(0, 3))):  # several tensors an op, some that nobody reads
            fanout = min(int(rng.poisson(density)), num_ops - op - 1)
            consumer += sorted(op + 1 + rng.choice(num_ops - op - 1, fanout, replace=False)) if fanout else []
            producer.append(op)
            offset.append(len(consumer))
    tensor_bytes = rng.integers(0, largest, len(producer)) * (rng.random(len(producer)) < 0.7)
    square = (num_devices, num_devices)
    channels = int(rng.integers(1, num_devices**2 + 1))
    latency_ns = rng.integers(0, 5, square) * int(rng.choice([0, 1, 1000]))
    uniform = rng.random() < 0.5
    newest_first = rng.random(num_devices) < 0.5
    chores = {name: rng.integers(0, 5, square) * int(rng.choice([0, 0, 1, 1000])) for name in CHORES}
    return SimulatorInputs(
        unit_of_op=unit_of_op,
        compute_ns=compute_ns,
        priority=np.full(num_ops, 7) if uniform else rng.integers(-2, 3, num_ops),
        tensor_producer=np.array(producer, np.int32),
        tensor_bytes=tensor_bytes.astype(np.int64),
        consumer_offset=np.array(offset),
        consumer_op=np.array(consumer, np.int32),
        resident_bytes=rng.integers(0, 50, num_units) * rng.integers(0, 2, num_units),
        newest_first=newest_first,
        join_ns=rng.integers(0, 50, num_devices) * int(rng.choice([0, 1, 1000])),
        streams=np.where(rng.random(num_devices) < 0.6, 1, rng.integers(2, 6, num_devices)),
        link_latency_ns=latency_ns,
        link_bytes_per_s=rng.choice([3 * 10**8, 10**9, 7 * 10**9, 10**15], square),
        channel_of_link=np.where(np.eye(num_devices, dtype=bool), -1, rng.integers(0, channels, square)),
        **chores,
    )


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
        expected = [reference_simulate(inputs, row) for row in device_of_unit]
        message = f"seed {seed}"
        np.testing.assert_array_equal(cost.runtime_ns, [e.runtime_ns for e in expected], message)
        np.testing.assert_array_equal(cost.peak_bytes, [e.peak_bytes for e in expected], message)
        np.testing.assert_array_equal(schedule.start_ns, [e.start_ns for e in expected], message)
        np.testing.assert_array_equal(schedule.end_ns, [e.end_ns for e in expected], message)


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
    chores = [sum(np.any(getattr(p, name)) for name in CHORES) for p in problems]
    assert set(chores) == {0, 1, 2, 3, 4}
    assert {0, 1, 2, 5} <= {fanout for p in problems for fanout in np.diff(p.consumer_offset)}
