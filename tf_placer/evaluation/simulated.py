"""Measurements, the evaluator's protocol, and simulated evaluators: of a problem, of the mean over samples of it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, exact, told
from tf_placer.base.eager import eagerly
from tf_placer.base.quantities import milliseconds
from tf_placer.costs.formulas import MEASURED, Spreads, WorkClass
from tf_placer.ops.simulator import Simulation, SimulatorInputs, simulate
from tf_placer.problem.placement import Decisions, Placement, decisions_of, ranked
from tf_placer.problem.problem import Problem, simulator_inputs
from tf_placer.transform.fusion import fused_plan

UNKNOWN_BYTES = -1


class TraceFailed(RuntimeError):
    """A placement did not run to the end of the step that was to be traced."""


class Status(enum.IntEnum):
    """Status of a placement. Only OK has a running time."""

    OK = 0
    OUT_OF_MEMORY = 1
    TIMEOUT = 2
    CRASHED = 3
    ILLEGAL = 4

    @classmethod
    def _missing_(cls, value: object) -> Status:
        raise InputError(
            f"value is {arguments.shown(value)}; give a number from 0 to {len(cls) - 1}, or a Status"
        )


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The result of evaluating B placements.

    Raises:
      InputError: an array has another shape.
    """

    runtime_s: np.ndarray  # [B] float64, of one step; nan where the status is not OK
    peak_bytes: np.ndarray | None  # [B, D] int64, or ``UNKNOWN_BYTES``; None where all are unknown
    status: np.ndarray  # [B] int32 of ``Status``
    messages: tuple[str, ...]  # [B] one line each, may be ""
    spread_s: np.ndarray | None = None  # [B] float64, interquartile range; None where all steps are alike

    def __repr__(self) -> str:
        ran_s = self.runtime_s[self.status == Status.OK]
        fastest = f", the fastest {milliseconds(ran_s.min())} a step" if len(ran_s) else ""
        return f"<Measurement of {len(self.status)} placements: {len(ran_s)} ran{fastest}>"

    def __post_init__(self) -> None:
        arguments.items_of("messages", self.messages, str, "give a tuple of one text for each placement")
        for name in ("runtime_s", "status", "peak_bytes", "spread_s"):
            value = getattr(self, name)
            if value is None and name not in ("runtime_s", "status"):
                continue
            arguments.instance_of(name, value, np.ndarray, "give an array, one row for each placement")
            if value.ndim != 1 + (name == "peak_bytes") or len(value) != self.batch:
                needed = f"[{self.batch}{', D' * (name == 'peak_bytes')}]"
                raise InputError(
                    f"{name} has shape {value.shape}, expected {needed}: as many rows as messages"
                )
        if np.any(np.isnan(self.runtime_s) != (self.status != Status.OK)):
            raise InputError("runtime_s must be nan exactly where status is not OK")

    @property
    def batch(self) -> int:
        return len(self.messages)

    @staticmethod
    def joined(parts: Sequence[Measurement], num_devices: int) -> Measurement:
        """The plans of several measurements on D devices, in order."""
        empty = np.zeros(0)
        peaks = [
            np.full((part.batch, num_devices), UNKNOWN_BYTES) if part.peak_bytes is None else part.peak_bytes
            for part in parts
        ]
        spreads_s = [part.spread_s for part in parts if part.spread_s is not None]
        return Measurement(
            runtime_s=np.concatenate([empty, *(part.runtime_s for part in parts)]),
            peak_bytes=np.concatenate(peaks) if any(p.peak_bytes is not None for p in parts) else None,
            status=np.concatenate([np.zeros(0, np.int32), *(part.status for part in parts)]).astype(np.int32),
            messages=tuple(message for part in parts for message in part.messages),
            spread_s=np.concatenate([empty, *spreads_s]) if len(spreads_s) == len(parts) else None,
        )


class SimulatedTimes(NamedTuple):
    """Results of ``SimulatedEvaluator.times``."""

    runtime_s: tf.Tensor  # [B] float64, also of placements that do not fit
    peak_bytes: tf.Tensor  # [B, D] int64
    fits: tf.Tensor  # [B] bool, no device is over its capacity


