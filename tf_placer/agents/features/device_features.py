"""What policies see of each device."""

from __future__ import annotations

import collections

import numpy as np

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import DEVICE_TYPES, MAX_DEVICES

# Numbers of devices: so many for each type.
DEVICE_NUMBERS = len(DEVICE_TYPES) * MAX_DEVICES

# Name -> columns.
DEVICE_COLUMNS = {
    "type": slice(0, 2),
    "flops": slice(2, 3),
    "memory_speed": slice(3, 4),
    "capacity": slice(4, 5),
    "streams": slice(5, 6),
    "launch": slice(6, 7),
    "newest_first": slice(7, 8),
    "latency": slice(8, 9),
    "bandwidth": slice(9, 10),
}
DEVICE_WIDTH = 10


def device_features(cluster: Cluster) -> np.ndarray:
    """Describes every device, beside the best of its cluster; see ``DEVICE_COLUMNS``.

    - type: one column for each of ``DEVICE_TYPES``, 1 where it is of that type;
    - flops, memory_speed, capacity: log10 of the share of the cluster's largest;
    - streams: log2 / 4;
    - launch: log10(1 + ns) / 5;
    - newest_first: 1 or 0;
    - latency: log10(1 + ns) / 5, the mean over the links that begin here;
    - bandwidth: log10 of the share of the cluster's widest link, the mean over them; 0 where there is none.

    Devices that are alike have the same features; ``device_numbers`` tells them apart.

    Returns:
      [D, 10] float32.
    """
    shares = [
        _log_share(np.array([getattr(device, field) for device in cluster.devices], np.float64))
        for field in ("peak_flops", "memory_bytes_per_s", "memory_bytes")
    ]
    widths = _log_share(np.array([link.bytes_per_s for link in cluster.links], np.float64))
    rows = []
    for position, device in enumerate(cluster.devices):
        outgoing = [i for i, link in enumerate(cluster.links) if link.source == position]
        latencies = [_log_ns(cluster.links[i].latency_ns) for i in outgoing]
        rows.append(
            [
                *(float(device.type == kind) for kind in DEVICE_TYPES),
                *(share[position] for share in shares),
                np.log2(device.streams) / 4,
                _log_ns(device.launch_ns),
                float(device.newest_first),
                np.mean(latencies) if outgoing else 0.0,
                widths[outgoing].mean() if outgoing else 0.0,
            ]
        )
    return np.array(rows, np.float32)


def device_numbers(cluster: Cluster) -> np.ndarray:
    """[D] int32 in [0, ``DEVICE_NUMBERS``): the position in ``DEVICE_TYPES`` times 64, and the count of such before.

    Without them two GPUs that are alike could not be told apart, and nothing could be split between them.
    """
    seen: collections.Counter[str] = collections.Counter()
    numbers = []
    for device in cluster.devices:
        numbers.append(DEVICE_TYPES.index(device.type) * MAX_DEVICES + seen[device.type])
        seen[device.type] += 1
    return np.array(numbers, np.int32)


def _log_share(amounts: np.ndarray) -> np.ndarray:
    """log10 of each amount over the largest; amounts below 1 count as 1."""
    amounts = np.maximum(amounts, 1.0)
    return np.log10(amounts / amounts.max(initial=1.0))


def _log_ns(time_ns: int) -> float:
    return float(np.log10(1 + time_ns)) / 5
