"""Draws of what is not known of described devices: other times of ops, links and hosts, and plans under each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tf_placer.base import arguments
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.formulas import Kind, WorkClass
from tf_placer.evaluation.simulated import SampleAverageEvaluator, SimulatedEvaluator, search_simulator
from tf_placer.ops.simulator import simulate
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem

# Standard deviations of the natural logarithm of what is measured over what is estimated.


@dataclasses.dataclass(frozen=True)
class Spreads:
    """How far off each thing may be, as the standard deviation of the logarithm of its factor.

    Attributes:
      of_class: of each class of work on GPUs; a class that is not here has ``of_kind``.
      of_kind: of each kind of work.
      model: of all ops on all devices of one model together.
      bandwidth: of all links of one bandwidth together.
      tensor: of the time to hand over a tensor, of all links together.
      dispatch: of the hosts' time for a kernel, of all devices together.
    """

    of_class: Mapping[WorkClass, float]
    of_kind: Mapping[Kind, float]
    model: float
    bandwidth: float
    tensor: float
    dispatch: float


# Classes: what single kernels of libraries scatter around the fitted shares (`python -m experiments.fit_gpu_costs`,
# 2,854 rows). A class that has fewer than 30 rows has what its kind has together. Kinds that nobody measured have the
# largest that is known. Models: what several sources measured of one network on one card (0.255, docs/results/
# gpu_fidelity.md). Links: PCIe 3 was measured from 6 to 12 GB/s, and a tensor between GPUs takes 25 us in Placeto's
# simulator and 134 us in Baechi's, each pair taken as two standard deviations. Hosts: 29 to 40 us for a kernel
# (tf_placer/cluster/models.toml), alike.
_UNMEASURED = 0.5
MEASURED = Spreads(
    of_class={
        WorkClass.CONVOLUTION_1X1: 0.43,
        WorkClass.CONVOLUTION_1X1_INPUT_GRADIENT: 0.30,
        WorkClass.CONVOLUTION_1X1_FILTER_GRADIENT: 0.22,
        WorkClass.CONVOLUTION_STRIDED: 0.32,
        WorkClass.CONVOLUTION_STRIDED_INPUT_GRADIENT: 0.39,
        WorkClass.CONVOLUTION_STRIDED_FILTER_GRADIENT: 0.37,
        WorkClass.CONVOLUTION_FIRST: 0.82,
        WorkClass.CONVOLUTION_3X3_TO_32: 0.50,
        WorkClass.CONVOLUTION_3X3_TO_64: 0.36,
        WorkClass.CONVOLUTION_3X3_TO_64_INPUT_GRADIENT: 0.14,
        WorkClass.CONVOLUTION_3X3_TO_128: 0.37,
        WorkClass.CONVOLUTION_3X3_WIDE: 0.36,
        WorkClass.CONVOLUTION_3X3_WIDE_INPUT_GRADIENT: 0.16,
        WorkClass.CONVOLUTION_3X3_SMALL: 0.43,
        WorkClass.CONVOLUTION_OTHER: 0.41,
        WorkClass.CONVOLUTION_OTHER_INPUT_GRADIENT: 0.47,
        WorkClass.PRODUCT_TO_16: 0.48,
        WorkClass.PRODUCT_TO_32: 0.37,
        WorkClass.PRODUCT_TO_64: 0.29,
        WorkClass.PRODUCT_TO_128: 0.38,
        WorkClass.PRODUCT_WIDE: 0.25,
        WorkClass.BATCHED_PRODUCT_TO_64: 0.46,
        WorkClass.BATCHED_PRODUCT_TO_128: 0.24,
        WorkClass.BATCHED_PRODUCT_WIDE: 0.22,
        WorkClass.STREAMING: 0.32,
        WorkClass.BATCH_NORMALIZATION: 0.94,
        WorkClass.SOFTMAX: 0.31,
    },
    of_kind={
        Kind.FREE: 0.0,
        Kind.CONVOLUTION: 0.35,
        Kind.MATRIX_PRODUCT: 0.30,
        Kind.STREAMING: 0.32,
        Kind.REDUCTION: 0.31,
    },
    model=0.255,
    bandwidth=float(np.log(12 / 6) / 2),
    tensor=float(np.log(134 / 25) / 2),
    dispatch=float(np.log(40 / 29) / 2),
)


def class_spreads(work_class: np.ndarray, spreads: Spreads = MEASURED) -> np.ndarray:
    """[K] standard deviations of classes of work [K]."""

    def of(one: WorkClass) -> float:
        return spreads.of_class.get(one, spreads.of_kind.get(one.kind, _UNMEASURED))

    return np.array([of(WorkClass(one)) for one in work_class.tolist()], np.float64)


# Problems under draws.


def work_classes(problem: Problem) -> np.ndarray:
    """[N] the class of work of each op; ``UNCLASSIFIED`` for all where the work of the ops is not known."""
    if problem.work is None or problem.work.work_class is None:
        return np.full(problem.num_ops, WorkClass.UNCLASSIFIED)
    return problem.work.work_class


def drawn_problems(problem: Problem, count: int, seed: int, spreads: Spreads = MEASURED) -> Iterator[Problem]:
    """The problem with other times: each class of work on each type of device, each model, and each link its own.

    Factors are log-normal with median 1, and every second draw is the one before it mirrored: what was slower by a
    factor is faster by it (antithetic variates, Hammersley & Morton 1956), so that few draws have their middle where
    the estimates are. What is free stays free, and memory is known.

    Args:
      problem: as estimated.
      count: of draws.
      seed: draw i of a seed is the same however many are asked for, and whatever program is on the devices.
      spreads: how far off things may be.
    """
    classes = np.arange(max(WorkClass) + 1)
    sd_of_class = np.zeros(len(classes))
    known = np.array(list(WorkClass))
    sd_of_class[known] = class_spreads(known, spreads)
    class_of_op = np.asarray(work_classes(problem), np.int64)
    devices = problem.cluster.devices
    types, type_of = np.unique([device.type for device in devices], return_inverse=True)
    models, model_of = np.unique([device.model for device in devices], return_inverse=True)
    wires, wire_of = np.unique([link.bytes_per_s for link in problem.cluster.links], return_inverse=True)
    sizes = (len(classes) * len(types), len(models), len(wires), 1, 1)
    for i in range(count):
        normal = np.random.default_rng((seed, i // 2)).standard_normal(sum(sizes)) * (-1) ** i
        of_class, of_model, of_wire, of_tensor, of_dispatch = np.split(normal, np.cumsum(sizes)[:-1])
        factor = np.exp(sd_of_class[:, np.newaxis] * of_class.reshape(len(classes), len(types)))
        compute = factor[class_of_op][:, type_of.ravel()] * np.exp(spreads.model * of_model[model_of.ravel()])
        drawn_ns = np.maximum(np.rint(problem.compute_ns * compute), 1).astype(np.int64)
        yield dataclasses.replace(
            problem,
            compute_ns=np.where(problem.compute_ns > 0, drawn_ns, 0),
            cluster=_drawn_cluster(
                problem.cluster,
                np.exp(spreads.bandwidth * of_wire[wire_of.ravel()]),
                float(np.exp(spreads.tensor * of_tensor[0])),
                float(np.exp(spreads.dispatch * of_dispatch[0])),
            ),
        )


def _drawn_cluster(cluster: Cluster, bandwidth: np.ndarray, tensor: float, dispatch: float) -> Cluster:
    return dataclasses.replace(
        cluster,
        devices=tuple(
            dataclasses.replace(device, dispatch_ns=round(device.dispatch_ns * dispatch))
            for device in cluster.devices
        ),
        links=tuple(
            dataclasses.replace(
                link,
                bytes_per_s=link.bytes_per_s * float(factor),
                tensor_ns=round(link.tensor_ns * tensor),
            )
            for link, factor in zip(cluster.links, bandwidth, strict=True)
        ),
    )


# A search for a plan that is good under draws.

ROBUST_DRAWS = 8
_TIMES_ESTIMATES = 4  # that the estimates count as often as one draw: a third of all


class RobustEvaluator(SampleAverageEvaluator):
    """The mean step time over the estimates, for a third, and a few draws of what is not known.

    The estimates are the likeliest of all, and a plan shall lose little where they are right. All times of a draw but
    the links' latencies are scaled so that the best single device takes as long as by the estimates: a plan shall gain
    where others gain little, and no draw counts for more because everything is slow in it.

    evaluator = RobustEvaluator(problem)
    result = search(problem, evaluator=evaluator)  # told in times by the estimates
    """

    def __init__(self, problem: Problem, seed: int = 0, draws: int = ROBUST_DRAWS):
        """Draws.

        Args:
          problem: what is placed.
          seed: of the draws.
          draws: how many.

        Raises:
          InputError: it is no problem, or no number of draws.
        """
        arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
        draws = arguments.whole_number("draws", draws, 1, MOST_DRAWS)
        single_s = _single_s(problem)
        drawn = (_scaled(one, single_s / _single_s(one)) for one in drawn_problems(problem, draws, seed))
        super().__init__(problem, (problem,) * _TIMES_ESTIMATES + tuple(drawn))
        self._drawn = {"draws": draws, "draws_seed": seed}

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the draws, too."""
        return {**super().identity, **self._drawn}

    @property
    def tells(self) -> SimulatedEvaluator:
        """Times by the estimates, which bounds and other plans are told in."""
        return search_simulator(self.problem)


