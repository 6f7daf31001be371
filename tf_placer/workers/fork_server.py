"""A process that has imported TensorFlow and forks workers, which may listen on the loopback only.

An import takes seconds, a fork milliseconds. Not ``multiprocessing``'s fork server: that one imports the script of the
user a second time, is one for all environments, and has neither an end after a pause nor a preloaded library.
"""

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
from tf_placer.base.native import Library, compiled, with_kept_compilations
from tf_placer.workers import fork_server_process, worker_process

OPEN_WORKERS = "TF_PLACER_OPEN_WORKERS"
REMEDY = f"--open_workers or {OPEN_WORKERS}=1 goes on without, on a machine whose network you trust"
IDLE_S = 60.0
# Streaming of eager ops to other processes; TensorFlow reads it at each op, so a change needs no new server.
STREAMING = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"
# Variables that TensorFlow and its libraries read when loaded: a change of them needs a new server.
_READ_WHEN_LOADED = (
    "CUDA", "DNNL", "GLIBC", "GOMP", "GRPC", "KMP", "LD_", "MALLOC", "MKL", "NVIDIA", "OMP", "ONEDNN",
    "OPENBLAS", "PYTHON", "TF_", "XLA_",
)  # fmt: skip
_LOOPBACK_INTERFACE = b"lo"
_TAIL_BYTES = 2000  # of an stderr, searched for its last line
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
_servers: dict[tuple[object, ...], ForkServer] = {}
_starting = threading.Lock()


def loopback_library() -> pathlib.Path:
    """Library that a worker preloads to listen on the loopback only; InputError if compiling fails."""
    try:
        return compiled(LOOPBACK_LIBRARY)
    except InputError as error:
        raise InputError(f"{error}; {REMEDY}") from error


@contextlib.contextmanager
def preloading(library: pathlib.Path | None) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """Yields the environment of a process that preloads a library first, and descriptors to inherit.

    The library is named by its descriptor, because the list of preloaded libraries cannot hold blanks and colons.
    """
    if library is None:
        yield dict(os.environ), ()
        return
    descriptor = os.open(library, os.O_RDONLY)
    try:
        preloaded, users = f"/proc/self/fd/{descriptor}", os.environ.get("LD_PRELOAD", "")
        yield {**os.environ, "LD_PRELOAD": f"{preloaded}:{users}" if users else preloaded}, (descriptor,)
    finally:
        os.close(descriptor)


def are_workers_open() -> bool:
    """True if the environment asks for workers that listen on every interface."""
    word = os.environ.get(OPEN_WORKERS, "0")
    if word not in ("", "0", "1"):
        raise InputError(f"{OPEN_WORKERS} is {word!r}; give 1 or 0")
    return word == "1"


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Sets a variable of the environment for workers that are started in the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def workers_opened(opened: bool) -> contextlib.AbstractContextManager[None]:
    """Lets workers that are started in the block listen on every interface, if ``opened``."""
    return environment(OPEN_WORKERS, "1") if opened else contextlib.nullcontext()


@contextlib.contextmanager
def own_listeners_confined() -> Iterator[None]:
    """Confines to the loopback whatever this process begins to listen on in the block; InputError if that fails.

    A process that uses workers' devices as its own runs a server for them, and can preload nothing any more.
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


def _confine(listener: socket.socket) -> None:
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK_INTERFACE)
    except OSError as error:
        raise InputError(
            f"this process cannot keep its TensorFlow server off the network: {error.strerror}; Linux 5.7 lets every "
            f"process do so; {REMEDY}"
        ) from error


def _listeners() -> dict[str, int]:
    """Name -> descriptor of the internet sockets that this process listens on."""
    listeners = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, as the listing's own descriptor is
            name = os.readlink(f"/proc/self/fd/{number}")
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as candidate:
                is_internet = candidate.family in (socket.AF_INET, socket.AF_INET6)
                if is_internet and candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    listeners[name] = int(number)
    return listeners


class ForkServerError(RuntimeError):
    """A fork server has ended or does not answer; the message ends with the last line of its stderr."""


def fork_server(preload: pathlib.Path | None) -> ForkServer:
    """This process's server that preloads ``preload``, started if need be; may still be importing TensorFlow."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_READ_WHEN_LOADED) and name != STREAMING
    }
    # By pid, because a fork of this process has no part in the socket. By the worker's file, which tests exchange.
    key = (os.getpid(), preload, worker_process.__file__, tuple(sorted(variables.items())))
    with _starting:
        server = _servers.get(key)
        if server is None or not server.is_alive:
            if server is not None:
                server.close()
            server = _servers[key] = ForkServer(preload)
        return server


def has_forked() -> bool:
    """True if a server of this process has imported TensorFlow, so that further workers start in a moment."""
    return any(server.is_alive and server.has_forked for server in _own_servers())


def end_unused() -> None:
    """Ends the servers of this process that have forked no worker."""
    for server in _own_servers():
        if not server.has_forked:
            server.close()


def _own_servers() -> list[ForkServer]:
    with _starting:
        return [server for key, server in _servers.items() if key[0] == os.getpid()]


