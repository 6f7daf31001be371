"""Attempts on live workers: every failure is a status, and the next attempt finds fresh workers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import tensorflow as tf

from colocation.tensorflow_internals import process_config
from tf_placer.base.arguments import plain
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.measurement import Status
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
from tf_placer.runtime.memory import MemoryExceeded, MemoryWatch
from tf_placer.runtime.timing import NO_LIMIT, Limit, RuntimeConfig, time_steps
from tf_placer.workers.local_workers import LocalWorkers, Workers

_Value = TypeVar("_Value")

# Lines of TensorFlow's messages that only say where the next line comes from.
_IS_HEADING = re.compile(r"From /job:.*:$|Graph execution error:$|Detected at node .*$")


@dataclasses.dataclass(frozen=True)
class Attempt(Generic[_Value]):
    """Result of an attempt: a value when ``status`` is OK, else one line that says what went wrong.

    Attributes:
      peak_bytes: device name -> memory it took, of one that took too much, where that can be told.
    """

    status: Status
    message: str = ""
    value: _Value | None = None
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def value_or(self, error: type[Exception], what: str = "") -> _Value:
        """The value; raises ``error`` where there is none, with the status and its message behind ``what``."""
        if self.value is None:
            raise error(f"{what}{self.status.name}: {self.message}")
        return self.value


def try_on(
    workers: Workers,
    deadline_s: float,
    function: Callable[[str], _Value],
    check: Callable[[], None] = lambda: None,
) -> Attempt[_Value]:
    """Calls ``function`` with the workers' session target; what the graph does never raises.

    Args:
      workers: started if need be; closed, so that the next use starts fresh ones, after a failure that may have
        damaged them.
      deadline_s: most seconds for the call.
      function: uses sessions on the target.
      check: see ``run_watched``; may raise MemoryExceeded.

    Raises:
      WorkerError: the workers cannot be started at all.
    """
    workers.start()
    target = workers.target
    try:
        return Attempt(Status.OK, "", run_watched(workers, deadline_s, lambda: function(target), check))
    except KeyboardInterrupt:
        workers.close()  # or the step would go on beside whatever is timed next
        raise
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, MalformedGraph) as error:
        return Attempt(Status.ILLEGAL, _one_line(error))
    except MemoryExceeded as error:
        workers.close()
        return Attempt(Status.OUT_OF_MEMORY, str(error), peak_bytes=error.peak_bytes)
    except (DeadlineExceeded, WorkerDied, tf.errors.OpError) as error:
        workers.close()
        return Attempt(
            _status_of(error), _one_line(error) if isinstance(error, tf.errors.OpError) else str(error)
        )


def _status_of(error: Exception) -> Status:
    # TensorFlow has a deadline of its own for each call, the same one.
    if isinstance(error, DeadlineExceeded | tf.errors.DeadlineExceededError):
        return Status.TIMEOUT
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return Status.OUT_OF_MEMORY
    return Status.CRASHED


def _one_line(error: Exception) -> str:
    """Message of an error, without the Python stack that a session error starts with."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not _IS_HEADING.match(line.strip())
    ]
    # The stack ends with a line "Node: 'name'"; the runtime's own message follows.
    start = max((i + 1 for i, line in enumerate(lines[:-1]) if line.startswith("Node: ")), default=0)
    return f"{type(error).__name__}: {plain(lines[start]) if lines else 'no message'}"


OpenProgram = Callable[[GraphProgram], contextlib.AbstractContextManager[LoadedProgram]]
"""Loads a program where it can be run step by step, and closes it."""

UNPLACED_DEVICE = "/job:unplaced/replica:0/task:0/device:CPU:0"
"""Device of a program as it is, in a process that has the whole machine."""


@dataclasses.dataclass(frozen=True)
class ProgramRun:
    """Measurements of one program that ran to its end.

    Attributes:
      step_s: of the timed steps.
      peak_bytes: device name -> most memory it took, of the devices that can be told (``WorkerMemory``).
    """

    step_s: list[float]
    peak_bytes: Mapping[str, int]


def whole_machine(cluster: Cluster) -> LocalWorkers:
    """One worker that may use all that this process may, whatever the cluster's devices are."""
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
    """As ``RuntimeEvaluator.try_programs``, with programs that run as this process runs its functions.

    They have the whole machine, this process's graph optimizations, and the one device ``UNPLACED_DEVICE``.

    Args:
      cluster: whose first device says how much memory there is.
      function, deadline_s: as there.

    Raises:
      WorkerError: the process cannot be started at all.
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
    incumbent_s: Sequence[float] = (),
    limit: Limit = NO_LIMIT,
) -> Attempt[ProgramRun]:
    """Times one program (``time_steps``) and watches its memory; never raises for what the program does.

    Raises:
      WorkerError: the workers cannot be started at all.
    """
    workers.start()
    watch = MemoryWatch(workers.memories)

    def run(target: str) -> ProgramRun:
        watch.settle()
        with open_program(target, program, config.deadline_s) as loaded:
            watch.begin(program)
            step_s = time_steps(loaded.step, config, incumbent_s, limit=limit)
            watch.check()  # a short peak may lie between two checks of the watcher
            return ProgramRun(step_s, watch.peak_bytes())

    attempt = try_on(workers, config.deadline_s, run, watch.check)
    if watch.is_mute:
        workers.close()  # the next program starts fresh ones
    return attempt
