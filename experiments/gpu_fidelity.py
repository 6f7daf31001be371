"""How far the described GPUs are from real ones: estimates of the cost model next to published measurements.

    python -m experiments.gpu_fidelity [--build] [--out=docs/results]

Writes gpu_fidelity.md into --out, and the figures that reports quote into --figures. --build traces the networks anew,
which takes ten minutes; without it their ops come from experiments/gpu_truth/networks.json.gz.
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from experiments.gpu_truth.comparison import Compared, Statistics, compare, statistics
from experiments.gpu_truth.networks import build_ops, network_of, write_ops
from experiments.gpu_truth.rows import MEASURED, TEST_ROWS, kernels_of, read_rows
from experiments.main_program import out_flag, run_program
from experiments.studies.formats import header, line, machine_lines
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import percentage
from tf_placer.cluster.device import device_of_model
from tf_placer.report.sentences import ALL, FIGURES

_BUILD = flags.DEFINE_bool("build", False, "Trace the networks anew.")
_OUT = out_flag("docs/results", "Folder for the page.")
_FIGURES = flags.DEFINE_string("figures", str(FIGURES), "File for the figures that reports quote.")


def main(argv: list[str]) -> None:
    del argv
    rows = read_rows()
    if _BUILD.value:
        ops = {}
        for network in sorted({network_of(row) for row in rows if row.is_network}):
            sys.stderr.write(f"{network} ...\n")
            ops[network] = build_ops(network)
        write_ops(ops)
    compared = compare(rows)
    test_ids = {row.id for row in read_rows(TEST_ROWS)}
    measured = compare(read_rows(MEASURED))
    page = as_markdown(compared, [one for one in compared if one.row.id in test_ids], measured)
    out = pathlib.Path(_OUT.value)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "gpu_fidelity.md", page)
    write_atomically(pathlib.Path(_FIGURES.value), json.dumps(figures(compared, measured), indent=1) + "\n")
    print(page)


_COLUMNS = ("rows", "median ratio", "typical factor", "0.75 to 1.33", "within a factor of 2", "order")


def as_markdown(
    compared: Sequence[Compared], tested: Sequence[Compared], measured: Sequence[Compared]
) -> str:
    """The page.

    Args:
      compared: all published rows that have an estimate.
      tested: those of them that a test holds.
      measured: rows that were measured for it.
    """
    networks = [one for one in compared if one.row.is_network]
    kernels = [one for one in compared if not one.row.is_network and not one.is_session]
    sessions = [one for one in compared if one.is_session]
    lines = [
        "# How far described GPUs are from real ones",
        "",
        "- Command: `python -m experiments.gpu_fidelity` (half a minute)",
        "- Seed: 0, though nothing is drawn",
        *machine_lines(),
        "",
        _ABOUT.format(dispatch_us=device_of_model("generic_gpu").dispatch_ns / 1000),
        *header("networks", *_COLUMNS),
        *_lines(networks, _KINDS_OF_NETWORK),
        "",
        *header("GPU", *_COLUMNS),
        *_by_gpu(networks),
        "",
        *header("network", "direction", *_COLUMNS),
        *_by_network(networks),
        _ABOUT_KERNELS,
        *header("GPU", *_COLUMNS),
        *_by_gpu(kernels),
        _ABOUT_SESSIONS,
        *header("GPU", *_COLUMNS),
        *_by_gpu(sessions),
        _ABOUT_TEST,
        *header("", *_COLUMNS),
        *_lines(tested, {"all": lambda one: True, "networks": lambda one: one.row.is_network}),
        _ABOUT_MEASURED,
        *header("networks", *_COLUMNS),
        *_by_gpu([one for one in measured if one.row.is_network]),
        "",
        *header("network", "direction", "GPU", *_COLUMNS),
        *_by_network_and_gpu([one for one in measured if one.row.is_network]),
        "",
        *header("kernels", "GPU", *_COLUMNS),
        *_by_kind([one for one in measured if not one.row.is_network]),
        _OFF,
    ]
    return "\n".join(lines)


_ABOUT = """\
Measurements are published ones (`experiments/gpu_truth/`, with addresses), but for those of an H100 further down.
Estimates are those that a placement is searched with (`tf_placer/costs/`), of a step on one GPU: the later of the time
of all kernels and the time to start them, {dispatch_us:g} us each. The ratio is estimate over measurement,
the typical factor is exp(mean |ln ratio|), and the order is Spearman's coefficient on one GPU. Sources that
measured one network on one GPU differ from each other by a factor of 1.29 (a probe, on more rows than are
kept here).

## Networks

No figure of the cost model was fitted to the time of a network, but for the time to start a kernel. Batch
normalization is fused, as in the programs that were measured. But these rows were in sight when choices
were made: which classes of convolutions there are (larger square windows apart), what counts as a long
convolution for Kepler's share (0.49; by that choice 0.34 to 0.55), and that element-wise ops are left out
under XLA (with them its transformers on V100 and A100 are estimated 1.25 to 1.4 times too slow). So the
figures below are of rows that were looked at, not of unseen ones.
"""
_ABOUT_KERNELS = """
## Single kernels

To these the shares are fitted; `python -m experiments.fit_gpu_costs` says what they are worth for a source or
a GPU that had no part in the fit.
"""
_ABOUT_SESSIONS = """
One convolution in a TensorFlow 1 session: the measurement has the session's call and two transposes in it,
which no op of a step pays.
"""
_ABOUT_TEST = """
## The rows that a test holds

