"""Servers of a live cluster that somebody else has started."""

from __future__ import annotations

import socket

import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.workers.worker_memory import WorkerMemory


class UnreachableServer(InputError):
    """A server of a cluster file does not answer."""


class RemoteWorkers:
    """The running ``tf.distribute.Server`` processes of a ``kind="remote"`` cluster.

    The same face as ``LocalWorkers``, but nothing here starts, watches or ends a process: what a placement does
    to a server, the next placement finds done.
    """

    def __init__(self, cluster: Cluster, answer_timeout_s: float = 10.0) -> None:
        """Describes the servers; ``start`` asks whether they answer.

        Args:
          cluster: from a cluster file with addresses.
          answer_timeout_s: most seconds for each to accept a connection.
        """
        if cluster.kind != "remote":
            raise InputError(f"cluster {cluster.name!r} is {cluster.kind}; its devices have no addresses")
        task_of = {tf.DeviceSpec.from_string(device.name).task: device.address for device in cluster.devices}
        self._addresses = [task_of[task] for task in sorted(task_of)]
        self._answer_timeout_s = answer_timeout_s

    @property
    def target(self) -> str:
        """The session target: the first task, whose master runs the graph on all of them."""
        return f"grpc://{self._addresses[0]}"

    @property
    def pids(self) -> tuple[int, ...]:
        """No process here is ours."""
        return ()

    @property
    def memories(self) -> tuple[WorkerMemory, ...]:
        """Nothing can be told of a process elsewhere."""
        return ()

    def start(self) -> None:
        """Asks every server for a connection.

        Raises:
          UnreachableServer: names the address that does not answer.
        """
        for address in self._addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), self._answer_timeout_s).close()
            except OSError as error:
                raise UnreachableServer(
                    f"no server answers at {address} within {self._answer_timeout_s:g} s ({error}); start a "
                    "tf.distribute.Server there, or correct the cluster file"
                ) from error

    def death(self) -> str | None:
        """Always None: a lost connection ends the session by itself, and asking would disturb a timed step."""
        return None

    def kill(self) -> None:
        """Nothing: they belong to somebody else."""

    def close(self) -> None:
        """Nothing, likewise."""
