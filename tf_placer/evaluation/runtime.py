"""Times placements on the real TensorFlow runtime: the evaluator with the last word."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.cluster.local_workers import LocalWorkers
from tf_placer.errors import InputError
from tf_placer.evaluation.graph_program import GraphProgram, build_program
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime_session import (
    DeadlineExceeded,
    MalformedGraph,
    WorkerDied,
    open_program,
    run_watched,
)
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.graph_def import place_graph


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
    """How a placement is timed.

    Attributes:
      warmup_steps: untimed steps first; they allocate memory and make the kernels.
      steps: timed steps.
      keep: the reported time is the median of this many last timed steps.
      deadline_s: most seconds for one placement, loading included.
      inter_op_threads: threads that run ops in each worker, see ``WorkerSpec``.
    """

    warmup_steps: int = 2
    steps: int = 10
    keep: int = 5
    deadline_s: float = 300.0
    inter_op_threads: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.keep <= self.steps or self.warmup_steps < 0 or self.deadline_s <= 0:
            raise InputError(f"{self}: need 1 <= keep <= steps, warmup_steps >= 0 and deadline_s > 0")


class RuntimeEvaluator:
    """Runs placements on worker processes and times one step of each.

        with RuntimeEvaluator(item, problem) as evaluator:
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Placed graphs run in the workers only, so that a placement that brings TensorFlow down ends as a status;
    the next one gets fresh workers. The workers start with the first evaluation and stay warm.
    """

    def __init__(self, item: Item, problem: Problem, config: RuntimeConfig = RuntimeConfig()) -> None:
        """Checks that the problem is about this item and this machine; starts nothing.

        Raises:
          InputError: the cluster is not live, or the problem was built from another graph.
        """
        if problem.fingerprint != item.fingerprint:
            raise InputError(
                f"problem {problem.name!r} ({problem.num_ops} ops) is not about item {item.name!r} "
                f"({item.index.num_ops} ops); build it from this item"
            )
        self._item = item
        self._problem = problem
        self._config = config
        self._workers = LocalWorkers(problem.cluster, config.inter_op_threads)

    def __enter__(self) -> RuntimeEvaluator:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers; an evaluation after that starts new ones."""
        self._workers.close()

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the live workers, empty before the first evaluation."""
        return self._workers.pids

    def evaluate(self, device_of_unit: np.ndarray) -> Measurement:
        """Times one step of each placement, one after the other.

        Args:
          device_of_unit: [B, U] integer device positions in ``problem.cluster``.

        Returns:
          Median times; ``peak_bytes`` is None: the runtime does not report it for CPU workers.

        Raises:
          InputError: wrong shape. A device that is not there or not allowed is status ILLEGAL.
          WorkerError: the workers cannot be started at all.
        """
        units = self._problem.num_units
        if device_of_unit.ndim != 2 or device_of_unit.shape[1] != units:
            raise InputError(f"device_of_unit has shape {device_of_unit.shape}, but [B, {units}] is needed")
        return _collect([self._evaluate_one(row) for row in device_of_unit])

    def _evaluate_one(self, device_of_unit: np.ndarray) -> Outcome:
        try:
            self._problem.check_legal(device_of_unit)
            devices = self._problem.cluster.devices
            device_of_op = [devices[d].name for d in device_of_unit[self._problem.unit_of_op]]
            placed = place_graph(self._item.graph_def, device_of_op)
        except InputError as error:
            return Outcome(Status.ILLEGAL, str(error))
        return measure_graph(self._workers, self._item, placed, self._config)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one placed graph fared; ``runtime_s`` is nan unless it is OK."""

    status: Status
    message: str = ""
    runtime_s: float = float("nan")


def measure_graph(
    workers: LocalWorkers, item: Item, placed: tf.compat.v1.GraphDef, config: RuntimeConfig
) -> Outcome:
    """Times one placed graph; never raises for what the graph does.

    Args:
      workers: started if need be; closed, so that the next use starts fresh ones, after a failure
        that may have damaged them.
      item: the program that was placed.
      placed: its graph with a device on every node.
      config: steps and deadline.

    Raises:
      InputError: the item cannot be run by itself, however it is placed.
      WorkerError: the workers cannot be started at all.
    """
    program = build_program(item, placed)
    workers.start()
    target = workers.target
    try:
        step_s = run_watched(workers, config.deadline_s, lambda: _time_program(target, program, config))
        return Outcome(Status.OK, "", reported_s(step_s, config))
    except DeadlineExceeded as error:
        workers.close()
        return Outcome(Status.TIMEOUT, str(error))
    except WorkerDied as error:
        workers.close()
        return Outcome(Status.CRASHED, str(error))
    except tf.errors.ResourceExhaustedError as error:
        workers.close()
        return Outcome(Status.OUT_OF_MEMORY, _one_line(error))
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, MalformedGraph) as error:
        return Outcome(Status.ILLEGAL, _one_line(error))
    except tf.errors.OpError as error:
        workers.close()
        return Outcome(Status.CRASHED, _one_line(error))


def _time_program(target: str, program: GraphProgram, config: RuntimeConfig) -> list[float]:
    with open_program(target, program, config.deadline_s) as step:
        return time_steps(step, config)


def time_steps(step: Callable[[], None], config: RuntimeConfig) -> list[float]:
    """Seconds of each of ``config.steps`` steps after the warm-up."""
    for _ in range(config.warmup_steps):
        step()
    times_s = []
    for _ in range(config.steps):
        start = time.perf_counter()
        step()
        times_s.append(time.perf_counter() - start)
    return times_s


def reported_s(step_s: Sequence[float], config: RuntimeConfig) -> float:
    """The median of the last ``config.keep`` timed steps (Mirhoseini et al. 2018, section 4)."""
    return float(np.median(step_s[-config.keep :]))


def _collect(outcomes: Sequence[Outcome]) -> Measurement:
    return Measurement(
        runtime_s=np.array([outcome.runtime_s for outcome in outcomes], np.float64),
        peak_bytes=None,
        status=np.array([outcome.status for outcome in outcomes], np.int32),
        messages=tuple(outcome.message for outcome in outcomes),
    )


def _one_line(error: Exception) -> str:
    """What went wrong, without the Python stack that a session error starts with."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The stack ends with a line "Node: 'name'"; the runtime's own message follows.
    start = max((i + 1 for i, line in enumerate(lines[:-1]) if line.startswith("Node: ")), default=0)
    return f"{type(error).__name__}: {lines[start] if lines else 'no message'}"
