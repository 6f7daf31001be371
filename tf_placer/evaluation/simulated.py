"""Simulated evaluator, thousands of placements a second; the evaluator's protocol; several execution orders."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, exact, told
from tf_placer.base.eager import eagerly
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.ops.simulator import Schedule, SimulatorInputs, simulate, simulate_schedule
from tf_placer.problem.decisions import Decisions, decisions_of, ranked
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem, simulator_inputs
from tf_placer.transform.fusion.costs import fused_plan


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
        self._inputs = simulator_inputs(problem)

    @property
    def problem(self) -> Problem:
        """The problem that is placed."""
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

    @property
    def tells(self) -> SimulatedEvaluator:
        """The evaluator whose times a search by this one is told in: itself."""
        return self

    def ordered(self, priority_of_op: np.ndarray) -> SimulatedEvaluator:
        """The same with priorities [N] in the problem, as a plan would have them: for who decides devices alone.

        Raises:
          InputError: they are not one whole number for each op.
        """
        return SimulatedEvaluator(_ordered(self._problem, priority_of_op))

    def times(self, device_of_unit: tf.Tensor | Decisions) -> SimulatedTimes:
        """Simulates legal placements [B, U] int32, or all that B plans decide, eagerly or inside a ``tf.function``.

        Raises:
          InputError: wrong shape or type, or clusters; eagerly also a device that is not there.
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
            ILLEGAL. Priorities come before every tie-break of the problem. Each fusion cluster is one op
            (``fused_plan``).

        Raises:
          InputError: wrong shape, or a step of the problem would be longer or larger than the simulator's numbers.
        """
        decisions = decisions_of(device_of_unit, self._problem)
        if decisions.cluster_of_op is not None:
            each = [self._evaluate_fused(decisions.row(i)) for i in range(len(decisions))]
            return Measurement.joined(each, self._problem.num_devices)
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

    def _evaluate_fused(self, plan: Decisions) -> Measurement:
        """One plan, with its clusters if it has any and is legal."""
        plain = self.evaluate(Decisions(plan.device_of_unit, plan.priority_of_op))
        if plan.cluster_of_op is None or plain.status[0] == Status.ILLEGAL:
            return plain
        fused, _ = fused_plan(Placement.from_decisions(self._problem, plan))
        return SimulatedEvaluator(fused.problem).evaluate(fused.decisions)

    @eagerly()
    def schedule(self, device_of_unit: np.ndarray | Decisions) -> Schedule:
        """Start and end of each op of placements [B, U], or of all that B plans decide.

        Raises:
          InputError: wrong shape, clusters, or a placement that is not legal.
        """
        decisions = self._unfused(device_of_unit)
        for row in np.asarray(decisions.device_of_unit):
            self._problem.check_legal(row)
        return simulate_schedule(self._inputs, decisions.device_of_unit, decisions.priority_of_op)

    def _unfused(self, device_of_unit: tf.Tensor | Decisions) -> Decisions:
        decisions = decisions_of(device_of_unit, self._problem)
        if decisions.cluster_of_op is not None:
            raise InputError(
                "the plans have clusters, which only evaluate simulates; ask that, or leave them out"
            )
        return decisions

    def _known(self, device_of_unit: tf.Tensor | Decisions) -> Decisions:
        """Decisions about devices that are there, as far as that can be told while a graph is made."""
        decisions = self._unfused(device_of_unit)
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


def _ordered(problem: Problem, priority_of_op: np.ndarray) -> Problem:
    priority_of_op = exact("priority_of_op", priority_of_op, np.int32)
    if priority_of_op.shape != (problem.num_ops,):
        raise InputError(
            f"priority_of_op has shape {priority_of_op.shape}, expected ({problem.num_ops},): one entry for each op"
        )
    return dataclasses.replace(problem, priority=ranked(priority_of_op, problem.priority))


# Protocol of evaluators, simulated or on the runtime.


class Evaluator(Protocol):
    """Answers for batches of placements of one problem: ``measurement = evaluator.evaluate(device_of_unit)``."""

    @property
    def problem(self) -> Problem: ...

    @property
    def identity(self) -> dict[str, Any]:
        """JSON data that identifies an evaluator, for answers that must not be mixed; ``"evaluator"`` is its kind."""

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Times one step of each placement; what does not run is a status.

        Args:
          device_of_unit: [B, U], or all that B plans decide. Who asks gives the array where nothing else is decided
            (``Decisions.plain``), so that an evaluator of devices alone need not know of more.

        Raises:
          InputError: it decides what this evaluator cannot heed: a schedule is never left out in silence.
        """


# Several samples of what is uncertain: a search would exploit any single one.


