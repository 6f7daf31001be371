"""Times placements in the simulator: thousands a second."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer import arguments
from tf_placer.eager import eagerly
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.ops.simulator import Schedule, simulate, simulate_schedule
from tf_placer.ops.simulator_inputs import SimulatorInputs
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem
from tf_placer.tensorflow_message import told


class SimulatedTimes(NamedTuple):
    """``SimulatedEvaluator.evaluate`` inside a graph.

    Attributes:
      runtime_s: [B] float64, of every placement, also those that do not fit.
      peak_bytes: [B, D] int64.
      fits: [B] bool, no device over its capacity.
    """

    runtime_s: tf.Tensor
    peak_bytes: tf.Tensor
    fits: tf.Tensor


class SimulatedEvaluator:
    """Runs placements through the event simulator (docs/architecture.md, section 5).

    evaluator = SimulatedEvaluator(problem)
    measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]
    """

    @eagerly()
    def __init__(self, problem: Problem):
        """Prepares the problem's arrays for the simulator.

        Raises:
          InputError: it is no problem.
        """
        arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
        self._problem = problem
        self._capacity_bytes = problem.cluster.capacity_bytes()
        self._inputs = SimulatorInputs(
            unit_of_op=problem.unit_of_op,
            compute_ns=problem.compute_ns,
            priority=problem.priority,
            tensor_producer=problem.tensor_producer,
            tensor_bytes=problem.tensor_bytes,
            alias_of_tensor=problem.alias_of_tensor,
            consumer_offset=problem.consumer_offset,
            consumer_op=problem.consumer_op,
            resident_bytes=problem.resident_bytes,
            streams=problem.cluster.streams(),
            newest_first=problem.cluster.newest_first(),
            join_ns=problem.cluster.join_ns(),
            link_latency_ns=problem.cluster.link_latency_ns(),
            link_bytes_per_s=problem.cluster.link_bytes_per_s(),
            channel_of_link=problem.cluster.channel_of_link(),
            **problem.cluster.link_chores(),
        )

    @property
    def problem(self) -> Problem:
        """What is placed."""
        return self._problem

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on everything in the problem."""
        return {"evaluator": "simulated", "problem": self._problem.digest()}

    @property
    def inputs(self) -> SimulatorInputs:
        """The arrays that the simulator reads."""
        return self._inputs

    @property
    def orders(self) -> tuple[SimulatorInputs, ...]:
        """The arrays of each order whose mean ``evaluate`` gives: this one."""
        return (self._inputs,)

    def times(self, device_of_unit: tf.Tensor | Decisions) -> SimulatedTimes:
        """Simulates legal placements [B, U] int32, or all that B plans decide, eagerly or inside a ``tf.function``.

        Raises:
          InputError: wrong shape or type; eagerly also a device that is not there.
        """
        decisions = self._known(device_of_unit)
        runtime_ns, peak_bytes = simulate(self._inputs, decisions.device_of_unit, decisions.priority_of_op)
        return SimulatedTimes(
            runtime_s=tf.cast(runtime_ns, tf.float64) / 1e9,
            peak_bytes=peak_bytes,
            fits=tf.reduce_all(peak_bytes <= self._capacity_bytes, axis=1),
        )

    @eagerly()
    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Simulates one step of each placement.

        Args:
          device_of_unit: [B, U] device positions, or all that B plans decide; a device that is not allowed is status
            ILLEGAL. Priorities come before every tie-break of the problem; fusion clusters change no time yet.

        Raises:
          InputError: wrong shape, or a step of the problem would be longer or larger than the simulator's numbers.
        """
        decisions = decisions_of(device_of_unit, self._problem)
        devices = np.asarray(decisions.device_of_unit)
        known = np.all((devices >= 0) & (devices < self._problem.num_devices), axis=1)
        inside = np.where(known[:, np.newaxis], devices, 0)
        legal = known & np.all(self._problem.allowed[np.arange(self._problem.num_units), inside], axis=1)
        try:
            runtime_ns, peak_bytes = (
                x.numpy() for x in simulate(self._inputs, inside, decisions.priority_of_op)
            )
        except tf.errors.InvalidArgumentError as error:
            raise InputError(
                f"{self._problem.name!r} on cluster {self._problem.cluster.name!r} cannot be simulated: "
                f"{told(error)}; check shapes, batch size and the cluster's numbers"
            ) from error
        over = np.maximum(peak_bytes - self._capacity_bytes, 0)
        status = np.where(over.any(axis=1), Status.OUT_OF_MEMORY, Status.OK)
        status = np.where(legal, status, Status.ILLEGAL).astype(np.int32)
        return Measurement(
            runtime_s=np.where(status == Status.OK, runtime_ns / 1e9, np.nan),
            peak_bytes=peak_bytes,
            status=status,
            messages=tuple(self._message(s, row) for s, row in zip(status, over, strict=True)),
        )

    @eagerly()
    def schedule(self, device_of_unit: np.ndarray | Decisions) -> Schedule:
        """When each op of placements [B, U], or of all that B plans decide, starts and ends.

        Raises:
          InputError: wrong shape, or a placement that is not legal.
        """
        decisions = decisions_of(device_of_unit, self._problem)
        for row in np.asarray(decisions.device_of_unit):
            self._problem.check_legal(row)
        return simulate_schedule(self._inputs, decisions.device_of_unit, decisions.priority_of_op)

    def _known(self, device_of_unit: tf.Tensor | Decisions) -> Decisions:
        """Decisions about devices that are there, as far as that can be told while a graph is made."""
        decisions = decisions_of(device_of_unit, self._problem)
        if not tf.is_symbolic_tensor(decisions.device_of_unit):
            positions = np.asarray(decisions.device_of_unit)
            arguments.check_positions("device_of_unit", positions, self._problem.num_devices)
        return decisions

    def _message(self, status: int, over_bytes: np.ndarray) -> str:
        if status == Status.OUT_OF_MEMORY:
            worst = int(over_bytes.argmax())
            name = self._problem.cluster.devices[worst].name
            return f"{name} is {over_bytes[worst]} bytes over its memory"
        if status == Status.ILLEGAL:
            return "an op is on a device that is not there or has no kernel for it"
        return ""
