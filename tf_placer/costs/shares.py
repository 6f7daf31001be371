"""Shares of a device's peak rates that each class of work reaches: every number of the cost model that was fitted."""

from __future__ import annotations

import dataclasses
import enum
import functools
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from tf_placer.costs.formulas import Kind, WorkClass

_TABLES: dict[str, Any] = tomllib.loads(
    pathlib.Path(__file__).with_name("shares.toml").read_text(encoding="utf-8")
)
LAUNCHES, POWER, VECTOR_SHARE = (float(_TABLES[name]) for name in ("launches", "power", "vector"))


_Key = TypeVar("_Key", bound=enum.Enum)


def entries(keys: type[_Key], table: str) -> dict[_Key, Any]:
    """Entries of a table of shares.toml, by class or kind of work."""
    return {keys[name]: entry for name, entry in _TABLES[table].items()}


CONVOLUTION_SHARES: Mapping[str, tuple[float, float, float]] = {
    family: tuple(shares) for family, shares in _TABLES["convolution"].items()
}
PRODUCT_SHARES: Mapping[WorkClass, float] = entries(WorkClass, "product")
KIND_MEMORY_SHARES: Mapping[Kind, float] = entries(Kind, "kind_memory")
MEMORY_SHARES: Mapping[WorkClass, float] = entries(WorkClass, "memory")
DIRECTIONS = ("", "_INPUT_GRADIENT", "_FILTER_GRADIENT")


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """Shares of ``peak_flops`` and of ``memory_bytes_per_s``, above 0."""

    compute: float
    memory: float


@dataclasses.dataclass(frozen=True)
class GpuModel:
    """Numbers of one GPU model."""

    streaming: float  # share of the data sheet's memory bandwidth that a kernel reaches which works in order
    multiprocessors: int  # 0 where nothing is known, and the last wave costs nothing
    compute: float = 1.0  # shares of ``peak_flops`` are multiplied with this
    # ``peak_flops`` is that of TF32, for which no library has Winograd's algorithm: 3 x 3 is as 1 x 1
    has_tf32: bool = False


GPU_MODELS: Mapping[str, GpuModel] = {name: GpuModel(**row) for name, row in _TABLES["gpu"].items()}
ANY_GPU, KEPLER_COMPUTE = GpuModel(0.75, 0), GPU_MODELS["k40"].compute
_OF_CPU = {kind: Efficiency(*shares) for kind, shares in entries(Kind, "cpu").items()}


@dataclasses.dataclass(frozen=True)
class Spreads:
    """Standard deviations of the natural logarithm of measured over estimated times; kinds without have the largest."""

    of_class: Mapping[WorkClass, float]  # classes of work on GPUs; other classes have the value of their kind
    of_kind: Mapping[Kind, float]
    model: float  # common factor of all ops on devices of one model
    bandwidth: float  # common factor of all links of one bandwidth
    tensor: float  # of the time to hand over a tensor, common to all links
    dispatch: float  # of the hosts' time for a kernel, common to all devices


MEASURED = Spreads(
    of_class=entries(WorkClass, "spread_of_class"),
    of_kind=entries(Kind, "spread_of_kind"),
    # Of several sources on one network and card (docs/results/gpu_fidelity.md).
    model=0.255,
    # PCIe 3 was measured from 6 to 12 GB/s, a tensor between GPUs takes 25 us in Placeto's simulator and 134 us in
    # Baechi's, a kernel 29 to 40 us of a host: two standard deviations each.
    bandwidth=float(np.log(12 / 6) / 2),
    tensor=float(np.log(134 / 25) / 2),
    dispatch=float(np.log(40 / 29) / 2),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Efficiencies:
    """What a device reaches."""

    compute: np.ndarray  # share of the peak rate, by the value of ``WorkClass``; 1 for ``FREE``
    memory: np.ndarray
    launches: float  # fixed cost of an op, in the device's ``launch_ns``
    multiprocessors: int  # that share the tiles of one op; 0 where tiles cost nothing


def gpu_efficiencies(model: GpuModel) -> dict[WorkClass, Efficiency]:
    """Shares of a GPU's peak rates for each class but ``FREE``."""
    estimates = entries(WorkClass, "gpu_estimates")
    shares_of = {work_class: Efficiency(*shares) for work_class, shares in estimates.items()}
    for family, shares in CONVOLUTION_SHARES.items():
        for direction, share, dense in zip(DIRECTIONS, shares, CONVOLUTION_SHARES["1X1"], strict=True):
            compute = min(share, dense) if model.has_tf32 and family.startswith("3X3") else share
            work_class = WorkClass[f"CONVOLUTION_{family}{direction}"]
            shares_of[work_class] = Efficiency(compute, KIND_MEMORY_SHARES[Kind.CONVOLUTION])
    for work_class, share in PRODUCT_SHARES.items():
        shares_of[work_class] = Efficiency(share, KIND_MEMORY_SHARES[Kind.MATRIX_PRODUCT])
    for work_class, share in MEMORY_SHARES.items():
        shares_of[work_class] = Efficiency(VECTOR_SHARE, share)
    return {
        work_class: Efficiency(efficiency.compute * model.compute, efficiency.memory * model.streaming)
        for work_class, efficiency in shares_of.items()
    }


@functools.cache
def efficiencies(device_type: str, model: str) -> Efficiencies:
    """Shares that a device reaches: a CPU by its type, a GPU by its model."""
    gpu, launches = GPU_MODELS.get(model, ANY_GPU), LAUNCHES
    if device_type == "CPU":
        gpu, launches = ANY_GPU, 1.0
        shares_of = {
            work_class: _OF_CPU[work_class.kind] for work_class in WorkClass if work_class.kind in _OF_CPU
        }
    else:
        shares_of = gpu_efficiencies(gpu)
    compute, memory = (np.ones(max(WorkClass) + 1) for _ in range(2))
    for work_class, efficiency in shares_of.items():
        compute[work_class], memory[work_class] = efficiency.compute, efficiency.memory
    return Efficiencies(compute, memory, launches, gpu.multiprocessors)
