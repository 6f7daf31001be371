"""What goes over the network: a program once for each machine, then a trial and its reply for each measurement."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.measurement import Status
from tf_placer.graph.item import Item, item_bytes, read_item_file
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.version import VERSION


def machine_class(cluster: Cluster) -> str:
    """Text that machines share whose answers stand for each other: the models of their devices, in order.

    Machines of one class may differ in speed, which the reference plan takes out.
    """
    return ", ".join(f"{device.type} {device.model}" for device in cluster.devices)


def software() -> dict[str, str]:
    """Versions that a machine of the fleet must share with who sends it trials."""
    return {"tf_placer": VERSION, "TensorFlow": tf.__version__}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def trial_id(program: str, plan: str, machines: str, repetition: int) -> str:
    """Digest of what a trial is: who sends it again sends the same, so that no answer counts twice.

    Args:
      program: digest of a ``Program``.
      plan: ``Decisions.digest``.
      machines: their class.
      repetition: which measurement of that plan it is, from 0 on.
    """
    return _digest([program, plan, machines, repetition])


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A program as it is sent to a machine.

    Attributes:
      digest: of the graph and of how it is timed.
      item_file, problem_file: uint8, the contents of files of both.
      reference: the plan that times are relative to, one row.
      config: how a step is timed.
    """

    digest: str
    item_file: np.ndarray
    problem_file: np.ndarray
    reference: Decisions
    config: RuntimeConfig

    @staticmethod
    def packed(item: Item, problem: Problem, reference: Decisions, config: RuntimeConfig) -> Program:
        """A program and its problem in one message.

        Raises:
          InputError: the program needs the process that traced it.
        """
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
    """One measurement of one plan.

    Attributes:
      id: see ``trial_id``.
      plan: one row.
      program: digest of its ``Program``.
    """

    id: str
    plan: Decisions
    program: str


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a machine says of a trial.

    Attributes:
      trial: its id.
      status, message: as in ``Measurement``.
      runtime_s, spread_s: as measured there; None where there is no time.
      peak_bytes: [D], as in ``Measurement``; None where it can be told of no device.
      reference_s: the machine's baseline: the moving average of what the reference plan takes there.
      error: one line where the machine itself could measure nothing; "" else.
    """

    trial: str
    status: int = int(Status.OK)
    message: str = ""
    runtime_s: float | None = None
    spread_s: float | None = None
    peak_bytes: tuple[int, ...] | None = None
    reference_s: float = 0.0
    error: str = ""
