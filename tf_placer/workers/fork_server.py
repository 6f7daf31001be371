"""A process that has imported TensorFlow and forks workers: an import takes seconds, a fork milliseconds."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import IO

from tf_placer.base.arguments import InputError
from tf_placer.base.compilations import with_kept_compilations
from tf_placer.base.compiled_library import Library, compiled
from tf_placer.workers import fork_server_process, worker_process

# Network protection: servers of local workers, which run whatever they are sent, listen on the loopback only.

OPEN_WORKERS = "TF_PLACER_OPEN_WORKERS"
REMEDY = f"--open_workers or {OPEN_WORKERS}=1 goes on without, on a machine whose network you trust"
_LOOPBACK_INTERFACE = b"lo"
_TAIL_BYTES = 2000  # of an stderr, in which its last line is looked for
_FOLDER = pathlib.Path(__file__).parent
LOOPBACK_LIBRARY = Library(
    name="_tf_placer_loopback",
    purpose="what keeps workers off the network",
    sources=_FOLDER / "cc",
    folder=_FOLDER,
    flags=("-std=c++17", "-O2", "-fPIC", "-shared", "-Wall"),
    prebuilt="TF_PLACER_LOOPBACK_LIBRARY",
    places=("-Wl,--as-needed", "-ldl"),
)


def loopback_library() -> pathlib.Path:
    """The library that a worker preloads so that it listens on the loopback alone, compiled if need be.

    Raises:
      InputError: it cannot be compiled.
    """
    try:
        return compiled(LOOPBACK_LIBRARY)
    except InputError as error:
        raise InputError(f"{error}; {REMEDY}") from error


@contextlib.contextmanager
def preloading(library: pathlib.Path | None) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """Yields the environment of a process that preloads ``library`` before all else, and descriptors it must inherit.

    The library goes by its descriptor, because the list of what is preloaded knows no blanks and colons in names.
    """
    if library is None:
        yield dict(os.environ), ()
        return
    descriptor = os.open(library, os.O_RDONLY)
    try:
        others = os.environ.get("LD_PRELOAD", "")
        first = f"/proc/self/fd/{descriptor}"
        yield {**os.environ, "LD_PRELOAD": f"{first}:{others}" if others else first}, (descriptor,)
    finally:
        os.close(descriptor)


def are_workers_open() -> bool:
    """True if the environment wants workers that listen on every interface.

    Raises:
      InputError: it says neither yes nor no.
    """
    word = os.environ.get(OPEN_WORKERS, "0")
    if word not in ("", "0", "1"):
        raise InputError(f"{OPEN_WORKERS} is {word!r}; give 1 or 0")
    return word == "1"


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Within it, workers that are started have a variable of the environment at this value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def workers_opened(opened: bool) -> contextlib.AbstractContextManager[None]:
    """Within it, workers that are started listen on every interface, if ``opened``."""
    return environment(OPEN_WORKERS, "1") if opened else contextlib.nullcontext()


@contextlib.contextmanager
def own_listeners_confined() -> Iterator[None]:
    """Confines to the loopback what this process begins to listen on within it.

    Who uses the workers' devices as its own has a server of its own for them, and cannot preload anything any more.

    Raises:
      InputError: the system does not let this process do so.
    """
    if are_workers_open():
        yield
        return
    with socket.socket() as trial:
        _confine(trial)
    before = _listeners()
    try:
        yield
    finally:
        for name, descriptor in _listeners().items():
            if name not in before:
                with socket.socket(fileno=os.dup(descriptor)) as listener:
                    _confine(listener)


def _confine(one: socket.socket) -> None:
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK_INTERFACE)
    except OSError as error:
        raise InputError(
            f"this process cannot keep its TensorFlow server off the network: {error.strerror}; Linux 5.7 lets every "
            f"process do so; {REMEDY}"
        ) from error


def _listeners() -> dict[str, int]:
    """Name -> descriptor of the internet sockets that this process listens on."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it may be closed by now, as the listing's own is
            name = os.readlink(f"/proc/self/fd/{number}")
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as one:
                is_internet = one.family in (socket.AF_INET, socket.AF_INET6)
                if is_internet and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found[name] = int(number)
    return found


IDLE_S = 60.0
# Variables that TensorFlow and its libraries read when loaded: a change of them needs a new server.
_READ_WHEN_LOADED = (
    "CUDA", "DNNL", "GLIBC", "GOMP", "GRPC", "KMP", "LD_", "MALLOC", "MKL", "NVIDIA", "OMP", "ONEDNN",
    "OPENBLAS", "PYTHON", "TF_", "XLA_",
)  # fmt: skip
# Streaming of eager ops to other processes; TensorFlow reads it at each op, so a server need not be new.
STREAMING = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_servers: dict[tuple[object, ...], ForkServer] = {}
_starting = threading.Lock()


class ForkServerError(RuntimeError):
    """A fork server has ended or does not answer; the message holds the end of its stderr."""