The single kernels among them had a part in the fit.
"""
_ABOUT_MEASURED = """
## Measured for this page: an H100

440 rows of `experiments/gpu_truth/h100.csv`, measured on one H100 SXM on 2026-11-28. No constant was fitted to them,
and nothing was changed after they were seen. Single kernels and steps of networks are of PyTorch 2.11, recorded into
CUDA graphs, so no host is waited for and the time to start kernels is left out of the estimates, too. Their ops are
those of the same layers in TensorFlow, whose own kernels may differ.
"""
_OFF = """
## What is known to be off

- AlexNet is estimated 1.3 times too slow, VGG16 1.25 times, and Inception-V3 0.8 times: what one library makes of a
  shape differs within a class.
- Convolutions of large batches on V100 are estimated 1.3 to 1.4 times too slow: cuDNN 7.6 is faster there than on P100.
- T4: the boost clock does not last within 70 W. BERT takes twice as long as estimated, ResNet-50 does not.
- Programs that XLA compiled: their element-wise ops are left out of the estimate, as if each ran inside a
  neighbor.
- Batch 1: a step waits for the host, and the time to start a kernel depends on the host, which no source
  names.
- TF32: 3 x 3 convolutions are charged as 1 x 1. On H100 steps with TF32 are estimated 1.4 times too slow, most of
  all small ones and 1 x 1 and batched products, which memory is charged for; on A100 in TensorFlow 1.15 1.2 times
  too fast. One constant for both would be wrong on either.
- Estimates without a fit, held against the H100: depthwise convolution 2.4 times too fast, gather 2.4 times,
  scatter 1.5 times and random numbers 1.3 times too slow, copies in the mean 1.4 times too slow (transposes twice too
  fast), reductions 0.9 to 1.3. Left as they are until a second GPU says the same.
- PCIe 5.0 x16 carried 54.7 GB/s from pinned memory, where the presets estimate 41.
- K40: no networks with a stated batch were found. Cells of LSTMs op by op: no measurements were found.
- A step over several GPUs: nothing published could be compared. Links have sources of their own in
  `models.toml`.
"""


_KINDS_OF_NETWORK: dict[str, Callable[[Compared], bool]] = {
    "all": lambda one: True,
    "images, fp32, batch 16 and more": lambda one: one.is_cnn_fp32,
    "images, fp32, batch below 16": lambda one: one.is_image and not one.is_cnn_fp32 and not one.is_tf32,
    "transformers in PyTorch, fp32": lambda one: not one.is_image and not one.is_compiled,
    "transformers compiled by XLA, fp32": lambda one: (
        not one.is_image and one.is_compiled and not one.is_tf32
    ),
    "with TF32": lambda one: one.is_tf32,
}


def figures(compared: Sequence[Compared], measured: Sequence[Compared]) -> dict[str, dict[str, float]]:
    """Model of a device -> ``rows`` of networks, how many are our ``own``, and their typical ``factor``.

    Cards of one model are together; all together are published rows only, since ours are of one card.
    """
    of_model, own = collections.defaultdict(list), collections.Counter[str]()
    for rows, is_own in ((compared, False), (measured, True)):
        for one in rows:
            if one.row.is_network and one.row.device is not None:
                model = one.row.device.model.removesuffix("_sxm2")
                of_model[model].append(one)
                own[model] += is_own
                of_model[ALL].extend([] if is_own else [one])
    found = {model: statistics(rows) for model, rows in sorted(of_model.items())}
    return {
        model: {"rows": of.rows, "own": own[model], "factor": round(of.factor, 2)}
        for model, of in found.items()
    }


def _lines(compared: Sequence[Compared], kinds: dict[str, Callable[[Compared], bool]]) -> Iterator[str]:
    for name, is_of in kinds.items():
        found = [one for one in compared if is_of(one)]
        if found:
            yield line(name, *_cells(statistics(found)))


def _by_gpu(compared: Sequence[Compared]) -> Iterator[str]:
    for gpu in sorted({one.row.gpu for one in compared}):
        yield line(gpu, *_cells(statistics(one for one in compared if one.row.gpu == gpu)))


def _by_network(compared: Sequence[Compared]) -> Iterator[str]:
    for name, direction in sorted({(one.row.what, one.row.direction) for one in compared}):
        found = [one for one in compared if (one.row.what, one.row.direction) == (name, direction)]
        yield line(name, direction, *_cells(statistics(found)))


def _by_network_and_gpu(compared: Sequence[Compared]) -> Iterator[str]:
    for key in sorted({(one.row.what, one.row.direction, one.row.gpu) for one in compared}):
        found = [one for one in compared if (one.row.what, one.row.direction, one.row.gpu) == key]
        yield line(*key, *_cells(statistics(found)))


def _by_kind(compared: Sequence[Compared]) -> Iterator[str]:
    """By kind of work; what a library fuses or starts on its own is a kind here, too."""
    of_kind = collections.defaultdict(list)
    for one in compared:
        works = kernels_of(one.row)
        assert works is not None, one.row.id
        kind = works[0].work_class.kind.name.lower().replace("_", " ")
        of_kind[kind, one.row.gpu].append(one)
    for key, found in sorted(of_kind.items()):
        yield line(*key, *_cells(statistics(found)))


def _cells(found: Statistics) -> tuple[str, ...]:
    order = "" if found.order is None else f"{found.order:.2f}"
    shares = (percentage(share) for share in (found.inside, found.within_two))
    return str(found.rows), f"{found.median:.2f}", f"{found.factor:.2f}", *shares, order


if __name__ == "__main__":
    run_program(main)
