"""Descriptions of hardware: devices, links, clusters; files and presets; what this machine has."""

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device
from tf_placer.cluster.device import Link
from tf_placer.cluster.device import full_device_name
from tf_placer.cluster.device import short_device_name
from tf_placer.cluster.preset import preset_names

__all__ = [
    "Cluster",
    "Device",
    "Link",
    "full_device_name",
    "preset_names",
    "short_device_name",
]
