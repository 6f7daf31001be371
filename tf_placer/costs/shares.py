"""Shares of a device's peak rates that each class of work reaches: every number of the cost model that was fitted."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from tf_placer.costs.formulas import Kind, WorkClass

# By hand, kernels of a few microseconds in DeepBench: fixed cost of a kernel in launches of models.toml.
LAUNCHES = 1.5
# By hand: of the smooth maximum of compute and memory; a kernel with equal times takes 1.19 times as long as either.
POWER = 4.0
# Shares of ``peak_flops``, the fp32 peak at the boost clock. Above 1: Winograd's algorithm multiplies less often.
# Family of classes -> forward, input gradient, filter gradient.
CONVOLUTION_SHARES: Mapping[str, tuple[float, float, float]] = {
    "1X1": (0.64, 0.75, 0.46),
    "STRIDED": (0.74, 0.39, 0.51),
    "FIRST": (0.80, 0.22, 0.38),
    "3X3_TO_32": (0.59, 0.84, 0.34),
    "3X3_TO_64": (0.90, 1.37, 0.57),
    "3X3_TO_128": (1.26, 1.68, 1.41),
    "3X3_WIDE": (1.38, 1.89, 1.77),
    "3X3_SMALL": (0.84, 1.34, 1.03),
    "SQUARE": (1.44, 1.08, 0.87),
    "OTHER": (0.79, 0.78, 0.79),
}
PRODUCT_SHARES: Mapping[WorkClass, float] = {
    WorkClass.PRODUCT_TO_16: 0.59,
    WorkClass.PRODUCT_TO_32: 0.98,
    WorkClass.PRODUCT_TO_64: 0.83,
    WorkClass.PRODUCT_TO_128: 1.22,
    WorkClass.PRODUCT_WIDE: 0.83,
    WorkClass.BATCHED_PRODUCT_TO_64: 0.42,
    WorkClass.BATCHED_PRODUCT_TO_128: 0.67,
    WorkClass.BATCHED_PRODUCT_WIDE: 0.76,
}
# Shares of what a GPU streams (``GpuModel.streaming``): of all convolutions and products, and of what else has truth.
KIND_MEMORY_SHARES: Mapping[Kind, float] = {Kind.CONVOLUTION: 0.33, Kind.MATRIX_PRODUCT: 0.46}
MEMORY_SHARES: Mapping[WorkClass, float] = {
    WorkClass.STREAMING: 1.00,
    WorkClass.BATCH_NORMALIZATION: 0.55,
    WorkClass.BATCH_NORMALIZATION_GRADIENT: 0.94,
    WorkClass.POOLING: 0.60,
    WorkClass.SOFTMAX: 0.80,
}
# Estimates: no measurements were found. They keep the usual order (streaming > reduction > rearrangement > irregular;
# dense > depthwise) and what is charged for arithmetic next to memory: a quarter of the peak.
VECTOR_SHARE = 0.25
# Kepler's multiprocessors keep a third of their lanes idle unless two instructions are issued together, and its
# boost clock does not last: share of a P100's shares. Medians of long single convolutions in TensorFlow
# (CDECatapult) are 0.52 on K40 and 0.46 on K80; 0.34 to 0.55 by what counts as long.
KEPLER_COMPUTE = 0.49
DIRECTIONS = ("", "_INPUT_GRADIENT", "_FILTER_GRADIENT")


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """Shares of ``peak_flops`` and of ``memory_bytes_per_s``, above 0."""

    compute: float
    memory: float


_GPU_ESTIMATES: Mapping[WorkClass, Efficiency] = {
    WorkClass.UNCLASSIFIED: Efficiency(VECTOR_SHARE, 1.00),
    WorkClass.DEPTHWISE_CONVOLUTION: Efficiency(0.15, 0.53),
    WorkClass.REDUCTION: Efficiency(VECTOR_SHARE, 0.80),
    WorkClass.REARRANGEMENT: Efficiency(VECTOR_SHARE, 0.73),
    WorkClass.IRREGULAR: Efficiency(0.10, 0.40),
    WorkClass.RANDOM: Efficiency(VECTOR_SHARE, 1.00),
}


@dataclasses.dataclass(frozen=True)
class GpuModel:
    """Numbers of one GPU model."""

    # share of the data sheet's memory bandwidth that a kernel reaches which reads and writes in order
    streaming: float
    # on the whole GPU; 0 for one that nothing is known of, where the last wave costs nothing
    multiprocessors: int
    compute: float = 1.0  # shares of ``peak_flops`` are multiplied with this
    # ``peak_flops`` is that of TF32, for which no library has Winograd's algorithm: 3 x 3 is as 1 x 1
    has_tf32: bool = False


# Streaming: medians of BabelStream on K40 and K80, and of NeuSight's element-wise kernels on P100, V100 and A100.
# Estimates: 0.75 for T4 and any other GPU, which STREAM-like kernels reach; H100 as A100. Multiprocessors: data sheets.
GPU_MODELS: Mapping[str, GpuModel] = {
    "k40": GpuModel(0.67, 15, KEPLER_COMPUTE),
    "k80": GpuModel(0.76, 13, KEPLER_COMPUTE),
    "p100": GpuModel(0.70, 56),
    "p100_sxm2": GpuModel(0.70, 56),
    "generic_gpu": GpuModel(0.70, 56),
    "v100": GpuModel(0.87, 80),
    "t4": GpuModel(0.75, 40),
    "a100": GpuModel(0.84, 108, has_tf32=True),
    "a100_fp32": GpuModel(0.84, 108),
    "a100_80gb_fp32": GpuModel(0.84, 108),
    "h100": GpuModel(0.84, 132, has_tf32=True),
    "h100_fp32": GpuModel(0.84, 132),
}
ANY_GPU = GpuModel(0.75, 0)
# CPUs: estimates that keep the usual order, for described machines; live ones are profiled.
_OF_CPU: Mapping[Kind, Efficiency] = {
    Kind.CONVOLUTION: Efficiency(0.50, 0.60),
    Kind.DEPTHWISE_CONVOLUTION: Efficiency(0.10, 0.40),
    Kind.MATRIX_PRODUCT: Efficiency(0.60, 0.60),
    Kind.STREAMING: Efficiency(0.10, 0.60),
    Kind.REDUCTION: Efficiency(0.10, 0.40),
    Kind.REARRANGEMENT: Efficiency(0.10, 0.30),
    Kind.IRREGULAR: Efficiency(0.05, 0.15),
    Kind.RANDOM: Efficiency(0.10, 0.60),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Efficiencies:
    """What a device reaches."""

    # compute, memory: shares of the device's peak rates, by the value of ``WorkClass``; 1 for ``FREE``
    compute: np.ndarray
    memory: np.ndarray
    launches: float  # fixed cost of an op, in the device's ``launch_ns``
    multiprocessors: int  # that share the tiles of one op; 0 where tiles cost nothing


def gpu_efficiencies(model: GpuModel) -> dict[WorkClass, Efficiency]:
    """Shares of a GPU's peak rates for each class but ``FREE``."""
    of_class = dict(_GPU_ESTIMATES)
    for family, shares in CONVOLUTION_SHARES.items():
        for direction, share, dense in zip(DIRECTIONS, shares, CONVOLUTION_SHARES["1X1"], strict=True):
            compute = min(share, dense) if model.has_tf32 and family.startswith("3X3") else share
            work_class = WorkClass[f"CONVOLUTION_{family}{direction}"]
            of_class[work_class] = Efficiency(compute, KIND_MEMORY_SHARES[Kind.CONVOLUTION])
    for work_class, share in PRODUCT_SHARES.items():
        of_class[work_class] = Efficiency(share, KIND_MEMORY_SHARES[Kind.MATRIX_PRODUCT])
    for work_class, share in MEMORY_SHARES.items():
        of_class[work_class] = Efficiency(VECTOR_SHARE, share)
    return {
        work_class: Efficiency(efficiency.compute * model.compute, efficiency.memory * model.streaming)
        for work_class, efficiency in of_class.items()
    }


@functools.cache
def efficiencies(device_type: str, model: str) -> Efficiencies:
    """Shares that a device reaches: a CPU by its type, a GPU by its model."""
    gpu, launches = GPU_MODELS.get(model, ANY_GPU), LAUNCHES
    if device_type == "CPU":
        gpu, launches = ANY_GPU, 1.0
        of_class = {
            work_class: _OF_CPU[work_class.kind] for work_class in WorkClass if work_class.kind in _OF_CPU
        }
    else:
        of_class = gpu_efficiencies(gpu)
    compute, memory = (np.ones(max(WorkClass) + 1) for _ in range(2))
    for work_class, efficiency in of_class.items():
        compute[work_class], memory[work_class] = efficiency.compute, efficiency.memory
    return Efficiencies(compute, memory, launches, gpu.multiprocessors)
