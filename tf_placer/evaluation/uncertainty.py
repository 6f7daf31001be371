"""Draws of the uncertain times of ops, links and hosts of described devices, and an evaluator of their mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tf_placer.base import arguments
from tf_placer.costs.formulas import Kind, WorkClass
from tf_placer.evaluation.simulated import SampleAverageEvaluator, SimulatedEvaluator, search_simulator
from tf_placer.ops.simulator import simulate
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class Spreads:
    """Standard deviations of the natural logarithm of measured over estimated times."""

    of_class: Mapping[WorkClass, float]  # classes of work on GPUs; other classes have the value of their kind
    of_kind: Mapping[Kind, float]
    model: float  # common factor of all ops on devices of one model
    bandwidth: float  # common factor of all links of one bandwidth
    tensor: float  # of the time to hand over a tensor, common to all links
    dispatch: float  # of the hosts' time for a kernel, common to all devices


# Classes: scatter of single kernels of libraries around the fitted shares (`python -m experiments.fit_gpu_costs`, 2,854
# rows). A class with fewer than 30 rows has the scatter of its kind. Kinds without measurements have the largest one.
# Models: scatter of several sources on one network and card (0.255, docs/results/gpu_fidelity.md). Links: PCIe 3 was
# measured from 6 to 12 GB/s, and a tensor between GPUs takes 25 us in Placeto's simulator and 134 us in Baechi's, each
# pair taken as two standard deviations. Hosts: 29 to 40 us for a kernel (tf_placer/cluster/models.toml), alike.
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
    classes = map(WorkClass, work_class.tolist())
    of_kind = ((c, spreads.of_kind.get(c.kind, _UNMEASURED)) for c in classes)
    return np.array([spreads.of_class.get(c, spread) for c, spread in of_kind], np.float64)


def drawn_problems(problem: Problem, count: int, seed: int, spreads: Spreads = MEASURED) -> Iterator[Problem]:
    """The problem with drawn times: a factor for each class of work on each type of device, each model and each link.

    Factors are log-normal with median 1. Every second draw mirrors the one before it: times that were longer by a
    factor are shorter by it (antithetic variates, Hammersley & Morton 1956), so that even few draws are centred on the
    estimates. Free ops stay free, and memory is certain.

    Args:
      problem: as estimated.
      count: of draws.
      seed: draw i of a seed depends on neither the count nor the program.
      spreads: of the factors.
    """
    classes = np.arange(max(WorkClass) + 1)
    sd_of_class = np.zeros(len(classes))
    members = np.array(list(WorkClass))
    sd_of_class[members] = class_spreads(members, spreads)
    work = None if problem.work is None else problem.work.work_class
    class_of_op = np.full(problem.num_ops, WorkClass.UNCLASSIFIED) if work is None else work
    class_of_op = np.asarray(class_of_op, np.int64)
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
MOST_DRAWS = 60  # a search takes 64 samples, the estimates among them (local_search_kernel.cc)
_TIMES_ESTIMATES = 4  # weight of the estimates in draws: a third of all
_OTHER_SEED = 1 << 32  # of draws that no search has seen


class RobustEvaluator(SampleAverageEvaluator):
    """The mean step time over the estimates, with a weight of a third, and a few draws of uncertain times.

    The estimates are the likeliest sample, and a plan must lose little where they are right. All times of a draw but
    the links' latencies are scaled so that the best single device takes as long as by the estimates. So no draw counts
    for more because everything is slow in it.

    evaluator = RobustEvaluator(problem)
    result = search(problem, evaluator=evaluator)  # its times are by the estimates
    """

    def __init__(self, problem: Problem, seed: int = 0, draws: int = ROBUST_DRAWS):
        """Draws.

        Args:
          problem: the placed problem.
          seed: of the draws.
          draws: number of them.

        Raises:
          InputError: an argument is no problem, or no number of draws.
        """
        arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
        draws = arguments.whole_number("draws", draws, 1, MOST_DRAWS)
        single_s = _single_s(problem)
        drawn = (_scaled(draw, single_s / _single_s(draw)) for draw in drawn_problems(problem, draws, seed))
        super().__init__(problem, (problem,) * _TIMES_ESTIMATES + tuple(drawn))
        self._drawn = {"draws": draws, "draws_seed": seed}

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the draws, too."""
        return {**super().identity, **self._drawn}

    @property
    def tells(self) -> SimulatedEvaluator:
        """Evaluator by the estimates, comparable with bounds and other plans."""
        return search_simulator(self.problem)


def _single_s(problem: Problem) -> float:
    """Step time of the best single device, whether it fits or not; above 0."""
    rows = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
    times = SimulatedEvaluator(problem).times(rows)
    return max(float(np.asarray(times.runtime_s).min()), 1e-9)


def _scaled(problem: Problem, factor: float) -> Problem:
    """The problem with all times but the links' latencies multiplied by a factor."""
    bandwidth = np.full(len(problem.cluster.links), 1 / factor)
    return _multiplied(problem, factor, bandwidth, factor, factor)


def drawn_step_ns(problem: Problem, plans: Decisions, count: int, seed: int) -> np.ndarray:
    """[count, B] int64 step times of B legal plans under draws that no ``RobustEvaluator`` uses; memory is ignored."""
    step_ns = np.zeros((count, len(plans)), np.int64)
    for i, drawn in enumerate(drawn_problems(problem, count, _OTHER_SEED + seed)):
        inputs = SimulatedEvaluator(drawn).inputs
        step_ns[i] = simulate(inputs, plans.device_of_unit, plans.priority_of_op).runtime_ns.numpy()
    return step_ns
