"""Shares of a device's peak rates that each kind of work reaches, and the time that follows."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.cluster.device import Device
from tf_placer.costs.work import Kind


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """Shares of ``peak_flops`` and of ``memory_bytes_per_s``, in (0, 1]."""

    compute: float
    memory: float


# One figure per kind of work and device type: for all models and all programs. Where they come from:
# - convolution, GPU: TensorFlow's 2017 benchmark page gives 142 images/s for Inception-V3 on a P100, which is
#   142 x 3 x 11.4 GFLOP = 4.9 Tflops, 52 % of 9.3 *including* everything that is not a convolution; 219 for
#   ResNet-50 is 5.1 Tflops (55 %). On a K80 30.5 and 51.9 are 37 % and 43 % of 2.8 Tflops.
#   So convolutions alone run at about 0.6.
# - streaming, GPU: what STREAM-like kernels reach with ECC on, about 0.75 of the data sheet.
# - the other GPU figures and all CPU figures are estimates that keep the usual order (matrix product >
#   convolution > depthwise; streaming > reduction > rearrangement > irregular).
_OF_GPU: dict[Kind, Efficiency] = {
    Kind.CONVOLUTION: Efficiency(0.60, 0.75),
    Kind.DEPTHWISE_CONVOLUTION: Efficiency(0.15, 0.40),
    Kind.MATRIX_PRODUCT: Efficiency(0.70, 0.75),
    Kind.STREAMING: Efficiency(0.25, 0.75),
    Kind.REDUCTION: Efficiency(0.25, 0.60),
    Kind.REARRANGEMENT: Efficiency(0.25, 0.55),
    Kind.IRREGULAR: Efficiency(0.10, 0.30),
    Kind.RANDOM: Efficiency(0.25, 0.75),
}
_OF_CPU: dict[Kind, Efficiency] = {
    Kind.CONVOLUTION: Efficiency(0.50, 0.60),
    Kind.DEPTHWISE_CONVOLUTION: Efficiency(0.10, 0.40),
    Kind.MATRIX_PRODUCT: Efficiency(0.60, 0.60),
    Kind.STREAMING: Efficiency(0.10, 0.60),
    Kind.REDUCTION: Efficiency(0.10, 0.40),
    Kind.REARRANGEMENT: Efficiency(0.10, 0.30),
    Kind.IRREGULAR: Efficiency(0.05, 0.15),
    Kind.RANDOM: Efficiency(0.10, 0.60),
}
# Two weeks: longer than any step that the simulator takes, and still far from the end of int64.
LONGEST_NS = 1 << 50
EFFICIENCY_OF_TYPE = {"GPU": _OF_GPU, "CPU": _OF_CPU}


def run_time_ns(kind: np.ndarray, flops: np.ndarray, num_bytes: np.ndarray, device: Device) -> np.ndarray:
    """Time of ops on one stream of a device, by the roofline model.

    ``launch + max(flops / (peak_flops * compute), bytes / (memory_bytes_per_s * memory))``, with the
    device's rates divided by its streams; 0 for ``Kind.FREE``.

    Args:
      kind: [N] values of ``Kind``.
      flops, num_bytes: [N] of each op's ``Work``.
      device: where they run.

    Returns:
      [N] int64 nanoseconds, rounded; at most ``LONGEST_NS`` and the launch.
    """
    table = EFFICIENCY_OF_TYPE[device.type]
    compute = np.array([1.0 if k is Kind.FREE else table[k].compute for k in Kind])[kind]
    memory = np.array([1.0 if k is Kind.FREE else table[k].memory for k in Kind])[kind]
    compute_s = flops * device.streams / (device.peak_flops * compute)
    memory_s = num_bytes * device.streams / (device.memory_bytes_per_s * memory)
    compute_ns = np.rint(np.minimum(1e9 * np.maximum(compute_s, memory_s), LONGEST_NS))
    run_ns = device.launch_ns + compute_ns.astype(np.int64)
    return np.where(kind == Kind.FREE, 0, run_ns)