class Evaluator(Protocol):
    """Answers for batches of placements of one problem: ``measurement = evaluator.evaluate(device_of_unit)``."""

    @property
    def problem(self) -> Problem: ...

    @property
    def identity(self) -> dict[str, Any]:
        """JSON data that identifies an evaluator, for answers that must not be mixed; ``"evaluator"`` is its kind."""

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Times one step of each placement; a failure is a status.

        Args:
          device_of_unit: [B, U], or the decisions of B plans. The caller gives the array where nothing but devices is
            decided (``Decisions.plain``), so that an evaluator may support devices only.

        Raises:
          InputError: the evaluator does not support one of the decisions, which is never ignored silently.
        """


class SimulatedEvaluator:
    """Runs placements through the event simulator (docs/architecture.md, section 5).

    evaluator = SimulatedEvaluator(problem)
    measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]
    """

    orders: tuple[SimulatorInputs, ...]
    """Arrays of each sample of the problem; ``evaluate`` gives the mean over them."""

    @eagerly()
    def __init__(self, problem: Problem):
        """Prepares the problem's arrays for the simulator."""
        arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
        self.problem = problem
        self.inputs = simulator_inputs(problem)
        self.orders = (self.inputs,)
        self._sampled: dict[str, int] = {}  # what the samples are made by
        self._capacity_bytes = problem.cluster.capacity_bytes()

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on everything in the problem, and on its samples."""
        return {"evaluator": "simulated", "problem": self.problem.digest(), **self._sampled}

    @property
    def tells(self) -> SimulatedEvaluator:
        """Evaluator for the times that a search by this one reports."""
        return self

    def ordered(self, priority_of_op: np.ndarray) -> SimulatedEvaluator:
        """Evaluator of the problem with priorities [N] as a plan would set them, for searches of devices only."""
        return SimulatedEvaluator(_ordered(self.problem, priority_of_op))

    def times(self, device_of_unit: tf.Tensor | Decisions) -> SimulatedTimes:
        """Simulates legal placements [B, U] int32, or the decisions of B plans, eagerly or inside a ``tf.function``.

        Raises:
          InputError: wrong shape or type, or clusters; eagerly also a missing device.
        """
        decisions = self._known(device_of_unit)
        runtime_ns, peak_bytes, *_ = simulate(self.inputs, decisions.device_of_unit, decisions.priority_of_op)
        return SimulatedTimes(
            runtime_s=tf.cast(runtime_ns, tf.float64) / 1e9,
            peak_bytes=peak_bytes,
            fits=tf.reduce_all(peak_bytes <= self._capacity_bytes, axis=1),
        )

    @eagerly()
    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Simulates one step of each placement.

        Args:
          device_of_unit: [B, U] device positions, or the decisions of B plans. A forbidden device gives status ILLEGAL.
            Priorities come before every tie-break of the problem. Each fusion cluster is one op (``fused_plan``).

        Raises:
          InputError: wrong shape, or a step of the problem exceeds the range of the simulator's numbers.
        """
        decisions = decisions_of(device_of_unit, self.problem)
        if decisions.cluster_of_op is not None:
            measurements = []
            for plan in (decisions.row(i) for i in range(len(decisions))):
                measurements.append(self.evaluate(Decisions(plan.device_of_unit, plan.priority_of_op)))
                if plan.cluster_of_op is not None and measurements[-1].status[0] != Status.ILLEGAL:
                    fused, _ = fused_plan(Placement.from_decisions(self.problem, plan))
                    measurements[-1] = SimulatedEvaluator(fused.problem).evaluate(fused.decisions)
            return Measurement.joined(measurements, self.problem.num_devices)
        devices = np.asarray(decisions.device_of_unit)
        exists = np.all((devices >= 0) & (devices < self.problem.num_devices), axis=1)
        devices = np.where(exists[:, np.newaxis], devices, 0)
        legal = exists & np.all(self.problem.allowed[np.arange(self.problem.num_units), devices], axis=1)
        try:
            simulation = simulate(self.inputs, devices, decisions.priority_of_op)
        except tf.errors.InvalidArgumentError as error:
            raise InputError(
                f"{self.problem.name!r} on cluster {self.problem.cluster.name!r} cannot be simulated: "
                f"{told(error)}; check shapes, batch size and the cluster's numbers"
            ) from error
        runtime_ns, peak_bytes = simulation.runtime_ns.numpy(), simulation.peak_bytes.numpy()
        over = np.maximum(peak_bytes - self._capacity_bytes, 0)
        status = np.where(over.any(axis=1), Status.OUT_OF_MEMORY, Status.OK)
        status = np.where(legal, status, Status.ILLEGAL).astype(np.int32)
        messages = np.full(len(status), "", object)
        messages[~legal] = "an op is on a device that is not there or has no kernel for it"
        for row in np.flatnonzero(status == Status.OUT_OF_MEMORY):
            worst = self.problem.cluster.devices[int(over[row].argmax())].name
            messages[row] = f"{worst} is {over[row].max()} bytes over its memory"
        return Measurement(
            runtime_s=np.where(status == Status.OK, runtime_ns / 1e9, np.nan),
            peak_bytes=peak_bytes,
            status=status,
            messages=tuple(messages),
        )

    @eagerly()
    def schedule(self, device_of_unit: np.ndarray | Decisions) -> Simulation:
        """Start and end of each op of placements [B, U], or of the decisions of B plans without clusters."""
        decisions = self._known(device_of_unit)
        for row in np.asarray(decisions.device_of_unit):
            self.problem.check_legal(row)
        arrays = decisions.device_of_unit, decisions.priority_of_op
        return simulate(self.inputs, *arrays, with_schedule=True)

    def _known(self, device_of_unit: tf.Tensor | np.ndarray | Decisions) -> Decisions:
        """Decisions without clusters; eagerly, the devices are checked."""
        decisions = decisions_of(device_of_unit, self.problem)
        if decisions.cluster_of_op is not None:
            raise InputError(
                "the plans have clusters, which only evaluate simulates; ask that, or leave them out"
            )
        if not tf.is_symbolic_tensor(decisions.device_of_unit):
            positions = np.asarray(decisions.device_of_unit)
            arguments.check_positions("device_of_unit", positions, self.problem.num_devices)
        return decisions


