"""Imports TensorFlow once and forks workers; run by ``ForkServer``, never imported for its effects.

Its argument is a ``ServerSpec``. The parent sends a byte with five descriptors through the socket: a worker's stdin,
stdout and stderr, a pipe for its exit status, and its folder. The answer is the worker's pid with a descriptor of the
process. The server ends when the parent closes the socket or is gone, and after a pause without requests and workers.
Its workers end with it.

Nothing here may start a thread or a device: a fork has only the thread that it is made in.
"""

from __future__ import annotations

import contextlib
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
    """Settings of a server."""

    worker_file: str  # of ``worker_process``, whose ``work`` a worker runs
    parent_pid: int  # the process that must stay alive
    control: int  # descriptor of the socket
    preloads: bool  # the loopback library comes first in LD_PRELOAD
    idle_s: float  # life without requests and workers


def serve(worker: ModuleType, control: socket.socket, parent_pid: int, idle_s: float) -> None:
    """Forks a worker for each byte, and reports its exit status."""
    workers: dict[int, tuple[int, int]] = {}  # descriptor of the process -> pid, pipe for the status
    busy_s = time.monotonic()
    while os.getppid() == parent_pid and (workers or time.monotonic() - busy_s < idle_s):
        readable, _, _ = select.select([control.fileno(), *workers], [], [], _PARENT_POLL_S)
        for ended in workers.keys() & set(readable):
            pid, status = workers.pop(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(ended)
            with contextlib.suppress(BrokenPipeError):  # nobody reads it any more
                os.write(status, str(code).encode())
            os.close(status)
        if control.fileno() in readable:
            request, descriptors, _, _ = socket.recv_fds(control, len(FORK), DESCRIPTORS)
            if not request:
                return
            *streams, status, folder = descriptors
            pid = os.fork()
            if pid == 0:
                control.close()
                for process, (_, pipe) in workers.items():
                    os.close(process)
                    os.close(pipe)
                os.close(status)
                become(worker, streams, folder)
            for descriptor in (*streams, folder):
                os.close(descriptor)
            process = os.pidfd_open(pid)
            workers[process] = pid, status
            socket.send_fds(control, [PID.pack(pid)], [process])
        if readable:
            busy_s = time.monotonic()


def become(worker: ModuleType, streams: list[int], folder: int) -> None:
    """Runs a worker in this process and ends the process."""
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


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    spec = ServerSpec(**json.loads(sys.argv[1]))
    # From its file, because the package around it would take seconds to import.
    module_spec = importlib.util.spec_from_file_location("worker_process", spec.worker_file)
    assert module_spec is not None and module_spec.loader is not None  # it is a .py file
    worker = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = worker  # dataclasses look there
    module_spec.loader.exec_module(worker)
    if spec.preloads:
        worker.forget_preloaded()
    import tensorflow as tf  # noqa: F401 - takes seconds, and every worker has it from here

    with socket.socket(fileno=spec.control) as control:
        serve(worker, control, spec.parent_pid, spec.idle_s)


if __name__ == "__main__":
    main()
