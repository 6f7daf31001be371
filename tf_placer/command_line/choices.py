"""Words that flags choose among, flags that exclude each other, and the presets."""

from __future__ import annotations

from typing import Any

import rich.console

from tf_placer.base.arguments import InputError
from tf_placer.cluster.choose import LOCAL
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.cluster_file import preset_names

FASTEST, METHOD = "fastest", "method"
WRITE = (FASTEST, METHOD)
OP, LAYER = "op", "layer"
BY = (OP, LAYER)
AUTO = "auto"


def check_together(
    *, plan: object, pins: object, complete_plan: bool, graph: object, respect_devices: object, costs: object
) -> None:
    """Refuses flags that contradict each other; each argument is what one of them has, false where it is not given.

    A profiled graph has no program to pin ops of, or to profile.

    Raises:
      InputError: names both.
    """
    if plan and pins:
        raise InputError("--plan and --pin are given; a plan pins what it names: edit it, or leave it away")
    asked = {"--pin": pins, "--plan": plan, "--respect_devices": respect_devices, "--costs": costs}
    for flag, value in asked.items():
        if graph and value:
            raise InputError(f"{flag} is given with --graph, which has no program; leave it away")
    if complete_plan and not plan:
        raise InputError("--complete_plan is given without --plan; say which plan to complete")


def check_runs_on(command: str, cluster: str, is_live: bool) -> None:
    """Raises InputError where a command that needs live devices is given a cluster that is only described."""
    if not is_live:
        raise InputError(f"cluster {cluster!r} is only described; {command} on --cluster=local")


def check_not_run_on(graph: object, cluster: str, is_live: bool) -> None:
    """Raises InputError where a profiled graph, which has nothing to run, is given with live devices."""
    if graph and is_live:
        raise InputError(
            f"--cluster={cluster} has live devices, and --graph has nothing to run on them; "
            "give a preset or a .toml file without addresses"
        )


# Presets of clusters, by name.


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