def _ordered(problem: Problem, priority_of_op: np.ndarray) -> Problem:
    priority_of_op = exact("priority_of_op", priority_of_op, np.int32)
    if priority_of_op.shape != (problem.num_ops,):
        raise InputError(
            f"priority_of_op has shape {priority_of_op.shape}, expected ({problem.num_ops},): one entry for each op"
        )
    return dataclasses.replace(problem, priority=ranked(priority_of_op, problem.priority))


class SampleAverageEvaluator(SimulatedEvaluator):
    """The mean step time over samples of uncertain quantities: problems with the same ops and devices.

    A search under one sample finds plans that exploit it. The mean over several is the objective of sample average
    approximation (Kleywegt, Shapiro & Homem-de-Mello 2002).
    """

    def __init__(self, problem: Problem, samples: Sequence[Problem]):
        """Prepares at least one sample, which may differ from the problem in ``PER_ORDER``."""
        super().__init__(problem)
        self._samples = tuple(samples)
        self._evaluators = [SimulatedEvaluator(sample) for sample in samples]
        self.orders = tuple(evaluator.inputs for evaluator in self._evaluators)
        self._sampled = {"orders": len(samples)}
        self._functions: dict[int, tf.types.experimental.ConcreteFunction] = {}
        # At once: TensorFlow warns of a function that is made for every problem and traced by its call.
        self._function(1)

    def ordered(self, priority_of_op: np.ndarray) -> SimulatedEvaluator:
        """Evaluator with priorities [N] in every sample."""
        samples = [_ordered(sample, priority_of_op) for sample in self._samples]
        return SampleAverageEvaluator(_ordered(self.problem, priority_of_op), samples)

    def times(self, device_of_unit: tf.Tensor | Decisions) -> SimulatedTimes:
        """As ``SimulatedEvaluator.times``: mean times and maximum bytes over the samples."""
        decisions = self._known(device_of_unit)
        arrays = [decisions.device_of_unit, decisions.priority_of_op]
        tensors = [tf.convert_to_tensor(array) for array in arrays if array is not None]
        return self._function(len(tensors))(*tensors)

    def _function(self, num_arrays: int) -> tf.types.experimental.ConcreteFunction:
        """Times of devices, or of devices and priorities.

        In one graph every sample has its own kernel, which keeps its prepared arrays; eager calls share one, which
        would prepare them anew for every sample.
        """

        def times(device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None) -> SimulatedTimes:
            decisions = Decisions(device_of_unit, priority_of_op)
            samples = [evaluator.times(decisions) for evaluator in self._evaluators]
            return SimulatedTimes(
                runtime_s=tf.reduce_mean([sample.runtime_s for sample in samples], axis=0),
                peak_bytes=tf.reduce_max([sample.peak_bytes for sample in samples], axis=0),
                fits=tf.reduce_all([sample.fits for sample in samples], axis=0),
            )

        if num_arrays not in self._functions:
            widths = (self.problem.num_units, self.problem.num_ops)[:num_arrays]
            rows = [tf.TensorSpec([None, width], tf.int32) for width in widths]
            function = tf.function(times, input_signature=rows, autograph=False)
            self._functions[num_arrays] = function.get_concrete_function()
        return self._functions[num_arrays]

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """As ``SimulatedEvaluator.evaluate``, over all samples; a failure in one sample is a failure."""
        measurements = [evaluator.evaluate(device_of_unit) for evaluator in self._evaluators]
        status = np.array([measurement.status for measurement in measurements])  # [samples, B]
        failed = np.argmax(status != Status.OK, axis=0)  # the first sample that fails, if any does
        peaks = [m.peak_bytes for m in measurements if m.peak_bytes is not None]  # a simulator has them all
        return Measurement(
            runtime_s=np.mean([measurement.runtime_s for measurement in measurements], axis=0),
            peak_bytes=np.max(peaks, axis=0),
            status=status[failed, np.arange(status.shape[1])],
            messages=tuple(measurements[sample].messages[row] for row, sample in enumerate(failed)),
        )


