"""Random problems for the simulator."""

import dataclasses
import itertools

import numpy as np

from tf_placer.ops.simulator import SimulatorInputs

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
    inputs = SimulatorInputs(
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
        **random_feeding(rng, num_devices, largest),
    )
    return dataclasses.replace(inputs, alias_of_tensor=random_aliases(rng, inputs))


def random_feeding(rng: np.random.Generator, num_devices: int, largest: int) -> dict[str, np.ndarray]:
    """Times of the host for ops and of the runtime for tensors: 0 on some problems, on others up to an op's."""
    chance, pair_chance = rng.choice([0.0, 0.5, 1.0], 2)
    pairs = (num_devices, num_devices)
    return {
        "dispatch_ns": rng.integers(0, largest, num_devices) * (rng.random(num_devices) < chance),
        "link_tensor_ns": rng.integers(0, largest, pairs) * (rng.random(pairs) < pair_chance),
    }


def random_aliases(rng: np.random.Generator, inputs: SimulatorInputs) -> np.ndarray:
    """[T] int32: tensors that have the memory of an input of their op, or stay; none on some problems, nearly all on
    others.
    """
    chance = rng.choice([0.0, 0.3, 0.9])
    inputs_of: dict[int, list[int]] = {}
    for tensor, (first, end) in enumerate(itertools.pairwise(inputs.consumer_offset)):
        for op in inputs.consumer_op[first:end]:
            inputs_of.setdefault(int(op), []).append(tensor)
    alias = np.full(len(inputs.tensor_producer), -1, np.int32)
    for tensor, producer in enumerate(inputs.tensor_producer):
        known = inputs_of.get(int(producer), [])
        if rng.random() < 0.1:
            known = [*known, tensor]
        if known and inputs.tensor_bytes[tensor] and rng.random() < chance:
            alias[tensor] = rng.choice(known)
    return alias
