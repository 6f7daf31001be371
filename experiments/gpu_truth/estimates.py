"""Estimates of the cost model next to published measurements, and the fit of its shares to times of single kernels."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import scipy.optimize
import scipy.stats

from experiments.gpu_truth.networks import Kernels, Network, network_of, read_networks
from experiments.gpu_truth.rows import Row, kernels_of, single_convolution
from tf_placer.cluster.device import Device, device_of_model
from tf_placer.costs import formulas
from tf_placer.costs.analytic import smooth_maximum
from tf_placer.costs.formulas import Kind, Work, WorkClass

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


def fed_seconds(kernels_s: float, kernels: float, device: Device) -> float:
    """Seconds of a step on one GPU that a framework feeds: of its kernels or of starting them, the later."""
    return max(kernels_s, kernels * device.dispatch_ns / 1e9)


@dataclasses.dataclass(frozen=True, eq=False)
class KernelRow:
    """A row of one op with its kernels (two for a backward pass)."""

    row: Row
    works: tuple[Work, ...]

    @property
    def work_class(self) -> WorkClass:
        """Of its kernel with the most FLOPs."""
        return max(self.works, key=lambda work: work.flops).work_class


def kernel_rows(rows: Sequence[Row]) -> list[KernelRow]:
    """The rows that are single kernels of a library on a described GPU."""
    found = []
    for row in rows:
        works = None if row.is_network or row.device is None else kernels_of(row)
        # PipeDream's first forward convolutions take three to eight times as long as others': images arrive.
        first = WorkClass["CONVOLUTION_FIRST"] if row.source == "pipedream" else None
        if works is not None and first not in [work.work_class for work in works]:
            found.append(KernelRow(row, works))
    return found


# Parameters: a compute share for each class of convolution and product, memory shares for the rest.
_MATRIX = (Kind.CONVOLUTION, Kind.MATRIX_PRODUCT)
_COMPUTE: tuple[WorkClass, ...] = tuple(one for one in WorkClass if one.kind in _MATRIX)
_MEMORY: list[WorkClass] = [one for one in formulas.MEMORY_SHARES if one is not WorkClass.STREAMING]
_KINDS = tuple(formulas.KIND_MEMORY_SHARES)  # have a memory share together
_NUM_PARAMETERS = len(_COMPUTE) + len(_MEMORY) + len(_KINDS)
_PRIOR_SHARE, _PRIOR_WEIGHT = 0.6, 0.5  # a class of few rows is drawn to 0.6 by as much as half a row
_STRAY = 0.5  # of ln(time): rows that are further off count linearly (Huber)


@dataclasses.dataclass(frozen=True)
class Shares:
    """Fitted constants, as shares.toml has them."""

    compute: Mapping[WorkClass, float]
    memory: Mapping[WorkClass, float]
    kind_memory: Mapping[Kind, float]

    def seconds(self, rows: Sequence[KernelRow]) -> np.ndarray:
        """[R] the estimates for rows."""
        memory = [self.memory[one] for one in _MEMORY] + [self.kind_memory[one] for one in _KINDS]
        return _Design(rows).seconds(np.array([self.compute[one] for one in _COMPUTE] + memory))


def current_shares() -> Shares:
    """The constants that the cost model has."""
    compute = dict(formulas.PRODUCT_SHARES)
    for family, values in formulas.CONVOLUTION_SHARES.items():
        for direction, value in zip(formulas.DIRECTIONS, values, strict=True):
            compute[WorkClass[f"CONVOLUTION_{family}{direction}"]] = value
    memory = {one: formulas.MEMORY_SHARES[one] for one in _MEMORY}
    return Shares(compute, memory, formulas.KIND_MEMORY_SHARES)


class _Design:
    """What of the estimates does not depend on the parameters."""

    def __init__(self, rows: Sequence[KernelRow]) -> None:
        compute_of: dict[WorkClass, int] = {one: position for position, one in enumerate(_COMPUTE)}
        with_memory: tuple[WorkClass | Kind, ...] = (*_MEMORY, *_KINDS)
        memory_of = {one: len(_COMPUTE) + position for position, one in enumerate(with_memory)}
        row_of, compute, memory, compute_s, memory_s, launch_s, floor_s = ([] for _ in range(7))
        for position, one in enumerate(rows):
            device = one.row.device
            assert device is not None
            gpu = formulas.GPU_MODELS[device.model]
            for work in one.works:
                row_of.append(position)
                waves = gpu.multiprocessors / work.tiles if work.tiles else 0.0
                is_matrix = work.work_class in compute_of
                compute.append(compute_of.get(work.work_class, -1))
                memory.append(memory_of.get(work.work_class.kind if is_matrix else work.work_class, -1))
                flops = work.flops * (1 + waves) / (gpu.compute if is_matrix else formulas.VECTOR_SHARE)
                compute_s.append(flops / device.peak_flops)
                memory_s.append(work.num_bytes / (device.memory_bytes_per_s * gpu.streaming))
                launch_s.append(formulas.LAUNCHES * device.launch_ns / 1e9)
            floor_s.append(device.dispatch_ns / 1e9 if one.row.is_fed_by_framework else 0.0)
        self._row_of, self._compute, self._memory = (np.array(a, np.int64) for a in (row_of, compute, memory))
        self._compute_s, self._memory_s, self._launch_s = map(np.array, (compute_s, memory_s, launch_s))
        self._floor_s = np.array(floor_s)

    def seconds(self, values: np.ndarray) -> np.ndarray:
        """[R] with the shares of the parameters; -1 means a share of 1."""
        known = np.append(values, 1.0)
        compute_s, memory_s = self._compute_s / known[self._compute], self._memory_s / known[self._memory]
        kernel_s = self._launch_s + smooth_maximum(compute_s, memory_s)
        return np.maximum(self._by_row(kernel_s), self._floor_s)

    def gradient(self, values: np.ndarray, weight_of_row: np.ndarray) -> np.ndarray:
        """[P] of ``weight_of_row @ seconds`` by the logarithms of the parameters.

        ``d T / d ln(share) = -T (t / T)^POWER`` for a kernel's smooth maximum T of times t.
        """
        known = np.append(values, 1.0)
        compute_s, memory_s = self._compute_s / known[self._compute], self._memory_s / known[self._memory]
        kernel_s = smooth_maximum(compute_s, memory_s)
        is_fed_later = self._by_row(self._launch_s + kernel_s) < self._floor_s
        weight = np.where(is_fed_later, 0.0, weight_of_row)[self._row_of] * kernel_s
        found = np.zeros(len(known))
        for of, one_s in ((self._compute, compute_s), (self._memory, memory_s)):
            share = np.divide(one_s, kernel_s, out=np.zeros_like(one_s), where=kernel_s > 0)
            np.subtract.at(found, of, weight * share**formulas.POWER)
        return found[:-1]

    def _by_row(self, of_kernels: np.ndarray) -> np.ndarray:
        return np.bincount(self._row_of, of_kernels, len(self._floor_s))


def fit_shares(rows: Sequence[KernelRow]) -> Shares:
    """The shares with the least Huber loss of ln(estimate / measured)."""
    design, measured_s = _Design(rows), np.array([one.row.measured_s for one in rows])
    prior = np.log(_PRIOR_SHARE)

    def loss(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        values, drawn = np.exp(logarithms), logarithms - prior
        estimated_s = design.seconds(values)
        off = np.log(estimated_s / measured_s)
        huber = np.where(np.abs(off) < _STRAY, off**2 / 2, _STRAY * (np.abs(off) - _STRAY / 2))
        slope = design.gradient(values, np.clip(off, -_STRAY, _STRAY) / estimated_s)
        return huber.sum() + _PRIOR_WEIGHT * (drawn**2).sum() / 2, slope + _PRIOR_WEIGHT * drawn

    start = np.full(_NUM_PARAMETERS, prior)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    values = iter(np.exp(found.x).tolist())
    return Shares(
        {one: next(values) for one in _COMPUTE},
        {one: next(values) for one in _MEMORY},
        {one: next(values) for one in _KINDS},
    )


# What is found before the shares, from rows of its own: the streaming share of each GPU, and Kepler's compute share.

_LARGE_S = 80e-6  # by the data sheet; PyTorch takes 30 to 40 us to start a kernel


def streaming_shares(rows: Sequence[KernelRow]) -> dict[str, float]:
    """GPU model -> the median share of its data sheet's bandwidth that large element-wise kernels reach."""
    found: dict[str, list[float]] = {}
    for one in rows:
        work, device = one.works[0], one.row.device
        if one.row.what != "elementwise" or device is None:
            continue
        if work.num_bytes > _LARGE_S * device.memory_bytes_per_s:
            kernel_s = one.row.measured_s - formulas.LAUNCHES * device.launch_ns / 1e9
            found.setdefault(device.model, []).append(work.num_bytes / (device.memory_bytes_per_s * kernel_s))
    return {model: float(np.median(values)) for model, values in found.items()}


