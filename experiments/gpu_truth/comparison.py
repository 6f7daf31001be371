"""Estimates of the cost model next to published measurements, and statistics of their ratios."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy.stats

from experiments.gpu_truth.fitting import fed_seconds
from experiments.gpu_truth.networks import Kernels, Network, network_of, read_networks
from experiments.gpu_truth.rows import Row, kernels_of, single_convolution
from tf_placer.costs.formulas import WorkClass

INSIDE = (0.75, 1.33)
_CNNS = frozenset({"alexnet", "inception3", "resnet50", "resnet152", "resnet50_v1.5", "vgg16"})
_LEAST_BATCH = 16  # below it a step waits for the host


@dataclasses.dataclass(frozen=True)
class Compared:
    """A row and its estimate."""

    row: Row  # what was measured
    estimated_s: float  # seconds by the cost model

    @property
    def ratio(self) -> float:
        """Estimate over measurement."""
        return self.estimated_s / self.row.measured_s

    @property
    def is_compiled(self) -> bool:
        """Of a network that XLA compiled."""
        return self.row.is_network and "XLA" in self.row.framework

    @property
    def is_image(self) -> bool:
        """Of a network on images."""
        return self.row.what in _CNNS

    @property
    def is_tf32(self) -> bool:
        """Measured with TF32."""
        return "TF32" in self.row.gpu

    @property
    def is_cnn_fp32(self) -> bool:
        """Of a network on images with batch 16 or more, in fp32."""
        return self.is_image and self.row.batch >= _LEAST_BATCH and not self.is_tf32

    @property
    def is_session(self) -> bool:
        """Of one layer in a TensorFlow 1 session, with the session's call and two transposes."""
        return self.row.source == "cde"


def compare(rows: Sequence[Row], networks: Mapping[Network, Kernels] | None = None) -> list[Compared]:
    """Rows on described GPUs that have an estimate: networks, single kernels, convolutions in sessions."""
    networks = read_networks() if networks is None else networks
    found = []
    for row in rows:
        kernels = _kernels(row, networks)
        if kernels is not None and row.device is not None:
            seconds, count = kernels.seconds_on(row.device), float(kernels.count.sum())
            if row.is_fed_by_framework:
                seconds = fed_seconds(seconds, 1.0 if not row.is_network else count, row.device)
            found.append(Compared(row, seconds))
    return found


def _kernels(row: Row, networks: Mapping[Network, Kernels]) -> Kernels | None:
    if row.is_network:
        kernels = networks.get(network_of(row))
        return without_elementwise(kernels) if kernels is not None and "XLA" in row.framework else kernels
    if row.what == "conv_layer" and row.direction == "fwd":
        return Kernels.of_works([single_convolution(row)])
    works = kernels_of(row)
    return None if works is None else Kernels.of_works(works)


def without_elementwise(kernels: Kernels) -> Kernels:
    """The kernels that XLA leaves of a network: element-wise ops run inside those that make or read their tensors."""
    kept = kernels.work_class != WorkClass.STREAMING
    return Kernels(*(getattr(kernels, field.name)[kept] for field in dataclasses.fields(Kernels)))


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Of some rows."""

    rows: int  # how many
    median: float  # of estimate / measured
    factor: float  # the typical factor, ``exp(mean |ln(estimate / measured)|)``
    inside: float  # share of rows with a ratio of 0.75 to 1.33
    within_two: float  # share within a factor of 2
    order: float | None  # Spearman's coefficient; None for fewer than three rows or several GPUs


def statistics(compared: Iterable[Compared]) -> Statistics:
    """Statistics of at least one row."""
    found = list(compared)
    ratios = np.array([one.ratio for one in found])
    off = np.abs(np.log(ratios))
    gpus = {one.row.gpu for one in found}
    order = None
    if len(found) >= 3 and len(gpus) == 1:
        seconds = [[one.estimated_s, one.row.measured_s] for one in found]
        order = float(scipy.stats.spearmanr(*np.array(seconds).T).statistic)
    median, factor = float(np.median(ratios)), float(np.exp(off.mean()))
    inside = float(((ratios >= INSIDE[0]) & (ratios <= INSIDE[1])).mean())
    return Statistics(len(found), median, factor, inside, float((off <= np.log(2)).mean()), order)
