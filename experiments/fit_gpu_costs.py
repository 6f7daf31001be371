"""Fits the cost model's shares of GPU rates to published times of single kernels, and says what they are worth.

    python -m experiments.fit_gpu_costs [--quick]

Prints what is fitted next to the constants of tf_placer/costs/shares.toml, the scatter of each class, and typical
factors of rows that had no part in the fit: leaving out a source, and, without --quick, a GPU. No time of a network is
used, but for the time that TensorFlow takes to start a kernel.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

import numpy as np
from absl import flags

from experiments.gpu_truth.estimates import (
    KernelRow,
    Shares,
    cross_validation,
    current_shares,
    fit_shares,
    kepler_compute,
    kernel_rows,
    off_by,
    streaming_shares,
    typical_factor,
)
from experiments.gpu_truth.networks import network_of, read_networks
from experiments.gpu_truth.rows import Row, read_rows
from experiments.main_program import run_program
from experiments.studies.formats import header, line
from tf_placer.cluster.device import device_of_model
from tf_placer.costs import formulas

_QUICK = flags.DEFINE_bool("quick", False, "Leave out sources only, not GPUs.")


def main() -> None:
    rows = read_rows()
    kernels = kernel_rows(rows)
    fitted = fit_shares(kernels)
    keys = {"source": lambda one: one.row.source}
    if not _QUICK.value:
        keys["GPU"] = lambda one: one.row.gpu
    lines = [*gpu_lines(rows, kernels), *share_lines(fitted, kernels)]
    for name, key in keys.items():
        lines += ["", *header(f"{name} left out", "rows", "typical factor", "fitted to all")]
        for value, count, factor, own_factor in cross_validation(kernels, key):
            lines.append(line(value, str(count), f"{factor:.2f}", f"{own_factor:.2f}"))
    print("\n".join(lines))


def gpu_lines(rows: Sequence[Row], kernels: Sequence[KernelRow]) -> Iterator[str]:
    """What is found for GPUs before the shares."""
    yield from header("GPU", "streaming share", "in shares.toml")
    for model, share in streaming_shares(kernels).items():
        yield line(model, f"{share:.2f}", f"{formulas.GPU_MODELS[model].streaming:.2f}")
    yield ""
    found = kepler_compute(rows)
    of_each = ", ".join(f"{model} {share:.2f}" for model, share in found.items())
    mean = float(np.mean(list(found.values())))
    in_sessions = sum(row.what == "conv_layer" for row in rows)
    yield (
        f"Kepler's compute share: {mean:.2f} ({of_each}; from {in_sessions} rows); "
        f"in shares.toml {formulas.GPU_MODELS['k40'].compute:.2f}"
    )
    used_ns = device_of_model("generic_gpu").dispatch_ns
    yield f"Time to start a kernel: {dispatch_ns(rows):,} ns; in models.toml {used_ns:,} ns"


def dispatch_ns(rows: Sequence[Row]) -> int:
    """Median time of a kernel in TensorFlow without XLA at batch 1, rounded to a microsecond, on A100 and V100."""
    networks = read_networks()
    found = [
        1e9 * row.measured_s / networks[network_of(row)].count.sum()
        for row in rows
        if row.is_network
        and row.batch == 1
        and row.framework == "TensorFlow 1.15"
        and row.gpu.startswith(("A100", "Tesla V100"))
    ]
    return int(round(float(np.median(found)), -3))


def share_lines(fitted: Shares, kernels: Sequence[KernelRow]) -> Iterator[str]:
    """Shares by class, and sd and median of ln(estimate / measured)."""
    off = collections.defaultdict(list)
    for one, value in zip(kernels, off_by(fitted, kernels), strict=True):
        off[one.work_class].append(value)
    current = current_shares()
    yield ""
    yield from header("class", "rows", "share", "in shares.toml", "sd of ln ratio", "median ratio")
    for work_class, values in sorted(off.items()):
        pair = [of.compute.get(work_class, of.memory.get(work_class, 1.0)) for of in (fitted, current)]
        figures = (*pair, np.std(values), np.exp(np.median(values)))
        yield line(work_class.name, str(len(values)), *(f"{figure:.2f}" for figure in figures))
    for kind, share in fitted.kind_memory.items():
        yield f"Memory share of kind {kind.name}: {share:.2f}; in shares.toml {current.kind_memory[kind]:.2f}"
    yield f"Typical factor of {len(kernels)} rows: {typical_factor(fitted, kernels):.2f}"


if __name__ == "__main__":
    run_program(main)