def fork_server(preload: pathlib.Path | None) -> ForkServer:
    """The server of this process that preloads ``preload``, started if need be; it may still import TensorFlow."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_READ_WHEN_LOADED) and name != STREAMING
    }
    # By pid, because a fork of this process has no part in the socket. By the worker's file, which tests exchange.
    key = (os.getpid(), preload, worker_process.__file__, tuple(sorted(environment.items())))
    with _starting:
        server = _servers.get(key)
        if server is None or not server.is_alive:
            if server is not None:
                server.close()
            server = _servers[key] = ForkServer(preload)
        return server


def onednn_off() -> contextlib.AbstractContextManager[None]:
    """Within it, workers that are started have oneDNN's kernels off: they fuse and reorder sums by what is beside them.

    This process has read the variable already.
    """
    return environment(_ONEDNN, "0")


def has_forked() -> bool:
    """True if a server of this process has imported TensorFlow, so that more workers are there in a moment."""
    return any(server.is_alive and server.has_forked for server in _own_servers())


def end_unused() -> None:
    """Ends the servers of this process that have forked nothing: it turned out that no worker is needed."""
    for server in _own_servers():
        if not server.has_forked:
            server.close()


def _own_servers() -> list[ForkServer]:
    with _starting:
        return [server for key, server in _servers.items() if key[0] == os.getpid()]


class ForkServer:
    """One such process; it ends by itself when it was not needed for a minute, and with this process in any case."""

    def __init__(self, preload: pathlib.Path | None) -> None:
        """Starts it; importing continues in the background.

        Args:
          preload: a library to load before all others; None for none.
        """
        self._lock = threading.Lock()
        self._has_forked = False
        self._pid = os.getpid()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        self._control, theirs = socket.socketpair()
        with preloading(preload) as (environment, descriptors), theirs:
            spec = fork_server_process.ServerSpec(
                worker_file=worker_process.__file__,
                parent_pid=self._pid,
                control=theirs.fileno(),
                preloads=preload is not None,
                idle_s=IDLE_S,
            )
            # By path, not with -m: that would import all of tf_placer first. -P keeps this folder off its import path.
            self._process = subprocess.Popen(
                [sys.executable, "-P", fork_server_process.__file__, json.dumps(dataclasses.asdict(spec))],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                env=with_kept_compilations(environment),
                pass_fds=(*descriptors, theirs.fileno()),
            )
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_forked(self) -> bool:
        """A worker was made: TensorFlow is imported."""
        return self._has_forked

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, stderr: IO[bytes], deadline_s: float) -> ForkedProcess:
        """A new worker, which waits for a line with its ``WorkerSpec`` on stdin.

        Args:
          stderr: of the worker.
          deadline_s: when to give up, on the clock of ``time.monotonic``.

        Raises:
          ForkServerError: there is none.
        """
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        from_status, status = os.pipe()
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            pid, process = self._forked([stdin, stdout, stderr.fileno(), status, folder], deadline_s)
        except BaseException:
            for descriptor in (to_stdin, from_stdout, from_status):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (stdin, stdout, status, folder):
                os.close(descriptor)
        return ForkedProcess(pid, process, to_stdin, from_stdout, from_status)

    def close(self) -> None:
        """Ends it and its workers. May be called twice; in a fork of this process it does nothing."""
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.close)
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._stderr.close()

    def outlive_python(self) -> None:
        """Has it end with this process, and not before: at Python's exit."""
        atexit.unregister(self.close)
        os.dup(self._control.fileno())  # which nothing closes

    def _forked(self, descriptors: list[int], deadline_s: float) -> tuple[int, int]:
        with self._lock:
            try:
                socket.send_fds(self._control, [fork_server_process.FORK], descriptors)
                readable, _, _ = select.select(
                    [self._control], [], [], max(deadline_s - time.monotonic(), 0.0)
                )
                if not readable:
                    self._process.kill()  # or its late answer would be taken for that to the next question
                    raise ForkServerError("TensorFlow was not imported in time")
                size = fork_server_process.PID.size
                answer, received, _, _ = socket.recv_fds(self._control, size, 1)
            except (BrokenPipeError, ConnectionResetError):
                answer, received = b"", []
            if not answer:
                self._process.wait()
                raise ForkServerError(f"the process that forks workers has ended{last_line(self._stderr)}")
        self._has_forked = True
        return fork_server_process.PID.unpack(answer)[0], received[0]


class ForkedProcess:
    """A worker: as much of ``subprocess.Popen`` as one of a process that is no child of this one can have.

    Attributes:
      pid: its process id.
      stdin, stdout: pipes to it and from it.
      returncode: as ``Popen``'s.
    """

    def __init__(self, pid: int, process: int, stdin: int, stdout: int, status: int) -> None:
        """Takes over descriptors.

        Args:
          pid: its process id.
          process: of the process itself, which no later process of the same id is mistaken for.
          stdin, stdout: pipes.
          status: where its exit status comes from; at its end without one the server is gone.
        """
        self.pid = pid
        self.stdin = open(stdin, "wb")  # noqa: SIM115 - both live as long as the worker
        self.stdout = open(stdout, "rb", buffering=0)  # noqa: SIM115
        self.returncode: int | None = None
        self._process = process
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status, None while it lives."""
        return self._told(0.0)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        status = self._told(None)
        assert status is not None  # there is no end of waiting
        return status

    def outlive_python(self) -> None:
        """Has it end with this process, and not before: when Python closes files."""
        os.dup(self.stdin.fileno())  # which nothing closes

    def kill(self) -> None:
        """Ends it, if it lives."""
        with self._lock:
            self._kill()

    def _told(self, timeout_s: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
                told = os.read(self._status, 16)
                if not told:  # the server is gone, and its workers go, too
                    self._kill()
                    select.select([self._process], [], [])
                self.returncode = int(told) if told else -signal.SIGKILL
                os.close(self._status)
                os.close(self._process)
            return self.returncode

    def _kill(self) -> None:
        if self.returncode is None:
            try:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            except ProcessLookupError:
                return  # it has just ended


def last_line(stderr: IO[bytes]) -> str:
    """``"; last line of its stderr: ..."``, or nothing where it said nothing."""
    # A descriptor of our own: reading through the shared one would move the process's write position.
    with open(f"/proc/self/fd/{stderr.fileno()}", "rb") as own:
        own.seek(0, os.SEEK_END)
        own.seek(max(own.tell() - _TAIL_BYTES, 0))
        lines = own.read().decode(errors="replace").strip().splitlines()
    return f"; last line of its stderr: {lines[-1]}" if lines else ""