_KEPLER = ("k40", "k80")
_LONG_S = 1e-3  # on a P100 at its peak: the session's call and the transposes do not count
_BOUND = 8.0  # times as long for the arithmetic as for the bytes, at the rates of a P100


def kepler_compute(rows: Sequence[Row]) -> dict[str, float]:
    """K40, K80 -> their compute share of a P100's, by medians of long convolutions in sessions.

    The shares are FLOPs over peak and measured time; no other constant of the cost model is in them.
    """
    p100, reached = device_of_model("p100"), collections.defaultdict(list)
    for row in rows:
        if row.what == "conv_layer" and row.direction == "fwd" and row.device is not None:
            work = single_convolution(row)
            least_s, memory_s = work.flops / p100.peak_flops, work.num_bytes / p100.memory_bytes_per_s
            if least_s > _LONG_S and least_s > _BOUND * memory_s:
                reached[row.device.model].append(work.flops / row.device.peak_flops / row.measured_s)
    return {model: float(np.median(reached[model]) / np.median(reached[p100.model])) for model in _KEPLER}


def cross_validation(
    rows: Sequence[KernelRow], key: Callable[[KernelRow], str]
) -> Iterator[tuple[str, int, float, float]]:
    """Each value of a key and the number of its rows; typical factors by a fit to the others and by one to all."""
    whole = fit_shares(rows)
    for value in sorted(set(map(key, rows))):
        inside = [one for one in rows if key(one) == value]
        others = fit_shares([one for one in rows if key(one) != value])
        yield value, len(inside), typical_factor(others, inside), typical_factor(whole, inside)


def off_by(fitted: Shares, rows: Sequence[KernelRow]) -> np.ndarray:
    """[R] ln(estimate / measured)."""
    return np.log(fitted.seconds(rows) / np.array([one.row.measured_s for one in rows]))


def typical_factor(fitted: Shares, rows: Sequence[KernelRow]) -> float:
    """``exp(mean |ln(estimate / measured)|)``."""
    return float(np.exp(np.abs(off_by(fitted, rows)).mean()))