_PRIORITIES = 1000  # range of a drawn order; equal draws leave the simulator's order


class AnyOrderEvaluator(SampleAverageEvaluator):
    """The mean step time over several orders in which a device may take ready ops.

    The next op of TensorFlow's executor depends on threads, wake-ups and messages. A simulator has to decide, and a
    search under one order finds plans that exploit it and gain little on the runtime.

    The orders: the problem's own, oldest first, and a drawn one. They concern only the choices that a plan leaves open:
    its own priorities (``Decisions``) come first, so a plan that orders every op takes the same time in all of them.

        evaluator = AnyOrderEvaluator(problem)
        measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]
    """

    def __init__(self, problem: Problem):
        cluster = problem.cluster
        devices = tuple(dataclasses.replace(device, newest_first=False) for device in cluster.devices)
        oldest_first = dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices))
        drawn = np.random.default_rng(0).integers(_PRIORITIES, size=problem.num_ops).astype(np.int32)
        random = dataclasses.replace(problem, priority=ranked(problem.priority, drawn))
        super().__init__(problem, [problem, oldest_first, random])


def search_simulator(problem: Problem) -> SimulatedEvaluator:
    """Simulator for searches: any order where an executor's threads decide, one order where a queue does."""
    if problem.cluster.newest_first().any():
        return AnyOrderEvaluator(problem)
    return SimulatedEvaluator(problem)


def simulator_beside(evaluator: Evaluator, problem: Problem) -> SimulatedEvaluator:
    """Simulator for plans outside of the search: a simulating evaluator itself, else a new one, never the runtime."""
    return evaluator if isinstance(evaluator, SimulatedEvaluator) else search_simulator(problem)


_UNMEASURED = 0.5


