"""How long replicas take to make gradients equal: a ring of all, as ``tf.distribute.MirroredStrategy`` has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, Link

_PACK_PASSES = (
    6  # each byte is read and written when gradients are packed, divided by the replicas, and unpacked
)
_SUM_PASSES = 3  # two are read, their sum is written


def all_reduce_s(cluster: Cluster, replicas: Sequence[int], num_bytes: int) -> float:
    """Seconds from the last gradient to reduced gradients on every replica.

    ``MirroredStrategy`` packs all gradients into one tensor and all-reduces that, in a ring on CPUs and, by NCCL, on
    GPUs (TensorFlow 2.21, ``distribute/mirrored_strategy.py:_make_collective_ops_with_fallbacks`` and
    ``distribute/cross_device_utils.py:batch_all_reduce``). A ring of D takes 2 (D - 1) rounds. In each, every replica
    sends 1 / D of the bytes to the next one; in the first half of the rounds it adds what comes to what it has
    (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009). What TensorFlow and NCCL need to start is not counted.

    Args:
      cluster: has links.
      replicas: at least two positions of devices, in the order of the ring.
      num_bytes: of the gradients of one replica.
    """
    count = len(replicas)
    chunk_bytes = math.ceil(num_bytes / count)
    rate = min(cluster.devices[d].memory_bytes_per_s for d in replicas)
    rounds_s = 2 * (count - 1) * _round_s(cluster, replicas, chunk_bytes)
    added_s = (count - 1) * _SUM_PASSES * chunk_bytes / rate
    return rounds_s + added_s + _PACK_PASSES * num_bytes / rate


def all_gather_s(cluster: Cluster, replicas: Sequence[int], num_bytes: int) -> float:
    """Seconds until every replica has what each of them brings: D - 1 rounds of all its bytes in the same ring."""
    return (len(replicas) - 1) * _round_s(cluster, replicas, num_bytes)


def _round_s(cluster: Cluster, replicas: Sequence[int], num_bytes: int) -> float:
    """Every replica sends so many bytes to the next one: those on one channel queue, as in the simulator."""
    link_of = {(link.source, link.target): link for link in cluster.links}
    links = [link_of[pair] for pair in zip(replicas, [*replicas[1:], replicas[0]], strict=True)]
    busy_s: dict[str, float] = {}
    for link in links:
        on_its_way_s = link.latency_ns / 1e9 + num_bytes / link.bytes_per_s
        busy_s[link.channel] = busy_s.get(link.channel, 0.0) + on_its_way_s
    return max(busy_s[link.channel] + _ends_s(link, num_bytes) for link in links)


def _ends_s(link: Link, num_bytes: int) -> float:
    """What sending and receiving take of the devices' own time."""
    fixed_ns = link.send_ns + link.receive_ns
    return fixed_ns / 1e9 + num_bytes * (link.send_ps_per_byte + link.receive_ps_per_byte) / 1e12


def replicas_of(devices: Sequence[Device]) -> tuple[int, ...]:
    """Positions of the devices that a batch is split over: the GPUs, or the CPUs where there is none."""
    kind = "GPU" if any(device.type == "GPU" for device in devices) else "CPU"
    return tuple(d for d, device in enumerate(devices) if device.type == kind)
