"""How far the described GPUs are from real ones: estimates of the cost model next to published measurements.

    python -m experiments.gpu_fidelity [--build] [--out=docs/results]

Writes gpu_fidelity.md and its CSV into --out, and the figures that reports quote into --figures. --build traces the
networks anew, which takes ten minutes; without it their ops come from experiments/gpu_truth/networks.json.gz.
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from absl import flags

from experiments.gpu_truth.estimates import Compared, Statistics, compare, statistics
from experiments.gpu_truth.networks import build_ops, network_of, write_ops
from experiments.gpu_truth.rows import MEASURED, TEST_ROWS, kernels_of, read_rows
from experiments.main_program import out_flag, run_program
from experiments.studies.formats import csv_text, header, line, machine_lines
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import percentage
from tf_placer.cluster.device import device_of_model
from tf_placer.report.sentences import ALL, FIGURES

_BUILD = flags.DEFINE_bool("build", False, "Trace the networks anew.")
_OUT = out_flag("docs/results", "Folder for the page.")
_FIGURES = flags.DEFINE_string("figures", str(FIGURES), "File for the figures that reports quote.")


def main() -> None:
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
    write_atomically(out / "gpu_fidelity.csv", as_csv(compared, measured))
    write_atomically(pathlib.Path(_FIGURES.value), json.dumps(figures(compared, measured), indent=1) + "\n")
    print(page)


_PAGE = pathlib.Path(__file__).parent / "gpu_truth" / "page.md"
_COLUMNS = ("rows", "median ratio", "typical factor", "0.75 to 1.33", "within a factor of 2", "order")


def as_markdown(
    compared: Sequence[Compared], tested: Sequence[Compared], measured: Sequence[Compared]
) -> str:
    """The page, of published rows with an estimate, those that a test holds, and those measured for the page."""
    networks = [one for one in compared if one.row.is_network]
    own = [one for one in measured if one.row.is_network]
    rows = [
        ("one convolution in a session", compared, lambda one: one.is_session),
        ("the rows that a test holds", tested, lambda one: True),
        ("networks among them", tested, lambda one: one.row.is_network),
        ("networks on the H100", own, lambda one: not one.is_tf32),
        ("networks on the H100, TF32", own, lambda one: one.is_tf32),
    ]
    kernels = [one for one in compared if not one.row.is_network and not one.is_session]
    kinds = ((name, networks, is_of) for name, is_of in _KINDS_OF_NETWORK.items())
    tables = {
        "machine": machine_lines(),
        "networks": [*header("networks", *_COLUMNS), *_lines(kinds)],
        "gpus": _by_gpu(networks),
        "kernels": _by_gpu(kernels),
        "others": list(_lines(rows)),
    }
    dispatch_us = device_of_model("generic_gpu").dispatch_ns / 1000
    texts = {name: "\n".join(lines) for name, lines in tables.items()}
    return _PAGE.read_text(encoding="utf8").format(dispatch_us=dispatch_us, **texts)


def as_csv(compared: Sequence[Compared], measured: Sequence[Compared]) -> str:
    """Published networks by direction, and by GPU too those that were measured, and their kernels by kind of work."""
    networks = [one for one in compared if one.row.is_network]
    own = [one for one in measured if one.row.is_network]
    kernels = [one for one in measured if not one.row.is_network]
    rows = [
        *_by(networks, lambda one: (one.row.what, one.row.direction, "all with published times")),
        *_by(own, lambda one: (one.row.what, one.row.direction, one.row.gpu)),
        *_by(kernels, lambda one: (_kind(one), "", one.row.gpu)),
    ]
    names = ["of", "direction", "gpu", "rows", "median_ratio", "typical_factor"]
    names += ["within_0.75_to_1.33", "within_factor_2", "order"]
    return csv_text([dict(zip(names, (*key, *_cells(of)), strict=True)) for key, of in rows])


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


def _kind(one: Compared) -> str:
    """Kind of work; what a library fuses or starts on its own is a kind here, too."""
    works = kernels_of(one.row)
    assert works is not None, one.row.id
    return works[0].work_class.kind.name.lower().replace("_", " ")


def _by(
    compared: Sequence[Compared], key: Callable[[Compared], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Statistics]]:
    groups = collections.defaultdict[tuple[str, ...], list[Compared]](list)
    for one in compared:
        groups[key(one)].append(one)
    for group in sorted(groups):
        yield group, statistics(groups[group])


def _by_gpu(compared: Sequence[Compared]) -> list[str]:
    groups = _by(compared, lambda one: (one.row.gpu,))
    return [*header("GPU", *_COLUMNS), *(line(*group, *_cells(of)) for group, of in groups)]


def _lines(kinds: Iterable[tuple[str, Sequence[Compared], Callable[[Compared], bool]]]) -> Iterator[str]:
    for name, compared, is_of in kinds:
        if rows := [one for one in compared if is_of(one)]:
            yield line(name, *_cells(statistics(rows)))


def _cells(found: Statistics) -> tuple[str, ...]:
    order = "" if found.order is None else f"{found.order:.2f}"
    shares = (percentage(share) for share in (found.inside, found.within_two))
    return str(found.rows), f"{found.median:.2f}", f"{found.factor:.2f}", *shares, order


if __name__ == "__main__":
    run_program(main)
