"""Runs something on live workers so that every failure is a status, and the next run finds fresh workers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import tensorflow as tf

from tf_placer.evaluation.measurement import Status
from tf_placer.runtime.memory_watch import MemoryExceeded
from tf_placer.runtime.session import DeadlineExceeded, MalformedGraph, WorkerDied, run_watched
from tf_placer.tensorflow_message import plain
from tf_placer.workers.workers import Workers

_Value = TypeVar("_Value")

# Lines of TensorFlow's messages that only say where the next line comes from.
_IS_HEADING = re.compile(r"From /job:.*:$|Graph execution error:$|Detected at node .*$")


@dataclasses.dataclass(frozen=True)
class Attempt(Generic[_Value]):
    """How it went: a value when ``status`` is OK, else one line that says what went wrong.

    Attributes:
      peak_bytes: device name -> memory it took, of one that took too much, where that can be told.
    """

    status: Status
    message: str = ""
    value: _Value | None = None
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)


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
    """What went wrong, without the Python stack that a session error starts with."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not _IS_HEADING.match(line.strip())
    ]
    # The stack ends with a line "Node: 'name'"; the runtime's own message follows.
    start = max((i + 1 for i, line in enumerate(lines[:-1]) if line.startswith("Node: ")), default=0)
    return f"{type(error).__name__}: {plain(lines[start]) if lines else 'no message'}"
