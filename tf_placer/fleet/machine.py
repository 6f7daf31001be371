"""A machine of a fleet, run by each Ray actor, and the programs, trials and replies that are sent to it and back.

Nothing here uses Ray.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import platform
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import Measurement, Status
from tf_placer.graph.item import Item, item_bytes, read_item_file
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.version import VERSION
from tf_placer.workers.local_workers import WorkerError

REFERENCE_EVERY = 10  # plans between two measurements of the reference plan
RECYCLE_AFTER = 100  # plans after which worker processes are replaced, so that nothing piles up
_REFERENCE_ATTEMPTS = 3
_KEEP = 0.5  # weight of the earlier baseline in the moving average


def machine_class(cluster: Cluster) -> str:
    """Class of machines whose answers are interchangeable: the models of their devices, in order.

    Machines of one class may differ in speed, which the reference plan takes out.
    """
    return ", ".join(f"{device.type} {device.model}" for device in cluster.devices)


def software() -> dict[str, str]:
    """Versions that all machines of a fleet and its driver must share."""
    return {"tf_placer": VERSION, "TensorFlow": tf.__version__}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def trial_id(program: str, plan: str, machines: str) -> str:
    """Digest of a trial. A trial that is sent again has the same id, so that no answer counts twice.

    Args:
      program: digest of a ``Program``.
      plan: ``Decisions.digest``.
      machines: their class.
    """
    return _digest([program, plan, machines])


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A program as sent to a machine, once."""

    digest: str  # of the graph and the timing
    item_file: np.ndarray  # uint8, content of a file
    problem_file: np.ndarray  # uint8, content of a file
    reference: Decisions  # plan that times are relative to, one row
    config: RuntimeConfig

    @staticmethod
    def packed(item: Item, problem: Problem, reference: Decisions, config: RuntimeConfig) -> Program:
        """A program and its problem in one message; InputError where the program needs this process."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "problem")
            problem.save(file)
            problem_file = np.frombuffer(file.read_bytes(), np.uint8)
        digest = _digest([item.fingerprint, reference.digest(0, problem), dataclasses.asdict(config)])
        return Program(digest, np.frombuffer(item_bytes(item), np.uint8), problem_file, reference, config)

    def unpacked(self) -> tuple[Item, Problem]:
        """The program and its problem."""
        with tempfile.TemporaryDirectory() as folder:
            item_file, problem_file = pathlib.Path(folder, "item"), pathlib.Path(folder, "problem")
            item_file.write_bytes(self.item_file.tobytes())
            problem_file.write_bytes(self.problem_file.tobytes())
            return read_item_file(item_file), Problem.load(problem_file)


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One measurement of one plan."""

    id: str  # trial_id
    plan: Decisions  # one row
    program: str  # digest of its Program


@dataclasses.dataclass(frozen=True, eq=False)
class Reply:
    """Answer of a machine to a trial; a failure of the plan is a status, a failure of the machine an ``error``."""

    trial: str  # its id
    measurement: Measurement | None = None  # of the plan, with an ``error`` None
    reference_s: float = 0.0  # moving average of the reference plan's time on the machine
    error: str = ""  # one line where the machine could not measure at all


@dataclasses.dataclass(eq=False)
class _Loaded:
    """A program on this machine."""

    evaluator: RuntimeEvaluator
    reference_s: float | None = None  # moving average; None before the first measurement
    plans: int = 0  # measured since the reference plan was


class Machine:
    """Times plans on this machine's devices, in child processes that may crash, hang and run out of memory.

        machine.hello()  # host and versions
        machine.measure(trial, program)  # -> Reply

    Several on one machine take turns, or they would time each other. Each has its own baseline, a moving average, as
    each controller has in ColocRL (Mirhoseini et al. 2017, section 3.1).
    """

    def __init__(self, cores: int | None) -> None:
        """Describes the machine; nothing is started.

        ``cores`` is the number of CPU workers, None for this machine's GPUs and host.
        """
        self._cores = cores
        self._loaded: dict[str, _Loaded] = {}
        self._plans = 0  # since the child processes were replaced

    def hello(self) -> dict[str, Any]:
        """Host, process, versions and machine class as plain data, which every version understands."""
        answer: dict[str, Any] = {"host": platform.node(), "pid": os.getpid(), "software": software()}
        try:
            return {**answer, "machines": machine_class(self._cluster), "error": ""}
        except (InputError, OSError) as error:
            return {**answer, "machines": "", "error": str(error)}

    def measure(self, trial: Trial, program: Program) -> Reply:
        """Times a plan, after the reference plan where that is due; the plan's program is loaded once."""
        try:
            with contextlib.ExitStack() as turn:
                # Keeps the other actors of this user on this machine from measuring; the lock ends with the process.
                path = pathlib.Path(tempfile.gettempdir(), f"tf_placer-measuring-{os.getuid()}")
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                turn.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                loaded = self._load(program)
                reference_s = self._baseline(loaded, program)
                measurement = loaded.evaluator.evaluate(trial.plan.plain)
                loaded.plans += 1
                self._plans += 1
                if self._plans >= RECYCLE_AFTER:
                    loaded.evaluator.close()  # the next plan starts fresh processes
                    self._plans = 0
        except (InputError, WorkerError) as error:
            return Reply(trial.id, error=" ".join(str(error).split()))
        return Reply(trial.id, measurement, reference_s)

    @functools.cached_property
    def _cluster(self) -> Cluster:
        return Cluster.local(self._cores)

    def _load(self, program: Program) -> _Loaded:
        if program.digest not in self._loaded:
            item, problem = program.unpacked()
            # With no more memory than this machine has.
            devices = tuple(
                dataclasses.replace(device, memory_bytes=min(device.memory_bytes, local.memory_bytes))
                for device, local in zip(problem.cluster.devices, self._cluster.devices, strict=True)
            )
            cluster = dataclasses.replace(problem.cluster, devices=devices)
            problem = dataclasses.replace(problem, cluster=cluster)
            if self._loaded:  # all programs run on the same child processes
                evaluator = next(iter(self._loaded.values())).evaluator.of_form(item, problem)
            else:
                evaluator = RuntimeEvaluator(item, problem, program.config)
            self._loaded[program.digest] = _Loaded(evaluator)
        return self._loaded[program.digest]

    def _baseline(self, loaded: _Loaded, program: Program) -> float:
        """Seconds of the reference plan here; WorkerError if that does not run."""

        def timed_s() -> float:
            # A single failure is tolerated, since processes may be killed.
            for _ in range(_REFERENCE_ATTEMPTS):
                measurement = loaded.evaluator.evaluate(program.reference.plain)
                if measurement.status[0] == Status.OK:
                    return float(measurement.runtime_s[0])
            status = Status(int(measurement.status[0])).name
            raise WorkerError(f"the reference plan does not run: {status}: {measurement.messages[0]}")

        if loaded.reference_s is None:
            timed_s()  # new processes are slow for a moment
            loaded.reference_s = timed_s()
        elif loaded.plans >= REFERENCE_EVERY:
            loaded.reference_s = _KEEP * loaded.reference_s + (1 - _KEEP) * timed_s()
            loaded.plans = 0
        return loaded.reference_s
