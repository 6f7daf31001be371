"""Makes a cluster's devices devices of this process, so that its functions can run on them."""

from __future__ import annotations

import os

import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.workers.fork_server import STREAMING
from tf_placer.workers.local_workers import LocalWorkers
from tf_placer.workers.loopback import own_listeners_confined
from tf_placer.workers.present_devices import present_devices

# What the eager context is connected to: workers of ours, or job -> task -> address of servers. It can be connected to
# one cluster at a time, and what lives on their devices ends with them.
_connected: dict[tuple[str, ...], LocalWorkers] = {}
_connected_servers: dict[str, dict[int, str]] = {}


def attach(cluster: Cluster) -> dict[str, str]:
    """Makes the devices of a cluster usable by eager code and functions; starts its workers if need be.

    Returns:
      Name of each device in the cluster -> its name in this process.

    Raises:
      InputError: the cluster is only described, this process lacks a device, it is already attached to other
        workers, or they cannot be kept off the network.
      WorkerError: the workers cannot be started.
    """
    check_attachable(cluster)
    if _has_own_workers(cluster):
        _connect_to_workers(cluster)
    elif cluster.kind == "remote":
        _connect_to_servers(cluster)
    here = names_here(cluster)
    _check_present(cluster, here)
    return here


def check_attachable(cluster: Cluster) -> None:
    """Raises InputError where ``attach`` would, as far as that is known beforehand; starts nothing."""
    check_not_described(cluster)
    if _has_own_workers(cluster):
        if _live_workers(cluster) is None:
            _check_not_connected()
    elif cluster.kind == "remote":
        if _addresses(cluster) != _connected_servers:
            _check_not_connected()
    else:
        _check_present(cluster, names_here(cluster))


def _has_own_workers(cluster: Cluster) -> bool:
    return cluster.kind == "local" and not _is_of_gpus(cluster)


def _is_of_gpus(cluster: Cluster) -> bool:
    return any(device.type == "GPU" for device in cluster.devices)


def names_here(cluster: Cluster) -> dict[str, str]:
    """Name of each device in the cluster -> its name in this process, once that is attached."""
    names = [device.name for device in cluster.devices]
    if cluster.kind == "local" and _is_of_gpus(cluster):
        return {name: "/job:localhost/replica:0/task:0" + name[name.index("/device:") :] for name in names}
    return dict(zip(names, names, strict=True))


def is_attached(cluster: Cluster) -> bool:
    """Whether this process can use the cluster's devices without being connected to anything more."""
    if cluster.kind == "remote":
        return bool(_connected_servers)
    return not _has_own_workers(cluster) or _names(cluster) in _connected


def check_not_described(cluster: Cluster) -> None:
    """Raises InputError for a cluster that nothing can run on."""
    if cluster.kind == "described":
        raise InputError(
            f"cluster {cluster.name!r} is only described, so nothing can run on it; auto_place on Cluster.local(), "
            "Cluster.logical() or a cluster file with addresses"
        )


def _names(cluster: Cluster) -> tuple[str, ...]:
    return tuple(device.name for device in cluster.devices)


def _live_workers(cluster: Cluster) -> LocalWorkers | None:
    """Those that this process is connected to, where they are the cluster's."""
    workers = _connected.get(_names(cluster))
    return None if workers is None or workers.death() is not None else workers


def _connect_to_workers(cluster: Cluster) -> None:
    if _live_workers(cluster) is not None:
        return
    names = _names(cluster)
    workers = LocalWorkers(cluster)
    workers.start()
    _connected[names] = workers
    with own_listeners_confined():
        _connect({_task_of(names[0])[0]: dict(enumerate(workers.addresses))})


def _addresses(cluster: Cluster) -> dict[str, dict[int, str]]:
    """Job -> task -> address."""
    addresses: dict[str, dict[int, str]] = {}
    for device in cluster.devices:
        job, task = _task_of(device.name)
        addresses.setdefault(job, {})[task] = device.address
    return addresses


def _connect_to_servers(cluster: Cluster) -> None:
    addresses = _addresses(cluster)
    if addresses != _connected_servers:
        _connect(addresses)
        _connected_servers.update(addresses)


def _check_not_connected() -> None:
    if _connected or _connected_servers:
        raise InputError(
            "this process is attached to other workers, or one of them has died, and what lives there ends with "
            "them; start a new process"
        )


def _connect(addresses: dict[str, dict[int, str]]) -> None:
    # TensorFlow sends eager ops to another process in a stream, and does not wait for them; what a placed function runs
    # there goes beside the stream. So the function could read a variable before the update that comes before its call.
    # Without the stream each eager op is waited for, whatever this process was told.
    os.environ[STREAMING] = "false"
    with tf.init_scope():
        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(addresses))
        tf.config.list_logical_devices()  # initializes: or this process would begin to listen later


def _check_present(cluster: Cluster, here: dict[str, str]) -> None:
    present = present_devices()
    for name in here.values():
        if name not in present:
            hint = (
                "; call tf.config.set_logical_device_configuration before the first op runs"
                if cluster.kind == "logical"
                else ""
            )
            raise InputError(f"this process has no device {name}{hint}")


def _task_of(name: str) -> tuple[str, int]:
    spec = tf.DeviceSpec.from_string(name)
    return spec.job or "localhost", spec.task or 0