class ForkServer:
    """A process that forks workers and ends with this process, or after an idle minute."""

    has_forked = False  # a worker was made, so TensorFlow is imported

    def __init__(self, preload: pathlib.Path | None) -> None:
        """Starts the process, with a library to preload; its import of TensorFlow continues in the background."""
        self._lock = threading.Lock()
        self._parent = os.getpid()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        self._control, theirs = socket.socketpair()
        with preloading(preload) as (variables, descriptors), theirs:
            spec = fork_server_process.ServerSpec(
                worker_file=worker_process.__file__,
                parent_pid=self._parent,
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
                env=with_kept_compilations(variables),
                pass_fds=(*descriptors, theirs.fileno()),
            )
        self.pid = self._process.pid
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, deadline_s: float) -> ForkedProcess:
        """A new worker, which waits for a line with its ``WorkerSpec`` on stdin.

        Raises ForkServerError if the server has ended, or does not answer until the deadline, in ``time.monotonic``.
        """
        with contextlib.ExitStack() as on_failure, contextlib.ExitStack() as sent:
            stderr = on_failure.enter_context(tempfile.TemporaryFile())
            stdin, to_stdin = os.pipe()
            from_stdout, stdout = os.pipe()
            from_status, status = os.pipe()
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
            for descriptor in (stdin, stdout, status, folder):
                sent.callback(os.close, descriptor)
            for descriptor in (to_stdin, from_stdout, from_status):
                on_failure.callback(os.close, descriptor)
            with self._lock:
                try:
                    descriptors = [stdin, stdout, stderr.fileno(), status, folder]
                    socket.send_fds(self._control, [fork_server_process.FORK], descriptors)
                    timeout_s = max(deadline_s - time.monotonic(), 0.0)
                    if not select.select([self._control], [], [], timeout_s)[0]:
                        self._process.kill()  # or its late answer would be taken for that to the next request
                        raise ForkServerError("TensorFlow was not imported in time")
                    size = fork_server_process.PID.size
                    answer, received, _, _ = socket.recv_fds(self._control, size, 1)
                except (OSError, ValueError) as error:
                    # Who finds that the server has ended closes it, maybe while another thread comes here.
                    is_closed = self._control.fileno() < 0
                    if not is_closed and not isinstance(error, (BrokenPipeError, ConnectionResetError)):
                        raise
                    answer, received = b"", []
                if not answer:
                    self._process.wait()
                    cause = "" if self._stderr.closed else last_line(self._stderr)
                    raise ForkServerError(f"the process that forks workers has ended{cause}")
            self.has_forked = True
            on_failure.pop_all()
        (pid,) = fork_server_process.PID.unpack(answer)
        return ForkedProcess(pid, received[0], to_stdin, from_stdout, stderr, from_status)

    def close(self) -> None:
        """Ends the server and its workers. May be called twice; does nothing in a fork of this process."""
        if os.getpid() != self._parent:
            return
        atexit.unregister(self.close)
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._stderr.close()

    def outlive_python(self) -> None:
        """Lets the server live until this process ends, beyond Python's exit."""
        atexit.unregister(self.close)
        os.dup(self._control.fileno())  # never closed


class ForkedProcess:
    """A worker, with the part of ``subprocess.Popen`` that is possible for a process that is no child of this one."""

    def __init__(
        self, pid: int, process: int, stdin: int, stdout: int, stderr: IO[bytes], status: int
    ) -> None:
        """Takes over descriptors: of the process, which unlike its id is never used again, of pipes and of a file.

        ``status`` is the source of the exit status; at the end of that without a status the server is gone.
        """
        self.pid = pid
        self.stdin = open(stdin, "wb")  # noqa: SIM115 - both live as long as the worker
        self.stdout = open(stdout, "rb", buffering=0)  # noqa: SIM115
        self.stderr = stderr
        self.returncode: int | None = None
        self._process = process
        self._status = status
        self._lock = threading.RLock()

    def poll(self, timeout_s: float | None = 0.0) -> int | None:
        """Exit status, negative for a signal; None while the worker lives.

        Args:
          timeout_s: most seconds to wait for its end; None for no limit.
        """
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
                text = os.read(self._status, 16)
                if not text:  # the server is gone, and its workers follow
                    self.kill()
                    select.select([self._process], [], [])
                self.returncode = int(text) if text else -signal.SIGKILL
                os.close(self._status)
                os.close(self._process)
            return self.returncode

    def kill(self) -> None:
        """Ends the worker unless ended."""
        with self._lock, contextlib.suppress(ProcessLookupError):  # it has just ended
            if self.returncode is None:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def outlive_python(self) -> None:
        """Lets the worker live until this process ends, beyond Python's exit, which closes files."""
        os.dup(self.stdin.fileno())  # never closed


def last_line(stderr: IO[bytes]) -> str:
    """``"; last line of its stderr: ..."``, or "" for an empty stderr."""
    # With another descriptor: reading through the shared one would move the process's write position.
    with open(f"/proc/self/fd/{stderr.fileno()}", "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _TAIL_BYTES, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return f"; last line of its stderr: {lines[-1]}" if lines else ""
