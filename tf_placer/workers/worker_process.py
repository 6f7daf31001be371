"""A TensorFlow server process, forked by ``fork_server_process`` from one that has imported TensorFlow.

``LocalWorkers`` writes one line of JSON (``WorkerSpec``) to stdin and keeps the pipe open. The worker prints ``READY``
when its server accepts sessions; where the network could reach the server, it prints ``OPEN`` and ends. From then on
each byte on stdin is a question about memory (``RESTART_PEAK``, ``TELL_PEAK``) with one line of JSON as its answer. The
end of stdin, or another parent process, ends the worker at once.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

READY, OPEN = "READY", "OPEN"
RESTART_PEAK, TELL_PEAK = b"r", b"t"
_PARENT_POLL_S = 0.5
_CPU = "CPU:0"


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """Settings of one worker."""

    job: str
    task: int
    addresses: Sequence[str]  # [tasks] host:port of every task of the job, on the loopback
    cores: Sequence[int]  # to run on
    sees_gpus: bool
    intra_op_threads: int  # inside one op; 0 lets TensorFlow choose
    # Threads that run ops; 0 lets TensorFlow choose. With 1 a worker's sends wait until its executor is idle, which
    # makes a split program slower than one device; with 2 or more they start at once.
    inter_op_threads: int
    on_loopback: bool  # the loopback library is preloaded; if it has no effect, the worker must not listen
    environment: Mapping[str, str]  # complete
    op_libraries: Sequence[str] = ()  # files with ops that TensorFlow lacks


def forget_preloaded() -> None:
    """Removes the first preloaded library, named by its descriptor, from the environment of child processes."""
    library, _, users = os.environ.pop("LD_PRELOAD").partition(":")
    os.close(int(pathlib.PurePath(library).name))
    if users:
        os.environ["LD_PRELOAD"] = users


def is_on_loopback() -> bool:
    """True if a socket that is bound to every interface is bound to the loopback alone."""
    with socket.socket() as trial:
        trial.bind(("", 0))
        return str(trial.getsockname()[0]) == "127.0.0.1"


def serve_parent(parent_pid: int, answers: int, answer: Callable[[bytes], object]) -> None:
    """Answers each byte of stdin by a line on a descriptor; ends this process when stdin closes or the parent is gone.

    ``answer`` must not raise.
    """
    # Not prctl(PR_SET_PDEATHSIG): that fires when the *thread* that started the worker ends, and a search may
    # start its workers from a thread of its own.
    stdin = sys.stdin.fileno()
    while os.getppid() == parent_pid:
        readable, _, _ = select.select([stdin], [], [], _PARENT_POLL_S)
        if readable:
            question = os.read(stdin, 1)
            if not question:
                break
            os.write(answers, json.dumps(answer(question)).encode() + b"\n")
    os.kill(os.getpid(), signal.SIGKILL)  # TensorFlow's servers have no orderly end


def answer_about_memory(question: bytes) -> int | None:
    """Peak bytes of tensors since the last ``RESTART_PEAK``; None where the allocator does not count.

    TensorFlow's allocator for oneDNN counts, the plain one does not. ``RESTART_PEAK`` also returns malloc's unused
    memory; the allocator for oneDNN never returns any.
    """
    import tensorflow as tf  # imported by the process that this one is a fork of

    try:
        if question == RESTART_PEAK:
            ctypes.CDLL(None).malloc_trim(0)
            tf.config.experimental.reset_memory_stats(_CPU)
        return int(tf.config.experimental.get_memory_info(_CPU)["peak"])
    except Exception:  # noqa: BLE001 - whatever it is, the worker must go on watching its parent
        return None


def work(parent_pid: int) -> None:
    """Runs the server of the ``WorkerSpec`` on stdin, until the process is ended or its parent is gone."""
    # Unbuffered, so that everything behind the line, end included, is left for ``serve_parent``.
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the parent closed the pipe before it wrote a worker spec")
    spec = WorkerSpec(**json.loads(line))
    os.environ.clear()
    os.environ.update(spec.environment)
    if spec.on_loopback and not is_on_loopback():
        print(OPEN, flush=True)
        return
    for thread in os.listdir("/proc/self/task"):  # threads that start later inherit it
        os.sched_setaffinity(int(thread), spec.cores)
    answers = os.dup(sys.stdout.fileno())
    watch = threading.Thread(
        target=serve_parent, args=(parent_pid, answers, answer_about_memory), daemon=True
    )
    watch.start()

    import tensorflow as tf  # imported by the process that this one is a fork of; its threads are started from here on

    for library in spec.op_libraries:
        tf.load_op_library(library)
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=spec.intra_op_threads,
        inter_op_parallelism_threads=spec.inter_op_threads,
        allow_soft_placement=False,
    )
    config.gpu_options.allow_growth = True
    if not spec.sees_gpus:
        config.device_count["GPU"] = 0
        tf.config.set_visible_devices([], "GPU")  # or a question about memory would open them
    server = tf.distribute.Server({spec.job: list(spec.addresses)}, spec.job, spec.task, config=config)
    print(READY, flush=True)
    # Only answers go to the pipe from here on: a program that prints a lot would block.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server.join()
