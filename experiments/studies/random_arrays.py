"""Random layered graphs of any size: what the simulator's benchmarks and tests run on."""

from __future__ import annotations

import numpy as np

from tf_placer.ops.simulator import SimulatorInputs

FREE_FRACTION = 0.4
"""Share of ops that cost nothing (constants, reads, reshapes), about that of a Keras training step."""


def random_layered_inputs(num_ops: int, num_devices: int, seed: int) -> SimulatorInputs:
    """A random graph shaped like a training step: half of the free ops are constants, long dependency chains.

    An op reads one to three tensors of ops up to 200 positions before it (skip connections reach
    further), about 1.6 edges an op; every op is a unit. Device 0 is a host CPU of 8 streams, the
    others run one op at a time; every ordered pair of devices is a channel of 10 GB/s.

    Args:
      num_ops: N, at least 1.
      num_devices: D, at least 1.
      seed: of NumPy's generator; equal seeds give equal graphs.
    """
    rng = np.random.default_rng(seed)
    free = rng.random(num_ops) < FREE_FRACTION
    edges = _layered_edges(num_ops, free & (rng.random(num_ops) < 0.5), rng)
    producer, first = np.unique(edges[:, 0], return_index=True)
    work_ns = np.where(free, 0, rng.lognormal(10.0, 1.5, num_ops).astype(np.int64) + 1000)
    is_host = np.arange(num_devices) == 0
    pair = np.arange(num_devices**2).reshape(num_devices, num_devices)
    # A few hundred distinct sizes, as in a real network where whole layers share their shapes.
    sizes = np.concatenate([[4], rng.lognormal(11.0, 3.0, 300).astype(np.int64) * 4 + 4])
    return SimulatorInputs(
        unit_of_op=np.arange(num_ops, dtype=np.int32),
        compute_ns=work_ns[:, np.newaxis] * np.where(is_host, 10, 1),
        priority=np.zeros(num_ops, np.int32),
        tensor_producer=producer,
        tensor_bytes=np.where(free[producer], 4, rng.choice(sizes, len(producer))),
        consumer_offset=np.append(first, len(edges)),
        consumer_op=edges[:, 1],
        resident_bytes=np.where(free, rng.integers(0, 1 << 20, num_ops), 0).astype(np.int64),
        streams=np.where(is_host, 8, 1),
        link_latency_ns=np.full((num_devices, num_devices), 10_000, np.int64),
        link_bytes_per_s=np.full((num_devices, num_devices), 10_000_000_000, np.int64),
        channel_of_link=np.where(np.eye(num_devices, dtype=bool), -1, pair),
    )


def _layered_edges(num_ops: int, is_constant: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[E, 2] distinct (producer, consumer), sorted; constants consume nothing."""
    consumer = np.repeat(np.arange(num_ops), rng.choice([1, 2, 3], num_ops, p=[0.2, 0.6, 0.2]))
    reach = np.where(rng.random(len(consumer)) < 0.1, 2000, 200)
    producer = consumer - 1 - (rng.random(len(consumer)) ** 2 * reach).astype(np.int64)
    keep = (producer >= 0) & ~is_constant[consumer]
    return np.unique(np.stack([producer[keep], consumer[keep]], axis=1), axis=0).reshape(-1, 2)
