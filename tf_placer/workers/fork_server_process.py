"""Imports TensorFlow once and forks workers from that; run by ``ForkServer``, never imported for its effects.

Its arguments are ``ServerSpec``. The parent sends a byte with five descriptors through the socket: a worker's stdin,
stdout, stderr, where to write its exit status, and its folder. The answer is the worker's pid with a descriptor of that
process. The server ends when the parent closes the socket or is gone, and when nothing was asked for a while and no
worker lives; its workers end with it.

Nothing here may start a thread or a device: a fork has the thread alone that it is made in.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from types import ModuleType

FORK = b"f"
PID = struct.Struct("i")
DESCRIPTORS = 5
_PARENT_POLL_S = 0.5


@dataclasses.dataclass(frozen=True)
class ServerSpec:
    """Settings of a server.

    Attributes:
      worker_file: of ``worker_process``: its ``work`` is what a worker does.
      parent_pid: the process that must stay alive.
      control: descriptor of the socket.
      preloads: it is started with the library of ``loopback.py`` before all that it preloads.
      idle_s: how long it stays where nobody asks and no worker lives.
    """

    worker_file: str
    parent_pid: int
    control: int
    preloads: bool
    idle_s: float


def serve(worker: ModuleType, control: socket.socket, parent_pid: int, idle_s: float) -> None:
    """Forks a worker for each byte, and reports how each ends."""
    workers: dict[
        int, tuple[int, int]
    ] = {}  # descriptor of the process -> its pid, where to write its status
    busy_s = time.monotonic()
    while os.getppid() == parent_pid and (workers or time.monotonic() - busy_s < idle_s):
        readable, _, _ = select.select([control.fileno(), *workers], [], [], _PARENT_POLL_S)
        for ended in workers.keys() & set(readable):
            pid, status = workers.pop(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(ended)
            tell_status(status, code)
        if control.fileno() in readable:
            asked, descriptors, _, _ = socket.recv_fds(control, len(FORK), DESCRIPTORS)
            if not asked:
                return
            *streams, status, folder = descriptors
            pid = os.fork()
            if pid == 0:
                control.close()
                for process, (_, other) in workers.items():
                    os.close(process)
                    os.close(other)
                os.close(status)
                become(worker, streams, folder)
            for descriptor in (*streams, folder):
                os.close(descriptor)
            process = os.pidfd_open(pid)
            workers[process] = pid, status
            socket.send_fds(control, [PID.pack(pid)], [process])
        if readable:
            busy_s = time.monotonic()


def tell_status(descriptor: int, code: int) -> None:
    """Writes an exit status, if anybody still reads it."""
    try:
        os.write(descriptor, str(code).encode())
    except BrokenPipeError:
        return
    finally:
        os.close(descriptor)


def become(worker: ModuleType, streams: list[int], folder: int) -> None:
    """Does a worker's work in this process, which ends with it."""
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.fchdir(folder)
        os.close(folder)
        worker.work(os.getppid())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the loop of the server above must not go on in its fork
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def load(file: str) -> ModuleType:
    """The module in a file, without the package around it, which would take seconds more."""
    spec = importlib.util.spec_from_file_location("worker_process", file)
    assert spec is not None and spec.loader is not None  # it is a .py file
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    spec = ServerSpec(**json.loads(sys.argv[1]))
    worker = load(spec.worker_file)
    if spec.preloads:
        worker.forget_preloaded()
    import tensorflow as tf  # noqa: F401 - what takes seconds, and every worker has it from here

    with socket.socket(fileno=spec.control) as control:
        serve(worker, control, spec.parent_pid, spec.idle_s)


if __name__ == "__main__":
    main()
