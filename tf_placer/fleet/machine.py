"""A machine of the fleet: what each Ray actor does. Nothing here knows of Ray."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import platform
import tempfile
from collections.abc import Iterator
from typing import Any

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.fleet.trial import Program, Reply, Trial, machine_class, software
from tf_placer.problem.problem import Problem
from tf_placer.workers.local_workers import WorkerError

_REFERENCE_ATTEMPTS = 3
_KEEP = 0.5  # of a machine's baseline, when its reference plan is measured anew


@dataclasses.dataclass(frozen=True)
class MachineConfig:
    """Settings of a machine.

    Attributes:
      reference_every: plans between two measurements of the reference plan.
      recycle_after: plans after which the processes that run them are replaced, so that nothing piles up in them.
    """

    reference_every: int = 10
    recycle_after: int = 100


class _Loaded:
    """A program on this machine.

    Attributes:
      evaluator: times its plans.
      reference_s: moving average of what its reference plan takes; None before it was measured.
      plans: measured since then.
    """

    def __init__(self, evaluator: RuntimeEvaluator) -> None:
        self.evaluator = evaluator
        self.reference_s: float | None = None
        self.plans = 0


class Machine:
    """Times plans on this machine's devices, in child processes that crash, hang and run out of memory in its place.

        machine.hello()  # who it is
        machine.measure(trial, program)  # -> Reply

    Several on one machine take turns, or they would time each other. The baseline that times are relative to is each
    one's own, a moving average, as each controller has it in ColocRL (Mirhoseini et al. 2017, section 3.1).
    """

    def __init__(self, cores: int | None, config: MachineConfig = MachineConfig()) -> None:
        """Describes it; nothing is started.

        Args:
          cores: CPU workers that it offers; None for this machine's GPUs and host.
          config: how often the reference is measured, and processes are replaced.
        """
        self._cores, self._config = cores, config
        self._cluster: Cluster | None = None
        self._loaded: dict[str, _Loaded] = {}
        self._plans = 0  # since the child processes were replaced

    def hello(self) -> dict[str, Any]:
        """Host, process, versions and machine class, as plain data: another version understands that, too."""
        told: dict[str, Any] = {"host": platform.node(), "pid": os.getpid(), "software": software()}
        try:
            return {**told, "machines": machine_class(self._own_cluster()), "error": ""}
        except (InputError, OSError) as error:
            return {**told, "machines": "", "error": str(error)}

    def measure(self, trial: Trial, program: Program) -> Reply:
        """Times a plan; the reference plan first, where that is due.

        Args:
          trial: the plan.
          program: that it is of; it is loaded once.

        Returns:
          What the plan does, a failure included; ``error`` where this machine cannot measure at all.
        """
        try:
            with _turn():
                loaded = self._program(program)
                reference_s = self._baseline(loaded, program)
                found = loaded.evaluator.evaluate(trial.plan.plain)
                self._count(loaded)
        except (InputError, WorkerError) as error:
            return Reply(trial.id, error=" ".join(str(error).split()))
        return _reply(trial, found, reference_s)

    def _own_cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster.local(self._cores)
        return self._cluster

    def _program(self, program: Program) -> _Loaded:
        if program.digest not in self._loaded:
            item, problem = program.unpacked()
            problem = self._here(problem)
            others = list(self._loaded.values())
            if others:  # all programs run on the same child processes
                evaluator = others[0].evaluator.of_form(item, problem)
            else:
                evaluator = RuntimeEvaluator(item, problem, program.config)
            self._loaded[program.digest] = _Loaded(evaluator)
        return self._loaded[program.digest]

    def _here(self, problem: Problem) -> Problem:
        """The problem with no more memory than this machine has."""
        devices = tuple(
            dataclasses.replace(device, memory_bytes=min(device.memory_bytes, own.memory_bytes))
            for device, own in zip(problem.cluster.devices, self._own_cluster().devices, strict=True)
        )
        return dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, devices=devices))

    def _baseline(self, loaded: _Loaded, program: Program) -> float:
        """Seconds of the reference plan here.

        Raises:
          WorkerError: it does not run on this machine.
        """
        if loaded.reference_s is None:
            _time_reference(loaded.evaluator, program)  # new processes are slow for a moment
            loaded.reference_s = _time_reference(loaded.evaluator, program)
        elif loaded.plans >= self._config.reference_every:
            now_s = _time_reference(loaded.evaluator, program)
            loaded.reference_s, loaded.plans = _KEEP * loaded.reference_s + (1 - _KEEP) * now_s, 0
        return loaded.reference_s

    def _count(self, loaded: _Loaded) -> None:
        loaded.plans += 1
        self._plans += 1
        if self._plans >= self._config.recycle_after:
            loaded.evaluator.close()  # the next plan starts fresh ones
            self._plans = 0


def _time_reference(evaluator: RuntimeEvaluator, program: Program) -> float:
    """Seconds of the reference plan, which may fail for once: processes are killed, and others start in their place.

    Raises:
      WorkerError: it does not run on this machine.
    """
    for _ in range(_REFERENCE_ATTEMPTS):
        found = evaluator.evaluate(program.reference.plain)
        if found.status[0] == Status.OK:
            return float(found.runtime_s[0])
    raise WorkerError(
        f"the reference plan does not run: {Status(int(found.status[0])).name}: {found.messages[0]}"
    )


def _reply(trial: Trial, found: Measurement, reference_s: float) -> Reply:
    is_timed = found.status[0] == Status.OK
    spread_s = None if found.spread_s is None or not is_timed else float(found.spread_s[0])
    return Reply(
        trial.id,
        int(found.status[0]),
        found.messages[0],
        float(found.runtime_s[0]) if is_timed else None,
        spread_s,
        None if found.peak_bytes is None else tuple(map(int, found.peak_bytes[0])),
        reference_s,
    )


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Within it no other actor of this user measures on this machine; the system ends it with this process."""
    path = pathlib.Path(tempfile.gettempdir(), f"tf_placer-measuring-{os.getuid()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
