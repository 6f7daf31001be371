"""The devices of this process, and its connection to those of a cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import tensorflow as tf

from colocation.tensorflow_internals import connect_to_servers
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.ops.library import resources_kept
from tf_placer.workers.fork_server import STREAMING, own_listeners_confined
from tf_placer.workers.local_workers import LocalWorkers, Workers, workers_of

# Servers that the eager context is connected to: our workers, or job -> task -> address. It can be connected to one
# cluster at a time, and tensors on the devices end with the servers.
_connected: dict[tuple[str, ...], LocalWorkers] = {}
_connected_servers: dict[str, dict[int, str]] = {}
_session_workers: dict[Cluster, Workers] = {}  # used by sessions only


def import_meanwhile(cluster: Cluster) -> None:
    """Begins the import of TensorFlow for the workers of a local cluster, in the background."""
    if cluster.kind == "local":
        with contextlib.suppress(InputError):  # left to the start of the workers, if there is one
            LocalWorkers(cluster).prepare()


def present_devices() -> tuple[str, ...]:
    """Full names of this process's devices: logical ones, and connected workers'."""
    specs = (tf.DeviceSpec.from_string(device.name) for device in tf.config.list_logical_devices())
    return tuple(
        spec.replace(job=spec.job or "localhost", replica=0, task=spec.task or 0).to_string()
        for spec in specs
    )


def attach(cluster: Cluster, devices: Collection[str] | None = None) -> dict[str, str]:
    """Makes the devices of a cluster usable by eager code and functions; starts its workers if need be.

    Args:
      cluster: the devices; of described ones, this process must have them.
      devices: names of the needed ones; None for all.

    Returns:
      ``names_here``.

    Raises:
      InputError: this process lacks a device, it is already attached to other workers, or its workers cannot be kept
        off the network.
      WorkerError: the workers cannot be started.
    """
    arguments.instance_of("cluster", cluster, Cluster, "give Cluster.local(), say")
    if devices is not None:
        devices = arguments.items_of("devices", devices, str, "give names of the cluster's devices, or None")
        stranger = next((name for name in devices if name not in names_here(cluster)), None)
        if stranger is not None:
            raise InputError(
                f"devices: cluster {cluster.name!r} has no {stranger!r}; it has {', '.join(names_here(cluster))}"
            )
    check_attachable(cluster, devices)
    if not is_attached(cluster) and cluster.kind == "remote":
        workers_of(cluster).start()  # raises if a server does not answer
        _connect(_addresses(cluster))
        _connected_servers.update(_addresses(cluster))
    elif not is_attached(cluster):
        names = tuple(device.name for device in cluster.devices)
        workers = LocalWorkers(cluster)
        workers.start()
        workers.outlive_python()
        _connected[names] = workers
        with own_listeners_confined():
            _connect({_task_of(names[0])[0]: dict(enumerate(workers.addresses))})
    _check_present(cluster, devices)
    return names_here(cluster)


def session_target(cluster: Cluster) -> str:
    """The target of a ``tf.compat.v1.Session`` on a cluster, "" on this process's devices; starts workers if need be.

    Raises:
      InputError: the workers cannot be kept off the network, or a server does not answer.
      WorkerError: the workers cannot be started.
    """
    arguments.instance_of("cluster", cluster, Cluster, "give Cluster.local(), say")
    if not cluster.is_live:
        return ""
    workers = _live_workers(cluster) or _session_workers.setdefault(cluster, workers_of(cluster))
    workers.start()
    return workers.target


def check_attachable(cluster: Cluster, devices: Collection[str] | None = None) -> None:
    """Raises InputError where ``attach`` is known to fail; starts nothing."""
    if cluster.kind != "remote" and not _has_own_workers(cluster):
        _check_present(cluster, devices)
    elif not is_attached(cluster) and (_connected or _connected_servers):
        raise InputError(
            "this process is attached to other workers, or one of them has died, and what lives there ends with "
            "them; start a new process"
        )


def _has_own_workers(cluster: Cluster) -> bool:
    """True for local CPU workers; local GPUs are devices of this process."""
    return cluster.kind == "local" and all(device.type != "GPU" for device in cluster.devices)


def names_here(cluster: Cluster) -> dict[str, str]:
    """Name of each device in the cluster -> its name in this process, once that is attached."""
    names = [device.name for device in cluster.devices]
    if cluster.kind == "local" and not _has_own_workers(cluster):
        return {name: "/job:localhost/replica:0/task:0" + name[name.index("/device:") :] for name in names}
    return dict(zip(names, names, strict=True))


def is_attached(cluster: Cluster) -> bool:
    """True if this process can use the cluster's devices without a further connection."""
    if cluster.kind == "remote":
        return _addresses(cluster) == _connected_servers
    return not _has_own_workers(cluster) or _live_workers(cluster) is not None


def _live_workers(cluster: Cluster) -> LocalWorkers | None:
    """Connected workers with all devices of the cluster; None without any."""
    if not _has_own_workers(cluster):
        return None
    names = {device.name for device in cluster.devices}
    fitting = (workers for connected, workers in _connected.items() if names <= set(connected))
    return next((workers for workers in fitting if workers.death() is None), None)


def _addresses(cluster: Cluster) -> dict[str, dict[int, str]]:
    """Job -> task -> address."""
    addresses: dict[str, dict[int, str]] = {}
    for device in cluster.devices:
        job, task = _task_of(device.name)
        addresses.setdefault(job, {})[task] = device.address
    return addresses


def _connect(addresses: dict[str, dict[int, str]]) -> None:
    # TensorFlow streams eager ops to another process without waiting for them, and the ops of a placed function bypass
    # the stream. So a function could read a variable before an update that precedes its call. Without the stream each
    # eager op is waited for, also in asynchronous mode.
    os.environ[STREAMING] = "false"
    with tf.init_scope(), resources_kept():
        connect_to_servers(addresses)
        tf.config.list_logical_devices()  # initializes now, or this process would begin to listen later


def _check_present(cluster: Cluster, devices: Collection[str] | None) -> None:
    present = present_devices()
    for planned, name in names_here(cluster).items():
        if name not in present and (devices is None or planned in devices):
            hint = f"it has {', '.join(present)}"
            if cluster.kind != "local" and "/device:CPU:" in name:
                hint = "call tf.config.set_logical_device_configuration before the first op runs"
            raise InputError(f"this process has no device {name}; {hint}")


def _task_of(name: str) -> tuple[str, int]:
    spec = tf.DeviceSpec.from_string(name)
    return spec.job or "localhost", spec.task or 0
