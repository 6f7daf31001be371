"""The processes that run placed programs: started here, or found at their addresses."""

from __future__ import annotations

from typing import Protocol

from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.workers.local_workers import LocalWorkers
from tf_placer.workers.remote_workers import RemoteWorkers
from tf_placer.workers.worker_memory import WorkerMemory


class Workers(Protocol):
    """What a session needs of the processes behind it."""

    @property
    def target(self) -> str: ...

    @property
    def pids(self) -> tuple[int, ...]: ...

    @property
    def memories(self) -> tuple[WorkerMemory, ...]:
        """Of those whose memory can be told."""

    def start(self) -> None:
        """Makes sure that all are there; does nothing if they are."""

    def death(self) -> str | None:
        """One line about one that is known to be dead, or None."""

    def kill(self) -> None:
        """Ends them at once, but keeps what is known of them."""

    def close(self) -> None:
        """Ends them; ``start`` may be called again."""


def workers_of(cluster: Cluster, inter_op_threads: int = 2) -> Workers:
    """The workers of a live cluster; nothing is started yet.

    Raises:
      InputError: the cluster is not live.
    """
    if cluster.kind == "local":
        return LocalWorkers(cluster, inter_op_threads)
    if cluster.kind == "remote":
        return RemoteWorkers(cluster)
    raise InputError(
        f"cluster {cluster.name!r} is {cluster.kind}, so nothing can run on it; use Cluster.local() or a cluster "
        "file with addresses to measure"
    )
