"""The worker processes of a live cluster: started, watched and ended here, or servers started elsewhere."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import socket
import sys
import tempfile
import time
from typing import IO, Protocol

import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.op_libraries import loaded_op_libraries
from tf_placer.cluster.cluster import Cluster
from tf_placer.workers import worker_process
from tf_placer.workers.fork_server import (
    REMEDY,
    ForkedProcess,
    ForkServer,
    ForkServerError,
    are_workers_open,
    fork_server,
    last_line,
    loopback_library,
)
from tf_placer.workers.worker_memory import WorkerMemory

_LOOPBACK = "127.0.0.1"
_START_ATTEMPTS = 3


class WorkerError(RuntimeError):
    """A worker process did not start or has died; the message holds the end of its stderr."""


class LocalWorkers:
    """The worker processes of a ``kind="local"`` cluster, one per task of its device names.

        with LocalWorkers(cluster) as workers:
            with tf.compat.v1.Session(workers.target, graph=graph) as session:
                ...

    They end with the ``with`` block, with the interpreter, and with this process even if it is
    killed. They listen on the loopback alone (``loopback.py``): TensorFlow's servers know no authentication, and
    whoever reaches their ports can run graphs.
    """

    def __init__(
        self,
        cluster: Cluster,
        inter_op_threads: int = 2,
        start_timeout_s: float = 120.0,
        *,
        pinned: bool = True,
        intra_op_threads: int | None = None,
        open_workers: bool | None = None,
    ) -> None:
        """Describes the workers; ``start`` (or ``with``) starts them.

        Args:
          cluster: from ``Cluster.local()``.
          inter_op_threads: see ``WorkerSpec``.
          start_timeout_s: most seconds until all have imported TensorFlow and listen.
          pinned: each CPU worker has one core to itself; False lets every worker use the whole machine.
          intra_op_threads: see ``WorkerSpec``; None for 1 where pinned, else TensorFlow's choice.
          open_workers: let them listen on every interface; None for what the environment says
            (``TF_PLACER_OPEN_WORKERS``), which is no if it says nothing.

        Raises:
          InputError: the cluster's devices are not local workers, or more than there are cores to pin them to.
        """
        if cluster.kind != "local":
            raise InputError(
                f"cluster {cluster.name!r} is {cluster.kind}, so nothing can run on it; "
                "use Cluster.local() to measure"
            )
        self._devices = cluster.devices
        specs = [tf.DeviceSpec.from_string(device.name) for device in cluster.devices]
        self._jobs = sorted({spec.job for spec in specs})
        self._tasks = sorted({spec.task for spec in specs})
        if len(self._jobs) != 1 or self._tasks != list(range(len(self._tasks))):
            raise InputError(
                f"cluster {cluster.name!r} has jobs {self._jobs} and tasks {self._tasks}; "
                "a local cluster has one job with tasks 0, 1, 2, ..."
            )
        self._pinned = pinned and all(device.type != "GPU" for device in cluster.devices)
        cores = len(os.sched_getaffinity(0))
        if self._pinned and len(self._tasks) > cores:
            raise InputError(
                f"cluster {cluster.name!r} has {len(self._tasks)} workers, but this process may use {cores} cores; "
                "two on one core would slow each other"
            )
        self._inter_op_threads = inter_op_threads
        self._intra_op_threads = int(self._pinned) if intra_op_threads is None else intra_op_threads
        self._start_timeout_s = start_timeout_s
        self._open_workers = are_workers_open() if open_workers is None else open_workers
        self._addresses: tuple[str, ...] = ()
        self._processes: list[ForkedProcess] = []
        self._memories: tuple[WorkerMemory, ...] = ()
        self._stderrs: list[IO[bytes]] = []

    @property
    def target(self) -> str:
        """The session target: worker 0, whose master runs the graph on all of them."""
        return f"grpc://{self._addresses[0]}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """[tasks] ``host:port``."""
        return self._addresses

    @property
    def pids(self) -> tuple[int, ...]:
        """[tasks] process ids."""
        return tuple(process.pid for process in self._processes)

    @property
    def memories(self) -> tuple[WorkerMemory, ...]:
        """The memory of each live worker that is pinned to a core; a GPU's and its host's are unknown."""
        return self._memories

    def __enter__(self) -> LocalWorkers:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def prepare(self) -> None:
        """Begins what takes longest of a start, in the background: TensorFlow is imported for the workers.

        Raises:
          InputError: the workers cannot be kept off the network.
        """
        self._fork_server()

    def start(self) -> None:
        """Starts all workers and waits until they listen; does nothing if they already do.

        Where one has died meanwhile, all are started anew.

        Raises:
          InputError: the workers cannot be kept off the network.
          WorkerError: one died or did not listen in time.
        """
        if self._processes:
            if self.death() is None:
                return
            self.close()
        for attempt in range(1, _START_ATTEMPTS + 1):
            atexit.register(self.close)
            try:
                self._start_once()
                return
            except WorkerError:
                # Another process may have taken a free port before the worker bound it.
                self.close()
                if attempt == _START_ATTEMPTS:
                    raise
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Ends all workers and waits until they are gone. May be called twice, from any thread."""
        atexit.unregister(self.close)
        processes, self._processes = self._processes, []
        self._memories = ()
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                # Closing the pipe to a dead worker tries once more to send what it did not take.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        stderrs, self._stderrs = self._stderrs, []
        for stderr in stderrs:
            stderr.close()

    def outlive_python(self) -> None:
        """Has the workers end with this process, and not before: at Python's exit.

        Functions, iterators and the context that used them are deleted only then, and ask the workers for it.
        """
        atexit.unregister(self.close)
        self._fork_server().outlive_python()
        for process in self._processes:
            process.outlive_python()

    def kill(self) -> None:
        """Kills all workers but keeps their records, so that ``death`` can still tell about them.

        A client blocked in a session on them gets an error within moments: so a deadline ends a step.
        """
        for process in self._processes:
            process.kill()

    def death(self) -> str | None:
        """One line about the first worker that is dead, or None while all live."""
        for task, process in enumerate(self._processes):
            status = process.poll()
            if status is not None:
                cause = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
                return f"worker {task} (pid {process.pid}) {cause}{self._last_words(task)}"
        return None

    def _start_once(self) -> None:
        self._addresses = tuple(f"{_LOOPBACK}:{port}" for port in _free_ports(len(self._tasks)))
        cores = tuple(sorted(os.sched_getaffinity(0)))
        deadline_s = time.monotonic() + self._start_timeout_s
        server = self._fork_server()
        for task in self._tasks:
            spec = worker_process.WorkerSpec(
                job=self._jobs[0],
                task=task,
                addresses=self._addresses,
                cores=(cores[task % len(cores)],) if self._pinned else cores,
                sees_gpus=not self._pinned,
                intra_op_threads=self._intra_op_threads,
                inter_op_threads=self._inter_op_threads,
                on_loopback=not self._open_workers,
                environment=dict(os.environ),
                op_libraries=loaded_op_libraries(),
            )
            self._spawn(server, spec, deadline_s)
        for task in self._tasks:
            self._wait_ready(task, deadline_s)
        if self._pinned:
            self._memories = tuple(
                WorkerMemory(device, self._processes[_task(device.name)]) for device in self._devices
            )
        for memory in self._memories:
            memory.settle()

    def _fork_server(self) -> ForkServer:
        return fork_server(None if self._open_workers else loopback_library())

    def _spawn(self, server: ForkServer, spec: worker_process.WorkerSpec, deadline_s: float) -> None:
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the worker
        self._stderrs.append(stderr)
        try:
            process = server.fork(stderr, deadline_s)
        except ForkServerError as error:
            raise WorkerError(f"worker {spec.task} could not be started: {error}") from error
        self._processes.append(process)
        try:
            process.stdin.write(spec.to_json().encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            process.wait()
            raise WorkerError(f"{self.death()}; it could not be started") from error

    def _wait_ready(self, task: int, deadline_s: float) -> None:
        stdout = self._processes[task].stdout
        printed = b""
        while f"{worker_process.READY}\n".encode() not in printed:
            remaining_s = deadline_s - time.monotonic()
            readable, _, _ = select.select([stdout], [], [], max(remaining_s, 0.0))
            if not readable:
                raise WorkerError(
                    f"worker {task} did not listen within {self._start_timeout_s} s{self._last_words(task)}"
                )
            piece = os.read(stdout.fileno(), 4096)
            if not piece:
                raise WorkerError(f"worker {task} could not start its server{self._last_words(task)}")
            printed += piece
            if f"{worker_process.OPEN}\n".encode() in printed:
                raise InputError(
                    f"workers cannot be kept off the network: preloading has no effect on {sys.executable}; {REMEDY}"
                )

    def _last_words(self, task: int) -> str:
        return last_line(self._stderrs[task])


def _task(device_name: str) -> int:
    return int(tf.DeviceSpec.from_string(device_name).task)


def _free_ports(count: int) -> list[int]:
    """Distinct loopback ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind((_LOOPBACK, 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


# Servers of a live cluster that were started elsewhere.


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
        """Empty: no process here is ours."""
        return ()

    @property
    def memories(self) -> tuple[WorkerMemory, ...]:
        """Empty: the memory of a process elsewhere is unknown."""
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
        """Does nothing: the servers belong to somebody else."""

    def close(self) -> None:
        """Does nothing, likewise."""


# Interface of both kinds of workers.


class Workers(Protocol):
    """Interface of the processes behind a session."""

    @property
    def target(self) -> str: ...

    @property
    def pids(self) -> tuple[int, ...]: ...

    @property
    def memories(self) -> tuple[WorkerMemory, ...]:
        """Memory of the workers for which it is known."""

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