def _single_s(problem: Problem) -> float:
    """Step time of the best single device, whether it fits or not; above 0."""
    rows = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
    times = SimulatedEvaluator(problem).times(rows)
    return max(float(np.asarray(times.runtime_s).min()), 1e-9)


def _scaled(problem: Problem, factor: float) -> Problem:
    """The problem with all times but the links' latencies so many times as long."""
    scaled_ns = np.maximum(np.rint(problem.compute_ns * factor), 1).astype(np.int64)
    return dataclasses.replace(
        problem,
        compute_ns=np.where(problem.compute_ns > 0, scaled_ns, 0),
        cluster=_drawn_cluster(
            problem.cluster, np.full(len(problem.cluster.links), 1 / factor), factor, factor
        ),
    )


MOST_DRAWS = 60  # a search takes 64 samples, the estimates among them (local_search_kernel.cc)

_OTHER_SEED = 1 << 32  # no draw of a search


def drawn_step_ns(problem: Problem, plans: Decisions, count: int, seed: int) -> np.ndarray:
    """[count, B] int64 step times of B legal plans under so many draws; whether they fit is not asked.

    None of the draws is one that a ``RobustEvaluator`` knows.
    """
    found = np.zeros((count, len(plans)), np.int64)
    for i, drawn in enumerate(drawn_problems(problem, count, _OTHER_SEED + seed)):
        inputs = SimulatedEvaluator(drawn).inputs
        found[i] = simulate(inputs, plans.device_of_unit, plans.priority_of_op).runtime_ns.numpy()
    return found