def drawn_problems(problem: Problem, count: int, seed: int, spreads: Spreads = MEASURED) -> Iterator[Problem]:
    """The problem with drawn times: a factor for each class of work on each type of device, each model and each link.

    Factors are log-normal with median 1. Every second draw mirrors the one before it (antithetic variates, Hammersley &
    Morton 1956), so that even few draws are centred on the estimates. Free ops stay free, and memory is certain.

    Draw i of a seed depends on neither the count nor the program.
    """
    sd_of_class = np.zeros(max(WorkClass) + 1)
    for member in WorkClass:
        sd_of_class[member] = spreads.of_class.get(member, spreads.of_kind.get(member.kind, _UNMEASURED))
    class_of_op = np.full(problem.num_ops, WorkClass.UNCLASSIFIED, np.int64)
    if problem.work is not None:
        class_of_op = np.asarray(problem.work.work_class, np.int64)
    devices = problem.cluster.devices
    types, type_of = np.unique([device.type for device in devices], return_inverse=True)
    models, model_of = np.unique([device.model for device in devices], return_inverse=True)
    wires, wire_of = np.unique([link.bytes_per_s for link in problem.cluster.links], return_inverse=True)
    sizes = (len(sd_of_class) * len(types), len(models), len(wires), 1, 1)
    for i in range(count):
        normal = np.random.default_rng((seed, i // 2)).standard_normal(sum(sizes)) * (-1) ** i
        of_class, of_model, of_wire, of_tensor, of_dispatch = np.split(normal, np.cumsum(sizes)[:-1])
        factor = np.exp(sd_of_class[:, np.newaxis] * of_class.reshape(-1, len(types)))
        compute = factor[class_of_op][:, type_of.ravel()] * np.exp(spreads.model * of_model[model_of.ravel()])
        yield _multiplied(
            problem,
            compute,
            np.exp(spreads.bandwidth * of_wire[wire_of.ravel()]),
            float(np.exp(spreads.tensor * of_tensor[0])),
            float(np.exp(spreads.dispatch * of_dispatch[0])),
        )


def _multiplied(
    problem: Problem, compute: np.ndarray | float, bandwidth: np.ndarray, tensor: float, dispatch: float
) -> Problem:
    """The problem with factors on the times of ops, the links' bandwidths, and the times of tensors and kernels."""
    compute_ns = np.maximum(np.rint(problem.compute_ns * compute), 1).astype(np.int64)
    cluster = dataclasses.replace(
        problem.cluster,
        devices=tuple(
            dataclasses.replace(device, dispatch_ns=round(device.dispatch_ns * dispatch))
            for device in problem.cluster.devices
        ),
        links=tuple(
            dataclasses.replace(
                link,
                bytes_per_s=link.bytes_per_s * float(factor),
                tensor_ns=round(link.tensor_ns * tensor),
            )
            for link, factor in zip(problem.cluster.links, bandwidth, strict=True)
        ),
    )
    compute_ns = np.where(problem.compute_ns > 0, compute_ns, 0)  # free ops stay free
    return dataclasses.replace(problem, compute_ns=compute_ns, cluster=cluster)


ROBUST_DRAWS = 8
MOST_DRAWS = 60  # a search takes 64 samples, estimates among them (local_search_kernel.inc)
_TIMES_ESTIMATES = 4  # weight of the estimates in draws: a third of all


class RobustEvaluator(SampleAverageEvaluator):
    """The mean step time over the estimates, with a weight of a third, and a few draws of uncertain times.

    A plan must lose little where the estimates are right. All times of a draw but the links' latencies are scaled so
    that the best single device takes as long as by the estimates: no draw counts for more because all is slow in it.

    evaluator = RobustEvaluator(problem)
    result = search(problem, evaluator=evaluator)  # its times are by the estimates
    """

    def __init__(self, problem: Problem, seed: int = 0, draws: int = ROBUST_DRAWS):
        """Draws from a seed."""
        arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
        draws = arguments.whole_number("draws", draws, 1, MOST_DRAWS)
        samples, single_s = [problem] * _TIMES_ESTIMATES, _single_s(problem)
        for draw in drawn_problems(problem, draws, seed):
            factor = single_s / _single_s(draw)
            bandwidth = np.full(len(draw.cluster.links), 1 / factor)
            samples.append(_multiplied(draw, factor, bandwidth, factor, factor))
        super().__init__(problem, samples)
        self._sampled |= {"draws": draws, "draws_seed": seed}

    @property
    def tells(self) -> SimulatedEvaluator:
        """Evaluator by the estimates, comparable with bounds and other plans."""
        return search_simulator(self.problem)


def _single_s(problem: Problem) -> float:
    """Step time of the best single device, fitting or not; above 0."""
    rows = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
    times = SimulatedEvaluator(problem).times(rows)
    return max(float(np.asarray(times.runtime_s).min()), 1e-9)