class SampleAverageEvaluator(SimulatedEvaluator):
    """The mean step time over samples of what is uncertain: problems of the same ops and devices.

    A search under one sample finds plans that live on it. The mean over several is the objective of sample average
    approximation (Kleywegt, Shapiro & Homem-de-Mello 2002).
    """

    def __init__(self, problem: Problem, samples: Sequence[Problem]):
        """Prepares every sample.

        Args:
          problem: what is placed.
          samples: it, with other priorities, orders, times of ops, hosts and links (``PER_ORDER``); at least one.

        Raises:
          InputError: it is no problem.
        """
        super().__init__(problem)
        self._samples = tuple(samples)
        self._orders = [SimulatedEvaluator(one) for one in samples]
        # In one graph every order has a kernel of its own, which keeps what it prepared of its arrays; eager calls
        # share one, which would prepare them anew for every order.
        self._times = self._traced(problem.num_units)

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the samples, too."""
        return {**super().identity, "orders": len(self._orders)}

    @property
    def orders(self) -> tuple[SimulatorInputs, ...]:
        """The arrays of each sample whose mean ``evaluate`` gives."""
        return tuple(order.inputs for order in self._orders)

    def ordered(self, priority_of_op: np.ndarray) -> SimulatedEvaluator:
        """The same with priorities [N] in every sample."""
        samples = [_ordered(one, priority_of_op) for one in self._samples]
        return SampleAverageEvaluator(_ordered(self.problem, priority_of_op), samples)

    def times(self, device_of_unit: tf.Tensor | Decisions) -> SimulatedTimes:
        """Simulates legal placements [B, U] int32, or all that B plans decide.

        Returns:
          The mean of their times, the most of their bytes.

        Raises:
          InputError: wrong shape or type; eagerly also a device that is not there.
        """
        decisions = self._known(device_of_unit)
        devices = tf.convert_to_tensor(decisions.device_of_unit)
        if decisions.priority_of_op is None:
            return self._times(devices)
        return self._times_of_schedules(devices, tf.convert_to_tensor(decisions.priority_of_op))

    @functools.cached_property
    def _times_of_schedules(self) -> tf.types.experimental.ConcreteFunction:
        return self._traced(self.problem.num_units, self.problem.num_ops)

    def _traced(self, *widths: int) -> tf.types.experimental.ConcreteFunction:
        """``_times_in_graph`` for batches of so many columns."""
        rows = [tf.TensorSpec([None, width], tf.int32) for width in widths]
        function = tf.function(self._times_in_graph, input_signature=rows, autograph=False)
        # At once: TensorFlow warns of a function that is made for every problem and traced when it is called.
        return function.get_concrete_function()

    def _times_in_graph(
        self, device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None
    ) -> SimulatedTimes:
        each = [order.times(Decisions(device_of_unit, priority_of_op)) for order in self._orders]
        return SimulatedTimes(
            runtime_s=tf.reduce_mean([times.runtime_s for times in each], axis=0),
            peak_bytes=tf.reduce_max([times.peak_bytes for times in each], axis=0),
            fits=tf.reduce_all([times.fits for times in each], axis=0),
        )

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Measurement over every sample, as of ``SimulatedEvaluator``; a placement that fails in some sample fails."""
        each = [order.evaluate(device_of_unit) for order in self._orders]
        status = np.array([measurement.status for measurement in each])  # [orders, B]
        failed = np.argmax(status != Status.OK, axis=0)  # the first sample that fails, if any does
        rows = np.arange(status.shape[1])
        return Measurement(
            runtime_s=np.mean([measurement.runtime_s for measurement in each], axis=0),
            peak_bytes=np.max([_bytes(measurement) for measurement in each], axis=0),
            status=status[failed, rows],
            messages=tuple(each[order].messages[row] for row, order in enumerate(failed)),
        )


_PRIORITIES = 1000  # of a drawn order; ops that draw the same stay in the simulator's


class AnyOrderEvaluator(SampleAverageEvaluator):
    """The mean step time over several orders in which a device may take what is ready.

    Which of the ready ops a thread of TensorFlow's executor takes next depends on threads, wake-ups and messages. A
    simulator has to decide, and a search under one order finds plans that live on it and gain little on the runtime.

    The orders: the problem's own, oldest first, and a drawn one. They are orders of what a plan leaves open: its own
    priorities (``Decisions``) come before them, so one that decides the order of every op takes the same time in all.

        evaluator = AnyOrderEvaluator(problem)
        measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]
    """

    def __init__(self, problem: Problem):
        super().__init__(problem, _orders(problem))


def _bytes(simulated: Measurement) -> np.ndarray:
    assert simulated.peak_bytes is not None  # a simulator knows
    return simulated.peak_bytes


def search_simulator(problem: Problem) -> SimulatedEvaluator:
    """Simulator for searches: any order where an executor's threads decide, one order where a queue does."""
    if problem.cluster.newest_first().any():
        return AnyOrderEvaluator(problem)
    return SimulatedEvaluator(problem)


def simulator_beside(evaluator: Evaluator, problem: Problem) -> SimulatedEvaluator:
    """Simulator for plans that no method proposed: the evaluator if it simulates, else a new one; never the runtime."""
    return evaluator if isinstance(evaluator, SimulatedEvaluator) else search_simulator(problem)


def _orders(problem: Problem) -> list[Problem]:
    """The problem with its ready ops taken in several orders."""
    cluster = problem.cluster
    devices = tuple(dataclasses.replace(device, newest_first=False) for device in cluster.devices)
    drawn = np.random.default_rng(0).integers(_PRIORITIES, size=problem.num_ops).astype(np.int32)
    return [
        problem,
        dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices)),
        dataclasses.replace(problem, priority=ranked(problem.priority, drawn)),
    ]
