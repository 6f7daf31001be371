"""Workers of a live cluster, started here or servers started elsewhere, and this process's connection to them."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import pathlib
import select
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterable

import tensorflow as tf

from colocation.tensorflow_internals import connect_to_servers
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.native import OP_LIBRARIES
from tf_placer.base.quantities import in_unit
from tf_placer.cluster.cluster import Cluster, full_device_name
from tf_placer.ops.library import resources_kept
from tf_placer.workers import fork_server, worker_process
from tf_placer.workers.fork_server import (
    STREAMING,
    ForkedProcess,
    last_line,
    loopback_library,
    own_listeners_confined,
)

_ANSWER_TIMEOUT_S = 5.0
_STEADY_S, _STEADY_TIMEOUT_S = 0.3, 2.0
_STEADY_BYTES = 1 << 20
_FORGET_PEAK = "5"  # to clear_refs, see proc_pid_clear_refs(5)
# Servers that the eager context is connected to: our workers, or job -> task -> address. It can be connected to one
# cluster at a time, and tensors on the devices end with the servers.
_connected: dict[tuple[str, ...], LocalWorkers] = {}
_connected_servers: dict[str, dict[int, str]] = {}
_session_workers: dict[Cluster, Workers] = {}  # used by sessions only


class WorkerMemory:
    """Peak memory of the programs that run on one worker, one program after the other.

        memory.settle()  # before a program is loaded
        memory.begin(small_bytes)  # loaded: its steps count from here
        memory.peak_bytes()

    ``peak_bytes`` is the smaller one of two upper bounds of the program's memory:

    - the growth of the process's resident memory since the worker started (the kernel's high-water mark). The runtime's
      own growth is part of it, measured at 1 to 45 MB. TensorFlow's allocator for oneDNN never returns memory, so after
      a large program this says nothing about a small one;
    - that allocator's peak, in whole chunks (up to 128 MB more), plus the growth of the process since ``begin``, plus
      values too small for that allocator. The plain allocator, which returns memory, does not count its peak.

    With oneDNN's allocator, the bound of a program larger than all before it on the same worker may include their
    memory (measured: 629 MB for a tensor of 400 after one of 200), so fresh workers decide on OUT_OF_MEMORY. Memory
    that malloc kept from an earlier program is missing from the second bound, so malloc is asked to return it first.
    """

    def __init__(self, device: str, memory_bytes: int, process: ForkedProcess) -> None:
        """Describes a worker with one CPU device; call ``settle`` before anything is loaded."""
        self.device, self._memory_bytes = device, memory_bytes
        self._process = process
        self._lock = threading.Lock()
        self.is_mute = False  # it left a question unanswered, so it hangs or is gone
        self._start_bytes: int | None = None
        self._begin_bytes: int | None = None
        self._small_bytes = 0
        self._acquitted_bytes = 0

    def settle(self) -> None:
        """Lets malloc return free memory. The first time, the remainder counts as the runtime's."""
        self._ask(worker_process.RESTART_PEAK)
        if self._start_bytes is not None:
            return
        # Once its growth has ended: a new server still takes 40 MB for itself.
        steady_since, resident = time.monotonic(), _status_bytes(self._process.pid, "VmRSS")
        deadline = steady_since + _STEADY_TIMEOUT_S
        while resident is not None and time.monotonic() < min(steady_since + _STEADY_S, deadline):
            time.sleep(_STEADY_S / 10)
            now = _status_bytes(self._process.pid, "VmRSS")
            if now is None or now > resident + _STEADY_BYTES:
                steady_since, resident = time.monotonic(), now
        self._start_bytes = resident

    def begin(self, small_bytes: int = 0) -> None:
        """Peaks count from now on; ``small_bytes`` is the sum of loaded values below ``SMALL_VALUE_BYTES``."""
        self._ask(worker_process.RESTART_PEAK)
        self._acquitted_bytes, self._small_bytes = 0, small_bytes
        self._begin_bytes = None
        with contextlib.suppress(OSError):  # the process is gone, or the kernel does not allow it
            pathlib.Path(f"/proc/{self._process.pid}/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")
            self._begin_bytes = _status_bytes(self._process.pid, "VmRSS")

    def peak_bytes(self) -> int | None:
        """Upper bound of the program's peak memory since ``begin``; None if unknown."""
        peak = _status_bytes(self._process.pid, "VmHWM")
        if peak is None or self._start_bytes is None or self._begin_bytes is None:
            return None
        grown = max(peak - self._start_bytes, 0)
        allocated = self._ask(worker_process.TELL_PEAK)
        if allocated is None:
            return grown
        return min(grown, allocated + self._small_bytes + max(peak - self._begin_bytes, 0))

    def excess(self) -> str | None:
        """One line if the program has exceeded the memory of the device, else None.

        Cheap enough for a timed step: the worker itself is only asked when the kernel's figure is too large and has
        grown since the last question.
        """
        resident = _status_bytes(self._process.pid, "VmHWM")
        if resident is None or self._start_bytes is None or self._begin_bytes is None:
            return None
        if resident - self._start_bytes <= max(self._memory_bytes, self._acquitted_bytes):
            return None
        used = self.peak_bytes()
        if used is None or used <= self._memory_bytes:
            self._acquitted_bytes = resident - self._start_bytes
            return None
        return (
            f"{self.device} has {in_unit(self._memory_bytes, 'MB')}, and the program took "
            f"{in_unit(used, 'MB')}"
        )

    def _ask(self, question: bytes) -> int | None:
        """Answer of the worker's allocator; None without a count, or if the worker is dead or hangs."""
        stdin, stdout = self._process.stdin, self._process.stdout
        line, deadline = bytearray(), time.monotonic() + _ANSWER_TIMEOUT_S
        with self._lock:
            if self.is_mute:  # a late answer would be taken for that to the next question
                return None
            try:
                stdin.write(question)
                stdin.flush()
                while not line.endswith(b"\n"):
                    readable, _, _ = select.select([stdout], [], [], max(deadline - time.monotonic(), 0.0))
                    piece = os.read(stdout.fileno(), 4096) if readable else b""
                    if not piece:
                        raise EOFError(f"worker {self._process.pid} is gone or did not answer")
                    line += piece
                answer = json.loads(line)
                return None if answer is None else int(answer)
            except (OSError, ValueError, EOFError):
                self.is_mute = True
                return None


