"""What can be asked for by name: described machines and search methods."""

from __future__ import annotations

from typing import Any

import rich.console

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.preset import preset_names
from tf_placer.search import methods
from tf_placer.search.settings import configured, recorded
from tf_placer.search.spec import MethodSpec

LOCAL = "local"


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


def list_methods(console: rich.console.Console) -> list[dict[str, Any]]:
    """Prints of each method what it is, and returns that."""
    found = [_about(methods.find(name)) for name in methods.names()]
    for about in found:
        console.print(f"{about['name']}: {about['summary']}", soft_wrap=True)
        ignores = f"; ignores {', '.join(about['ignores'])}" if about["ignores"] else ""
        console.print(f"  {about['kind']}{ignores}", soft_wrap=True)
        if about["settings"]:
            settings = ", ".join(f"{name}={value}" for name, value in about["settings"].items())
            console.print(f"  --set: {settings}", soft_wrap=True)
    return found


def _about(spec: MethodSpec) -> dict[str, Any]:
    """What a method is, what it does not look at, and what can be set."""
    return {
        "name": spec.name,
        "summary": spec.summary,
        "kind": spec.kind.value,
        "ignores": list(spec.ignores),
        "settings": recorded(configured(spec)),
    }
