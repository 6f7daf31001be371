"""Small clusters of GPUs and CPUs."""

import dataclasses

from tests.tf_placer.problem.small_problems import small_cluster
from tf_placer.cluster.cluster import Cluster


def cluster_of(*types: str) -> Cluster:
    cluster = small_cluster(len(types))
    devices = zip(cluster.devices, types, strict=True)
    return dataclasses.replace(
        cluster, devices=tuple(dataclasses.replace(device, type=kind) for device, kind in devices)
    )
