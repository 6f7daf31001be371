"""Runs one GraphProgram on live workers, under a deadline that holds."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import process_config
from tf_placer.runtime.graph_program import GraphProgram, batches
from tf_placer.workers.workers import Workers

_Result = TypeVar("_Result")

_WATCH_PERIOD_S = 0.2
_OBITUARY_S = 2.0  # from a lost connection until the process counts as dead
_UNWIND_S = 2.0  # for a client to notice that its workers are gone


class MalformedGraph(RuntimeError):
    """TensorFlow cannot import the graph."""


class DeadlineExceeded(RuntimeError):
    """The program did not finish in time; its workers have been killed."""


class WorkerDied(RuntimeError):
    """A worker process ended while the program ran; the others have been killed."""


def session_config(deadline_s: float = 0.0) -> tf.compat.v1.ConfigProto:
    """A session that runs the graph as it is placed, with storage of its own.

    Grappler and the L1 passes move and merge ops across devices, soft placement hides mistakes; all are
    off. ``isolate_session_state`` frees the variables of one placement before the next.

    Args:
      deadline_s: most seconds for one call to a remote session; 0 for no end.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=False, isolate_session_state=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    config.operation_timeout_in_ms = round(deadline_s * 1000)
    return config


def process_session_config(deadline_s: float = 0.0) -> tf.compat.v1.ConfigProto:
    """A session that optimizes a graph as this process does its functions, and places like it what has no device.

    Args:
      deadline_s: most seconds for one call to a remote session; 0 for no end.
    """
    ours = process_config()
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=ours.allow_soft_placement, isolate_session_state=True
    )
    config.graph_options.CopyFrom(ours.graph_options)
    config.operation_timeout_in_ms = round(deadline_s * 1000)
    return config


def run_watched(
    workers: Workers,
    deadline_s: float,
    function: Callable[[], _Result],
    check: Callable[[], None] = lambda: None,
) -> _Result:
    """Calls ``function``, which uses sessions on ``workers``, and stops waiting when it cannot end well.

    The call has a thread of its own, because a client can wait for ever: opening a session on a dead
    worker retries silently, and TensorFlow's own timeout is not asked everywhere. When the deadline passes or
    a worker dies, all workers are killed, which ends most calls at once; a call that still hangs is
    left to its session's ``operation_timeout_in_ms``. After that, start new workers.

    Args:
      workers: started.
      deadline_s: most seconds for the call.
      function: what to call.
      check: called five times a second meanwhile; what it raises ends the call like a passed deadline.

    Raises:
      DeadlineExceeded: ``deadline_s`` seconds passed.
      WorkerDied: a worker ended by itself, before or during the call.
      Exception: whatever else ``function`` or ``check`` raised.
    """
    future: concurrent.futures.Future[_Result] = concurrent.futures.Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - handed over whole to the waiting thread
            future.set_exception(error)

    deadline = time.monotonic() + deadline_s
    _raise_if_dead(workers)
    threading.Thread(target=call, daemon=True, name="tf_placer_session").start()
    while not concurrent.futures.wait([future], timeout=_WATCH_PERIOD_S).done:
        try:
            _raise_if_dead(workers)
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"not done after {deadline_s:g} s")
            check()
        except Exception:
            workers.kill()
            concurrent.futures.wait([future], timeout=_UNWIND_S)
            raise
    try:
        return future.result()
    except (tf.errors.UnavailableError, tf.errors.AbortedError):
        # A lost connection may be news of a death that has not been recorded yet.
        obituary = time.monotonic() + _OBITUARY_S
        while time.monotonic() < obituary:
            _raise_if_dead(workers)
            time.sleep(_WATCH_PERIOD_S)
        raise


def _raise_if_dead(workers: Workers) -> None:
    death = workers.death()
    if death is not None:
        raise WorkerDied(death)


class LoadedProgram:
    """A program on its workers, with its values sent; made by ``open_program``."""

    def __init__(self, session: tf.compat.v1.Session, program: GraphProgram) -> None:
        self._session = session
        self._wanted: list[Any] = [session.graph.get_operation_by_name(name) for name in program.step_ops]
        self._wanted += [session.graph.get_tensor_by_name(name) for name in program.fetches]
        fed = [session.graph.get_tensor_by_name(name) for name, _ in program.feeds]
        self._fed = dict(program.feeds)
        self._num_fetches = len(program.fetches)
        self._run = session.make_callable(self._wanted, feed_list=fed)

    def step(self) -> None:
        """Runs one step."""
        self._run(*self._fed.values())

    def outputs(self) -> list[np.ndarray]:
        """Runs one step and returns what the program fetches."""
        found = self._run(*self._fed.values())
        return list(found[len(found) - self._num_fetches :])

    def read(self, names: Sequence[str]) -> list[np.ndarray]:
        """Values of tensors that need no step."""
        return list(self._session.run(list(names)))

    def traced_step(self) -> tf.compat.v1.RunMetadata:
        """Runs one step, slower, and gives its ``step_stats`` and ``partition_graphs``."""
        options = tf.compat.v1.RunOptions(
            trace_level=tf.compat.v1.RunOptions.FULL_TRACE, output_partition_graphs=True
        )
        metadata = tf.compat.v1.RunMetadata()
        self._session.run(self._wanted, self._fed, options=options, run_metadata=metadata)
        return metadata


@contextlib.contextmanager
def open_program(
    target: str,
    program: GraphProgram,
    deadline_s: float,
    config_of: Callable[[float], tf.compat.v1.ConfigProto] = session_config,
) -> Iterator[LoadedProgram]:
    """Loads a program onto workers and sends its values.

    Args:
      target: of the workers; taken before the call, because who runs late must not reach their successors.
      program: what to run.
      deadline_s: most seconds for one call to the session.
      config_of: the session's configuration for such a deadline.

    Raises:
      MalformedGraph: TensorFlow cannot import the graph.
      tf.errors.OpError: it refused the graph or failed to run it.
    """
    graph = tf.Graph()
    with graph.as_default():
        try:
            tf.import_graph_def(program.graph_def, name="")
        except ValueError as error:
            raise MalformedGraph(str(error)) from error
    config = config_of(deadline_s)
    # Not the session's own block: that closes in a thread, which dies noisily if the workers have.
    with contextlib.closing(tf.compat.v1.Session(target, graph=graph, config=config)) as session:
        for batch in batches(program.assignments):
            values = {assignment.placeholder: assignment.value for assignment in batch}
            session.run([graph.get_operation_by_name(a.op) for a in batch], feed_dict=values)
        yield LoadedProgram(session, program)
