"""A placed graph as a runnable program, with resident inputs or as a call, and its run under a deadline."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from colocation.op_facts import REFERENCE_VARIABLES, control_inputs, copy_of, new_node
from colocation.tensorflow_internals import process_config
from tf_placer.base import interrupt
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item, can_stand_in
from tf_placer.graph.program import check_restorable
from tf_placer.workers.local_workers import Workers

_Result = TypeVar("_Result")
_SCOPE = "tf_placer_program"

# One gRPC message holds at most 2 GB; weights are sent in messages well below that.
_MAX_MESSAGE_BYTES = 256 << 20
_MAX_VALUE_BYTES = (2 << 30) - (1 << 20)


@dataclasses.dataclass(frozen=True)
class Assignment:
    """One value to send before the first step."""

    placeholder: str  # name of the tensor to feed ("node:0")
    op: str  # name of the assigning op
    value: np.ndarray
    device: str = ""  # of the variable


@dataclasses.dataclass(frozen=True)
class GraphProgram:
    """A graph and the ops of one step."""

    graph_def: tf.compat.v1.GraphDef  # placed, with ops that hold and assign values
    assignments: tuple[Assignment, ...]  # values of the variables and of resident inputs, to send once
    # Of outputs and side effects; all together are one step. They are fetched themselves, not as control inputs of
    # another op, because Grappler removes ops that only such an op waits for.
    step_ops: tuple[str, ...]
    feeds: tuple[tuple[str, np.ndarray], ...] = ()  # name and value of tensors to send with every step
    fetches: tuple[str, ...] = ()  # names of the tensors that every step returns

    def resident_bytes(self, below: float = math.inf) -> dict[str, int]:
        """Device -> sum of the bytes of values that are smaller than ``below``."""
        resident: dict[str, int] = {}
        for assignment in self.assignments:
            if assignment.value.nbytes < below:
                resident[assignment.device] = resident.get(assignment.device, 0) + assignment.value.nbytes
        return resident


def build_program(item: Item, placed: tf.compat.v1.GraphDef, is_call: bool = False) -> GraphProgram:
    """Makes a placed graph runnable, with inputs and variables on their devices.

    Where plans are compared a timed step must not include the sending of its inputs, so every fed ``Placeholder``
    becomes a read of a variable on the placeholder's device. So does each element of an iterator of this process, with
    zeros for values: making the next element is not timed. No value is put in the graph, which is limited to 2 GB.

    ``placed`` is the item's graph with a device on every node. With ``is_call`` inputs are sent and outputs return with
    every step, as in a call from another process.

    Raises:
      InputError: the item runs nothing or needs this process, or a value cannot be restored or is too large for a
        message.
    """
    graph_def = copy_of(placed)
    node_of_name = {node.name: node for node in graph_def.node}
    assignments = []
    for i, feed in enumerate(() if is_call else item.feeds):
        check_restorable(feed.node, feed.dtype)
        node = node_of_name[feed.node]
        assignments.append(_make_resident(graph_def, node, feed.value, feed.dtype, f"{_SCOPE}/input_{i}"))
    for i, variable in enumerate(item.variables):
        check_restorable(variable.node, variable.dtype)
        handle = node_of_name[variable.node]
        assignments.append(_add_assignment(graph_def, handle, variable.value, f"{_SCOPE}/variable_{i}"))
    for i, capture in enumerate(item.host_captures):
        if not can_stand_in(item.graph_def, capture):
            raise InputError(f"{item.name!r} cannot run by itself: {item.why_not_standalone}")
        assignments += _stand_in(item, graph_def, node_of_name, capture.node, f"{_SCOPE}/iterator_{i}")
    step_ops = tuple(dict.fromkeys([*(name.partition(":")[0] for name in item.fetches), *item.side_effects]))
    if not step_ops:
        raise InputError(f"{item.name!r} has neither outputs nor side effects, so there is nothing to run")
    if not is_call:
        return GraphProgram(graph_def, tuple(assignments), step_ops)
    feeds = tuple((f"{feed.node}:0", feed.value) for feed in item.feeds)
    fed = {feed.node for feed in item.feeds}  # an input that is also an output is neither run nor sent
    outputs_of = dict(zip(item.index.names, item.outputs, strict=True))
    fetches = []
    for fetch in dict.fromkeys(item.fetches):
        op, _, output = fetch.partition(":")
        # A handle means nothing in another process.
        is_handle = outputs_of[op][int(output or 0)].dtype in (tf.resource, tf.variant)
        fetches += [] if is_handle or op in fed else [fetch]
    step_ops = tuple(name for name in step_ops if name not in fed)
    return GraphProgram(graph_def, tuple(assignments), step_ops, feeds, tuple(fetches))


def _stand_in(
    item: Item,
    graph_def: tf.compat.v1.GraphDef,
    node_of_name: dict[str, tf.compat.v1.NodeDef],
    iterator: str,
    prefix: str,
) -> list[Assignment]:
    """Replaces reads of an iterator by resident zeros."""
    assignments: list[Assignment] = []
    for name, outputs in zip(item.index.names, item.outputs, strict=True):
        node = node_of_name[name]
        if iterator not in (text.partition(":")[0] for text in node.input):
            continue
        controls, elements = control_inputs(node), []
        for spec in outputs:
            scope = f"{prefix}/{len(assignments)}"
            zeros = np.zeros(spec.shape, spec.dtype.as_numpy_dtype)
            element = graph_def.node.add(name=f"{scope}/element", op="Placeholder", device=node.device)
            assignments.append(_make_resident(graph_def, element, zeros, spec.dtype, scope))
            elements.append(f"{element.name}:0")
        types = [spec.dtype for spec in outputs]
        node.CopyFrom(new_node("IdentityN", name, [*elements, *controls], node.device, T=types))
    node_of_name[iterator].op = "NoOp"
    node_of_name[iterator].attr.clear()
    return assignments


_STEP = new_node("NoOp", f"{_SCOPE}/step")
EMPTY_PROGRAM = GraphProgram(tf.compat.v1.GraphDef(node=[_STEP]), (), (_STEP.name,))
"""Program with empty steps, which take the time of a request."""


def batches(assignments: tuple[Assignment, ...]) -> Iterator[list[Assignment]]:
    """Splits assignments, in order, into runs that each fit in one message."""
    batch: list[Assignment] = []
    batch_bytes = 0
    for assignment in assignments:
        if batch and batch_bytes + assignment.value.nbytes > _MAX_MESSAGE_BYTES:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(assignment)
        batch_bytes += assignment.value.nbytes
    if batch:
        yield batch


def _make_resident(
    graph_def: tf.compat.v1.GraphDef,
    placeholder: tf.compat.v1.NodeDef,
    value: np.ndarray,
    dtype: tf.DType,
    prefix: str,
) -> Assignment:
    """Turns a placeholder into a read of a new variable."""
    name, shape, device = f"{prefix}/handle", tf.TensorShape(np.shape(value)), placeholder.device
    handle = new_node("VarHandleOp", name, (), device, dtype=dtype, shape=shape, shared_name=name.encode())
    graph_def.node.append(handle)
    inputs = [*placeholder.input, name]
    placeholder.CopyFrom(new_node("ReadVariableOp", placeholder.name, inputs, device, dtype=dtype))
    return _add_assignment(graph_def, handle, value, prefix)


def _add_assignment(
    graph_def: tf.compat.v1.GraphDef, handle: tf.compat.v1.NodeDef, value: np.ndarray, prefix: str
) -> Assignment:
    if value.nbytes > _MAX_VALUE_BYTES:
        raise InputError(
            f"variable or input {handle.name!r} holds {value.nbytes} bytes, more than one message can carry "
            f"({_MAX_VALUE_BYTES}); split it into several variables"
        )
    dtype, device = tf.as_dtype(handle.attr["dtype"].type), handle.device
    shape = tf.TensorShape(value.shape)
    placeholder = new_node("Placeholder", f"{prefix}/value", (), device, dtype=dtype, shape=shape)
    is_reference = handle.op in REFERENCE_VARIABLES
    op_type, type_name = ("Assign", "T") if is_reference else ("AssignVariableOp", "dtype")
    inputs = [handle.name, placeholder.name]
    assign = new_node(op_type, f"{prefix}/assign", inputs, device, **{type_name: dtype})
    graph_def.node.extend([placeholder, assign])
    return Assignment(f"{placeholder.name}:0", assign.name, value, device)


_WATCH_PERIOD_S = 0.2
_OBITUARY_S = 2.0  # from a lost connection until the process counts as dead
_UNWIND_S = 2.0  # for a client to notice that its workers are gone


class MalformedGraph(RuntimeError):
    """TensorFlow cannot import the graph."""


class DeadlineExceeded(RuntimeError):
    """The program did not finish in time; the workers have been killed."""


class WorkerDied(RuntimeError):
    """A worker process ended while the program ran; the others have been killed."""


def session_config(deadline_s: float = 0.0) -> tf.compat.v1.ConfigProto:
    """Configuration of a session that runs the graph exactly as placed, with private storage.

    ``deadline_s`` is the most for one call to a remote session; 0 for no end.
    """
    # Grappler and the L1 passes move and merge ops across devices, soft placement hides mistakes; all are off. Isolated
    # state frees the variables of one placement before the next.
    config = tf.compat.v1.ConfigProto(allow_soft_placement=False, isolate_session_state=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    config.operation_timeout_in_ms = round(deadline_s * 1000)
    return config


def process_session_config(deadline_s: float = 0.0) -> tf.compat.v1.ConfigProto:
    """As ``session_config``, with the graph optimizations and soft placement of this process."""
    ours = process_config()
    config = session_config(deadline_s)
    config.allow_soft_placement = ours.allow_soft_placement
    config.graph_options.CopyFrom(ours.graph_options)
    return config


def run_watched(
    workers: Workers,
    deadline_s: float,
    function: Callable[[], _Result],
    check: Callable[[], None] = lambda: None,
) -> _Result:
    """Calls ``function``, which uses sessions on ``workers``, and stops waiting on a deadline or a death.

    The call has its own thread, because a client can wait for ever: opening a session on a dead worker retries
    silently, and TensorFlow's own timeout does not cover everything. When the deadline passes or a worker dies, all
    workers are killed, which ends most calls at once. A call that still hangs is left to its session's
    ``operation_timeout_in_ms``. After that, start new workers.

    ``check`` is called five times a second meanwhile; its exceptions end the call like a passed deadline.

    Raises:
      DeadlineExceeded, WorkerDied: see there; any other exception is one of ``function`` or ``check``.
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
            interrupt.check()
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
        graph = session.graph
        self._session = session
        self._wanted: list[Any] = [graph.get_operation_by_name(name) for name in program.step_ops]
        self._wanted += [graph.get_tensor_by_name(name) for name in program.fetches]
        self._fed = dict(program.feeds)
        self._num_step_ops = len(program.step_ops)
        fed = [graph.get_tensor_by_name(name) for name in self._fed]
        self._run = session.make_callable(self._wanted, feed_list=fed)

    def step(self) -> None:
        """Runs one step."""
        self._run(*self._fed.values())

    def outputs(self) -> list[np.ndarray]:
        """Runs one step and returns the fetched values."""
        return list(self._run(*self._fed.values())[self._num_step_ops :])

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
      target: of the workers, from before the call: a late call must not reach their successors.
      program: to be run.
      deadline_s: most seconds for one call to the session, which ``config_of`` configures.

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
    # Not the session's own block: that closes in a thread, which dies noisily if the workers have.
    session = tf.compat.v1.Session(target, graph=graph, config=config_of(deadline_s))
    with contextlib.closing(session):
        for batch in batches(program.assignments):
            values = {assignment.placeholder: assignment.value for assignment in batch}
            session.run([graph.get_operation_by_name(a.op) for a in batch], feed_dict=values)
        yield LoadedProgram(session, program)
