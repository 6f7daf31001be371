"""Times placements in the simulator under several orders of execution: for searches, which exploit any one."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.evaluation.evaluator import Evaluator
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.simulated import SimulatedEvaluator, SimulatedTimes
from tf_placer.ops.simulator_inputs import SimulatorInputs
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem

_PRIORITIES = 1000  # of a drawn order; ops that draw the same stay in the simulator's


class AnyOrderEvaluator(SimulatedEvaluator):
    """The mean step time over several orders in which a device may take what is ready.

    Which of the ready ops a thread of TensorFlow's executor takes next depends on threads, wake-ups and messages. A
    simulator has to decide, and a search under one order finds plans that live on it and gain little on the runtime.
    The mean over samples of what is uncertain is the objective of sample average approximation (Kleywegt, Shapiro &
    Homem-de-Mello 2002).

    The orders: the problem's own, oldest first, and a drawn one. They are orders of what a plan leaves open: its own
    priorities (``Decisions``) come before them, so one that decides the order of every op takes the same time in all.

        evaluator = AnyOrderEvaluator(problem)
        measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]
    """

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self._orders = [SimulatedEvaluator(one) for one in _orders(problem)]
        # In one graph every order has a kernel of its own, which keeps what it prepared of its arrays; eager calls
        # share one, which would prepare them anew for every order.
        self._times = self._traced(problem.num_units)

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the orders, too."""
        return {**super().identity, "orders": len(self._orders)}

    @property
    def orders(self) -> tuple[SimulatorInputs, ...]:
        """The arrays of each order whose mean ``evaluate`` gives."""
        return tuple(order.inputs for order in self._orders)

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
        """As ``SimulatedEvaluator.evaluate``, in every order; a placement that fails in some order fails."""
        each = [order.evaluate(device_of_unit) for order in self._orders]
        status = np.array([measurement.status for measurement in each])  # [orders, B]
        failed = np.argmax(status != Status.OK, axis=0)  # the first order that fails, if any does
        rows = np.arange(status.shape[1])
        return Measurement(
            runtime_s=np.mean([measurement.runtime_s for measurement in each], axis=0),
            peak_bytes=np.max([_bytes(measurement) for measurement in each], axis=0),
            status=status[failed, rows],
            messages=tuple(each[order].messages[row] for row, order in enumerate(failed)),
        )


def _bytes(simulated: Measurement) -> np.ndarray:
    assert simulated.peak_bytes is not None  # a simulator knows
    return simulated.peak_bytes


def search_simulator(problem: Problem) -> SimulatedEvaluator:
    """What a search on the simulator asks: any order where an executor's threads decide, one where a queue does."""
    if problem.cluster.newest_first().any():
        return AnyOrderEvaluator(problem)
    return SimulatedEvaluator(problem)


def simulator_beside(evaluator: Evaluator, problem: Problem) -> SimulatedEvaluator:
    """What times plans that nobody proposed: the evaluator where it simulates, else a simulator; never the runtime."""
    return evaluator if isinstance(evaluator, SimulatedEvaluator) else search_simulator(problem)


def _orders(problem: Problem) -> list[Problem]:
    """The problem with its ready ops taken in several orders."""
    cluster = problem.cluster
    devices = tuple(dataclasses.replace(device, newest_first=False) for device in cluster.devices)
    drawn = np.random.default_rng(0).integers(_PRIORITIES, size=problem.num_ops).astype(np.int32)
    return [
        problem,
        dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices)),
        dataclasses.replace(problem, priority=drawn),
    ]
