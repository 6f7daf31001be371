"""Wrong arguments of clusters, devices and links."""

from __future__ import annotations

import dataclasses

import tf_placer
from tests.conformance.wrong_arguments.row import INF, NAN, Row, Told
from tests.conformance.wrong_arguments.scene import Scene
from tests.tf_placer.problem.small_problems import small_cluster
from tf_placer.cluster.device import Device, Link


def of_clusters(scene: Scene) -> dict[str, Row]:
    box = small_cluster(2)
    tiny = scene.file(scene.cluster.to_toml(), ".toml")
    no_file = (3, "", b"a")
    return {
        "Cluster": Row(
            tf_placer.Cluster,
            lambda: {"name": "box", "devices": box.devices, "links": box.links, "kind": "described"},
            {
                "name": ("", 3),
                "devices": (
                    (),
                    3,
                    "ab",
                    [1],
                    Told(box.devices[:1], "link"),
                ),
                "links": (Told((), "link"), 3, [1], Told(box.links * 2, "listed twice")),
                "kind": ("live", 3, ""),
            },
        ),
        "Cluster.preset": Row(
            tf_placer.Cluster.preset,
            lambda: {"name": "p100x2"},
            {"name": (3, "", Told("p100x3", "'p100x2'"))},
        ),
        "Cluster.from_file": Row(
            tf_placer.Cluster.from_file,
            lambda: {"path": tiny},
            {
                "path": (
                    *no_file,
                    Told("nowhere.toml", "nowhere.toml"),
                    Told(scene.folder, scene.folder.name),
                    Told(scene.file("a"), "not valid TOML"),
                )
            },
        ),
        "Cluster.local": Row(
            tf_placer.Cluster.local,
            lambda: {"cores": 1, "kept_in": tiny},
            {
                "cores": (0, -1, 1.5, "2", True, 10**6),
                "kept_in": (*no_file, Told(scene.file("a"), "not valid TOML")),
            },
        ),
        "Cluster.logical": Row(
            tf_placer.Cluster.logical, lambda: {"n": 2}, {"n": (0, -1, 65, 1.5, "2", True, NAN)}
        ),
        "Cluster.with_memory_limit": Row(
            box.with_memory_limit,
            lambda: {"limits": {"GPU:0": "1KB"}},
            {
                "limits": (
                    3,
                    "GPU:0=1KB",
                    {3: "1KB"},
                    {"GPU:0": 1.5},
                    {"GPU:0": -1},
                    {"GPU:0": "1 banana"},
                    Told({"GPU:9": "1KB"}, "GPU:9"),
                    Told({"GPU:0": "9TB"}, "give no more"),
                )
            },
        ),
    } | _of_devices()


def _of_devices() -> dict[str, Row]:
    box = small_cluster(2)
    device, link = dataclasses.asdict(box.devices[0]), dataclasses.asdict(box.links[0])
    whole, number = ("1", 1.5, True, NAN), ("1", True, NAN, INF)
    return {
        "Device": Row(
            Device,
            lambda: dict(device),
            {
                **dict.fromkeys(("name", "type", "model"), (3, "")),
                **dict.fromkeys(("memory_bytes", "streams"), (*whole, 0)),
                **dict.fromkeys(("launch_ns", "join_ns", "dispatch_ns"), (*whole, -1)),
                **dict.fromkeys(("peak_flops", "memory_bytes_per_s"), (*number, 0)),
                "newest_first": (1, "yes"),
                "address": (3,),
            },
        ),
        "Link": Row(
            Link,
            lambda: dict(link),
            {
                **dict.fromkeys(link.keys() - {"bytes_per_s", "channel"}, whole),
                "bytes_per_s": number,
                "channel": (3, ""),
            },
        ),
    }
