"""Workers of a live cluster: processes that are started, watched and ended here, and servers started elsewhere."""

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
from collections.abc import Iterable

import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.native import OP_LIBRARIES
from tf_placer.base.quantities import in_unit
from tf_placer.cluster.cluster import Cluster
from tf_placer.workers import fork_server, worker_process
from tf_placer.workers.fork_server import ForkedProcess, last_line, loopback_library

_ANSWER_TIMEOUT_S = 5.0
_STEADY_S, _STEADY_TIMEOUT_S = 0.3, 2.0
_STEADY_BYTES = 1 << 20
_FORGET_PEAK = "5"  # to clear_refs, see proc_pid_clear_refs(5)


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


class Workers:
    """Processes behind a session; of servers that run elsewhere nothing is known or ended."""

    addresses: tuple[str, ...] = ()  # [tasks] host:port
    pids: tuple[int, ...] = ()  # [tasks] process ids
    memories: tuple[WorkerMemory, ...] = ()  # of the workers whose memory is known

    @property
    def target(self) -> str:
        """Session target: the first task, whose master runs the graph on all of them."""
        return f"grpc://{self.addresses[0]}"

    def start(self) -> None:
        """Makes sure that all of them run."""
        raise NotImplementedError

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
            tasks = [tf.DeviceSpec.from_string(device.name).task for device in self._devices]
            self.memories = tuple(
                WorkerMemory(device.name, device.memory_bytes, self._processes[task])
                for device, task in zip(self._devices, tasks, strict=True)
            )
        for memory in self.memories:
            memory.settle()


class UnreachableServer(InputError):
    """A server of a cluster file does not answer."""


class RemoteWorkers(Workers):
    """The running ``tf.distribute.Server`` processes of a ``kind="remote"`` cluster.

    Nothing here starts, watches or ends a process: changes that a placement makes to a server stay for the next one.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Describes the servers; ``start`` asks whether each accepts a connection."""
        task_of = {tf.DeviceSpec.from_string(device.name).task: device.address for device in cluster.devices}
        self.addresses = tuple(task_of[task] for task in sorted(task_of))

    def start(self) -> None:
        """Asks every server for a connection; raises UnreachableServer."""
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), _SERVER_TIMEOUT_S).close()
            except OSError as error:
                raise UnreachableServer(
                    f"no server answers at {address} within {_SERVER_TIMEOUT_S:g} s ({error}); start a "
                    "tf.distribute.Server there, or correct the cluster file"
                ) from error


def workers_of(cluster: Cluster, inter_op_threads: int = 2) -> Workers:
    """The workers of a live cluster, not started yet; InputError for another cluster."""
    if cluster.kind == "local":
        return LocalWorkers(cluster, inter_op_threads)
    if cluster.kind == "remote":
        return RemoteWorkers(cluster)
    raise InputError(
        f"cluster {cluster.name!r} is {cluster.kind}, so nothing can run on it; use Cluster.local() or a cluster "
        "file with addresses to measure"
    )
