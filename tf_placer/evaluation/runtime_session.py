"""Runs one GraphProgram on live workers, under a deadline that holds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from tf_placer.cluster.local_workers import LocalWorkers
from tf_placer.evaluation.graph_program import GraphProgram, batches

_WATCH_PERIOD_S = 0.2


class DeadlineExceeded(RuntimeError):
    """The program did not finish in time; its workers have been killed."""


class WorkerDied(RuntimeError):
    """A worker process ended while the program ran; the others have been killed."""


def session_config() -> tf.compat.v1.ConfigProto:
    """A session that runs the graph as it is placed, with storage of its own.

    Grappler and the L1 passes move and merge ops across devices, soft placement hides mistakes; all are
    off. ``isolate_session_state`` frees the variables of one placement before the next.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=False, isolate_session_state=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config


@contextlib.contextmanager
def watched(workers: LocalWorkers, deadline_s: float) -> Iterator[None]:
    """Ends the block when the deadline passes or a worker dies, by killing all workers.

    TensorFlow's own timeouts do not cover session creation, and a session on a dead worker can wait
    for ever; a client whose workers are gone always gets an error. After either, start new workers.

    Raises:
      DeadlineExceeded: ``deadline_s`` seconds passed.
      WorkerDied: a worker ended by itself.
    """
    finished = threading.Event()
    failures: list[Exception] = []

    def watch() -> None:
        deadline = time.monotonic() + deadline_s
        while not finished.wait(_WATCH_PERIOD_S):
            death = workers.death()
            if death is not None:
                failures.append(WorkerDied(death))
            elif time.monotonic() > deadline:
                failures.append(DeadlineExceeded(f"not done after {deadline_s} s"))
            if failures:
                workers.kill()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except tf.errors.OpError as error:
        # Losing the connection is news of a death that the watcher may not have seen yet.
        if isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)) and not failures:
            watcher.join(timeout=5 * _WATCH_PERIOD_S)
        if failures:
            raise failures[0] from error
        raise
    finally:
        finished.set()
        watcher.join()
    if failures:  # the block finished in the moment in which its workers died
        raise failures[0]


@contextlib.contextmanager
def open_program(workers: LocalWorkers, program: GraphProgram) -> Iterator[Callable[[], None]]:
    """Loads a program onto the workers, sends its values, and gives the function that runs one step.

    Raises:
      tf.errors.OpError: TensorFlow refused the graph or failed to run it.
      ValueError: the graph is malformed.
    """
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(program.graph_def, name="")
    with tf.compat.v1.Session(workers.target, graph=graph, config=session_config()) as session:
        for batch in batches(program.assignments):
            values = {assignment.placeholder: assignment.value for assignment in batch}
            session.run([graph.get_operation_by_name(a.op) for a in batch], feed_dict=values)
        step = session.make_callable([graph.get_operation_by_name(name) for name in program.step_ops])
        yield lambda: step() and None
