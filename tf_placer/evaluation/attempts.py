"""Attempts on live workers: each failure is a status, and the next attempt finds fresh workers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import tensorflow as tf

from colocation.tensorflow_internals import process_config
from tf_placer.base.arguments import plain
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import Status
from tf_placer.runtime.graph_program import (
    DeadlineExceeded,
    GraphProgram,
    LoadedProgram,
    MalformedGraph,
    WorkerDied,
    open_program,
    process_session_config,
    run_watched,
)
from tf_placer.runtime.timing import NO_LIMIT, Limit, RuntimeConfig, time_steps
from tf_placer.workers.local_workers import LocalWorkers, Workers, peaks_bytes

_Value = TypeVar("_Value")

# Lines of TensorFlow's messages that only announce the next line.
_IS_HEADING = re.compile(r"From /job:.*:$|Graph execution error:$|Detected at node .*$")
# TensorFlow's allocator for oneDNN leaves smaller tensors to malloc and does not count them.
SMALL_VALUE_BYTES = 256 << 10
UNPLACED_DEVICE = "/job:unplaced/replica:0/task:0/device:CPU:0"
"""Device of an unplaced program, in a process that has the whole machine."""


class MemoryExceeded(RuntimeError):
    """A program took more memory than a device is described to have."""

    def __init__(self, message: str, peak_bytes: dict[str, int]) -> None:
        super().__init__(message)
        self.peak_bytes = peak_bytes  # device name -> peak until the end, where it is known


@dataclasses.dataclass(frozen=True)
class Attempt(Generic[_Value]):
    """Result of an attempt: a value when ``status`` is OK, else one line about the failure."""

    status: Status
    message: str = ""
    value: _Value | None = None
    # By device name, where it is known (``WorkerMemory``), of a program that was timed or took too much.
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def value_or(self, error: type[Exception], what: str = "") -> _Value:
        """The value; without one raises ``error`` with ``what``, the status and its message."""
        if self.value is None:
            raise error(f"{what}{self.status.name}: {self.message}")
        return self.value


def try_on(
    workers: Workers,
    deadline_s: float,
    function: Callable[[str], _Value],
    check: Callable[[], None] = lambda: None,
) -> Attempt[_Value]:
    """Calls ``function`` with the workers' session target, for ``deadline_s`` at most; a graph's failure never raises.

    Workers are started if need be, and closed after a failure that may have damaged them: the next use starts fresh
    ones. ``check`` is that of ``run_watched``, and may raise MemoryExceeded.

    Raises:
      WorkerError: the workers cannot be started at all.
    """
    workers.start()
    target = workers.target
    try:
        return Attempt(Status.OK, "", run_watched(workers, deadline_s, lambda: function(target), check))
    except KeyboardInterrupt:
        workers.close()  # or the step would run on and disturb the next timing
        raise
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, MalformedGraph) as error:
        return Attempt(Status.ILLEGAL, _one_line(error))
    except MemoryExceeded as error:
        workers.close()
        return Attempt(Status.OUT_OF_MEMORY, str(error), peak_bytes=error.peak_bytes)
    except (DeadlineExceeded, WorkerDied, tf.errors.OpError) as error:
        workers.close()
        status = Status.CRASHED
        # TensorFlow has a deadline of its own for each call, the same one.
        if isinstance(error, DeadlineExceeded | tf.errors.DeadlineExceededError):
            status = Status.TIMEOUT
        elif isinstance(error, tf.errors.ResourceExhaustedError):
            status = Status.OUT_OF_MEMORY
        return Attempt(status, _one_line(error) if isinstance(error, tf.errors.OpError) else str(error))


def _one_line(error: Exception) -> str:
    """Message of an error without the Python stack at the start of a session error."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not _IS_HEADING.match(line.strip())
    ]
    # The stack ends with a line "Node: 'name'"; the runtime's own message follows.
    start = max((i + 1 for i, line in enumerate(lines[:-1]) if line.startswith("Node: ")), default=0)
    return f"{type(error).__name__}: {plain(lines[start]) if lines else 'no message'}"


OpenProgram = Callable[[GraphProgram], contextlib.AbstractContextManager[LoadedProgram]]
"""Loads a program to run it step by step, and closes it."""


def whole_machine(cluster: Cluster) -> LocalWorkers:
    """One worker with all cores of this process, for any cluster."""
    device = dataclasses.replace(cluster.devices[0], name=UNPLACED_DEVICE, type="CPU", address="")
    ours = process_config()
    return LocalWorkers(
        Cluster("this machine", (device,), (), kind="local"),
        ours.inter_op_parallelism_threads,
        pinned=False,
        intra_op_threads=ours.intra_op_parallelism_threads,
    )


def try_programs_as_called(
    cluster: Cluster, function: Callable[[OpenProgram], _Value], deadline_s: float
) -> Attempt[_Value]:
    """As ``RuntimeEvaluator.try_programs``, with programs that run like functions of this process.

    They have the whole machine, this process's graph optimizations, and the device ``UNPLACED_DEVICE``.
    """
    with contextlib.closing(whole_machine(cluster)) as workers:
        return try_on(
            workers,
            deadline_s,
            lambda target: function(
                lambda program: open_program(target, program, deadline_s, process_session_config)
            ),
        )


def time_program(
    workers: Workers,
    program: GraphProgram,
    config: RuntimeConfig,
    limit: Limit = NO_LIMIT,
) -> Attempt[list[float]]:
    """Step times of one program (``time_steps``), whose memory is watched; a failure of the program never raises.

    Raises:
      WorkerError: the workers cannot be started at all.
    """
    workers.start()
    memories = workers.memories  # not their successors': the thread of an abandoned call may come back late
    small_bytes = program.resident_bytes(below=SMALL_VALUE_BYTES)
    is_loaded = False  # the memory for loading does not count
    peak_bytes: dict[str, int] = {}

    def check() -> None:
        for memory in memories if is_loaded else ():
            excess = memory.excess()
            if excess is not None:
                raise MemoryExceeded(excess, peaks_bytes(memories))

    def run(target: str) -> list[float]:
        nonlocal is_loaded
        for memory in memories:
            memory.settle()
        with open_program(target, program, config.deadline_s) as loaded:
            for memory in memories:
                memory.begin(small_bytes.get(memory.device, 0))
            is_loaded = True
            step_s = time_steps(loaded.step, config, limit=limit)
            check()  # a short peak may lie between two checks of the watcher
            peak_bytes.update(peaks_bytes(memories))
            return step_s

    attempt = try_on(workers, config.deadline_s, run, check)
    if any(memory.is_mute for memory in memories):
        workers.close()  # one hangs, and so would the next program: that starts fresh ones
    return dataclasses.replace(attempt, peak_bytes=attempt.peak_bytes or dict(peak_bytes))