def peaks_bytes(memories: Iterable[WorkerMemory]) -> dict[str, int]:
    """Device -> peak since ``begin``, of the devices whose peak is known."""
    peaks = {memory.device: memory.peak_bytes() for memory in memories}
    return {name: peak for name, peak in peaks.items() if peak is not None}


def _status_bytes(pid: int, field: str) -> int | None:
    """A size in /proc/PID/status in bytes; None if the process is gone or a zombie."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines,
    ):
        for line in lines:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024  # "kB" there means KiB
    return None


_LOOPBACK = "127.0.0.1"
_START_ATTEMPTS = 3
_START_TIMEOUT_S = 120.0  # until all workers have imported TensorFlow and listen
_SERVER_TIMEOUT_S = 10.0  # until a server elsewhere accepts a connection


class WorkerError(RuntimeError):
    """A worker process did not start or has died; the message ends with the last line of its stderr."""


class UnreachableServer(InputError):
    """A server of a cluster file does not answer."""


class Workers:
    """Processes behind a session: the running ``tf.distribute.Server`` processes of a ``kind="remote"`` cluster.

    Nothing here starts, watches or ends a process: changes that a placement makes to a server stay for the next one.
    """

    addresses: tuple[str, ...] = ()  # [tasks] host:port
    pids: tuple[int, ...] = ()  # [tasks] process ids, where they are known
    memories: tuple[WorkerMemory, ...] = ()  # of the workers whose memory is known

    def __init__(self, cluster: Cluster) -> None:
        """Describes the servers; ``start`` asks whether each accepts a connection."""
        address_of_task = {_task_of(device.name)[1]: device.address for device in cluster.devices}
        self.addresses = tuple(address for _, address in sorted(address_of_task.items()))

    @property
    def target(self) -> str:
        """Session target: the first task, whose master runs the graph on all of them."""
        return f"grpc://{self.addresses[0]}"

    def start(self) -> None:
        """Makes sure that all of them run: asks every server for a connection; raises UnreachableServer."""
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), _SERVER_TIMEOUT_S).close()
            except OSError as error:
                raise UnreachableServer(
                    f"no server answers at {address} within {_SERVER_TIMEOUT_S:g} s ({error}); start a "
                    "tf.distribute.Server there, or correct the cluster file"
                ) from error

    def death(self) -> str | None:
        """One line about a worker that is known to be dead, or None."""
        return None

    def kill(self) -> None:
        """Ends them at once, but keeps their records."""

    def close(self) -> None:
        """Ends them; ``start`` may be called again."""


class LocalWorkers(Workers):
    """The worker processes of a ``kind="local"`` cluster, one per task of its device names.

        with LocalWorkers(cluster) as workers:
            with tf.compat.v1.Session(workers.target, graph=graph) as session:
                ...

    They end with the ``with`` block, with the interpreter, and with this process even if it is killed. They listen on
    the loopback only: TensorFlow's servers know no authentication, and whoever reaches their ports can run graphs.
    """

    def __init__(
        self,
        cluster: Cluster,
        inter_op_threads: int = 2,
        *,
        pinned: bool = True,
        intra_op_threads: int | None = None,
    ) -> None:
        """Describes the workers; ``start`` (or ``with``) starts them.

        Args:
          cluster: from ``Cluster.local()``.
          inter_op_threads: see ``WorkerSpec``.
          pinned: each CPU worker has a core to itself; False lets every worker use the whole machine.
          intra_op_threads: see ``WorkerSpec``; None for 1 where pinned, else TensorFlow's choice.

        Raises:
          InputError: the cluster has several jobs, or more workers than cores to pin them to.
        """
        self._devices = cluster.devices
        jobs, tasks = zip(*(_task_of(device.name) for device in cluster.devices), strict=True)
        self._jobs, self._tasks = sorted(set(jobs)), sorted(set(tasks))
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
        self._open_workers = fork_server.are_workers_open()
        self._processes: list[ForkedProcess] = []

    def __enter__(self) -> LocalWorkers:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def prepare(self) -> fork_server.ForkServer:
        """Begins the longest part of a start, in the background: TensorFlow is imported for the workers.

        Raises InputError if the workers cannot be kept off the network.
        """
        return fork_server.fork_server(None if self._open_workers else loopback_library())

    def start(self) -> None:
        """Starts all workers and waits until they listen, unless they do; where one has died, all are replaced.

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
        self.pids, self.memories = (), ()
        for process in processes:
            process.kill()
        for process in processes:
            process.poll(timeout_s=None)
            for pipe in (process.stdin, process.stdout, process.stderr):
                # Closing the pipe to a dead worker tries once more to send its unread input.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def outlive_python(self) -> None:
        """Lets the workers live until this process ends, beyond Python's exit.

        Functions, iterators and the context that used them are deleted after it, with calls to the workers.
        """
        atexit.unregister(self.close)
        self.prepare().outlive_python()
        for process in self._processes:
            process.outlive_python()

    def kill(self) -> None:
        """Kills all workers but keeps their records for ``death``.

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
                return f"worker {task} (pid {process.pid}) {cause}{last_line(process.stderr)}"
        return None

    def _start_once(self) -> None:
        with contextlib.ExitStack() as bound:
            ports = []
            for _ in self._tasks:  # all at once, so that they are distinct
                listener = bound.enter_context(socket.socket())
                listener.bind((_LOOPBACK, 0))
                ports.append(listener.getsockname()[1])
        self.addresses = tuple(f"{_LOOPBACK}:{port}" for port in ports)
        cores = tuple(sorted(os.sched_getaffinity(0)))
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        server = self.prepare()
        for task in self._tasks:
            spec = worker_process.WorkerSpec(
                job=self._jobs[0],
                task=task,
                addresses=self.addresses,
                cores=(cores[task % len(cores)],) if self._pinned else cores,
                sees_gpus=not self._pinned,
                intra_op_threads=self._intra_op_threads,
                inter_op_threads=self._inter_op_threads,
                on_loopback=not self._open_workers,
                environment=dict(os.environ),
                op_libraries=tuple(OP_LIBRARIES),
            )
            try:
                process = server.fork(deadline_s)
            except fork_server.ForkServerError as error:
                raise WorkerError(f"worker {task} could not be started: {error}") from error
            self._processes.append(process)
            self.pids = (*self.pids, process.pid)
            try:
                process.stdin.write(json.dumps(dataclasses.asdict(spec)).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError as error:
                process.poll(timeout_s=None)
                raise WorkerError(f"{self.death()}; it could not be started") from error
        for task, process in zip(self._tasks, self._processes, strict=True):
            printed = b""
            while f"{worker_process.READY}\n".encode() not in printed:
                remaining_s = deadline_s - time.monotonic()
                readable, _, _ = select.select([process.stdout], [], [], max(remaining_s, 0.0))
                if not readable:
                    raise WorkerError(
                        f"worker {task} did not listen within {_START_TIMEOUT_S} s{last_line(process.stderr)}"
                    )
                piece = os.read(process.stdout.fileno(), 4096)
                if not piece:
                    raise WorkerError(f"worker {task} could not start its server{last_line(process.stderr)}")
                printed += piece
                if f"{worker_process.OPEN}\n".encode() in printed:
                    why = f"preloading has no effect on {sys.executable}; {fork_server.REMEDY}"
                    raise InputError(f"workers cannot be kept off the network: {why}")
        if self._pinned:
            self.memories = tuple(
                WorkerMemory(device.name, device.memory_bytes, self._processes[_task_of(device.name)[1]])
                for device in self._devices
            )
        for memory in self.memories:
            memory.settle()


def workers_of(cluster: Cluster, inter_op_threads: int = 2) -> Workers:
    """The workers of a live cluster, not started yet; InputError for another cluster."""
    if cluster.kind == "local":
        return LocalWorkers(cluster, inter_op_threads)
    if cluster.kind == "remote":
        return Workers(cluster)
    raise InputError(
        f"cluster {cluster.name!r} is {cluster.kind}, so nothing can run on it; use Cluster.local() or a cluster "
        "file with addresses to measure"
    )


def import_meanwhile(cluster: Cluster) -> None:
    """Begins the import of TensorFlow for the workers of a local cluster, in the background."""
    if cluster.kind == "local":
        with contextlib.suppress(InputError):  # left to the start of the workers, if there is one
            LocalWorkers(cluster).prepare()


def present_devices() -> tuple[str, ...]:
    """Full names of this process's devices: logical ones, and connected workers'."""
    return tuple(full_device_name(device.name) for device in tf.config.list_logical_devices())


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
