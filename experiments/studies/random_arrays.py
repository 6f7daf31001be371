"""Random layered graphs of any size, as arrays: what the simulator's benchmarks and tests run on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FREE_FRACTION = 0.4
"""Share of ops that cost nothing (constants, reads, reshapes), about that of a Keras training step."""


class LayeredArrays(NamedTuple):
    """Arrays of one graph and one cluster, named and shaped as ``SimulatorInputs`` names them."""

    unit_of_op: np.ndarray  # [N] int32
    compute_ns: np.ndarray  # [N, D] int64
    priority: np.ndarray  # [N] int32
    tensor_producer: np.ndarray  # [T] int32
    tensor_bytes: np.ndarray  # [T] int64
    consumer_offset: np.ndarray  # [T + 1] int32
    consumer_op: np.ndarray  # [E] int32
    resident_bytes: np.ndarray  # [U] int64
    streams: np.ndarray  # [D] int32
    link_latency_ns: np.ndarray  # [D, D] int64
    link_bytes_per_s: np.ndarray  # [D, D] int64
    channel_of_link: np.ndarray  # [D, D] int32


def random_layered_arrays(num_ops: int, num_devices: int, seed: int) -> LayeredArrays:
    """A random graph shaped like a training step: half of the free ops are constants, long dependency chains.

    An op reads one to three tensors of ops up to 200 positions before it (skip connections reach
    further), about 1.6 edges an op; every op is a unit. Device 0 is a host CPU of 8 streams, the
    others run one op at a time; every ordered pair of devices is a channel of 10 GB/s.

    Args:
      num_ops: N, at least 1.
      num_devices: D, at least 1.
      seed: of NumPy's generator; equal seeds give equal arrays.
    """
    rng = np.random.default_rng(seed)
    free = rng.random(num_ops) < FREE_FRACTION
    edges = _layered_edges(num_ops, free & (rng.random(num_ops) < 0.5), rng)
    producer, first = np.unique(edges[:, 0], return_index=True)
    work_ns = np.where(free, 0, rng.lognormal(10.0, 1.5, num_ops).astype(np.int64) + 1000)
    slowdown = np.ones(num_devices)
    slowdown[0] = 10.0
    streams = np.ones(num_devices, np.int32)
    streams[0] = 8
    pair = np.arange(num_devices * num_devices, dtype=np.int32).reshape(num_devices, num_devices)
    # A few hundred distinct sizes, as in a real network where whole layers share their shapes.
    sizes = np.concatenate([[4], rng.lognormal(11.0, 3.0, 300).astype(np.int64) * 4 + 4])
    return LayeredArrays(
        unit_of_op=np.arange(num_ops, dtype=np.int32),
        compute_ns=(work_ns[:, None] * slowdown[None, :]).astype(np.int64),
        priority=np.zeros(num_ops, np.int32),
        tensor_producer=producer.astype(np.int32),
        tensor_bytes=np.where(free[producer], 4, rng.choice(sizes, len(producer))).astype(np.int64),
        consumer_offset=np.append(first, len(edges)).astype(np.int32),
        consumer_op=edges[:, 1].astype(np.int32),
        resident_bytes=np.where(free, rng.integers(0, 1 << 20, num_ops), 0).astype(np.int64),
        streams=streams,
        link_latency_ns=np.full((num_devices, num_devices), 10_000, np.int64),
        link_bytes_per_s=np.full((num_devices, num_devices), 10_000_000_000, np.int64),
        channel_of_link=np.where(np.eye(num_devices, dtype=bool), -1, pair).astype(np.int32),
    )


def _layered_edges(num_ops: int, is_constant: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[E, 2] distinct (producer, consumer), sorted; constants consume nothing."""
    consumer = np.repeat(np.arange(num_ops), rng.choice([1, 2, 3], num_ops, p=[0.2, 0.6, 0.2]))
    reach = np.where(rng.random(len(consumer)) < 0.1, 2000, 200)
    producer = consumer - 1 - (rng.random(len(consumer)) ** 2 * reach).astype(np.int64)
    keep = (producer >= 0) & ~is_constant[consumer]
    return np.unique(np.stack([producer[keep], consumer[keep]], axis=1), axis=0).reshape(-1, 2)
