"""The described machines, by name."""

from __future__ import annotations

from typing import Any

import rich.console

from tf_placer.cluster.choose import LOCAL
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.preset import preset_names


def cluster_names() -> tuple[str, ...]:
    """The described machines, and this one."""
    return (*preset_names(), LOCAL)


def list_clusters(console: rich.console.Console) -> list[dict[str, Any]]:
    """Prints the names; returns them with their devices. This machine is not probed for that: its devices are None."""
    for name in cluster_names():
        console.print(name)
    return [
        {"name": name, "devices": None if name == LOCAL else _devices(Cluster.preset(name))}
        for name in cluster_names()
    ]


def _devices(cluster: Cluster) -> list[dict[str, Any]]:
    shown = ("name", "type", "model", "memory_bytes")
    return [{key: getattr(device, key) for key in shown} for device in cluster.devices]
