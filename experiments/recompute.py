"""What doing ops again, and parking outputs, takes for how much less memory: networks on one P100, simulated.

    python -m experiments.recompute [--out=docs/results]

Each step may take a share of the memory that it takes as it is; the choice is that of ``--recompute=auto``, without and
with ``--offload=auto``.
"""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

import tf_placer
from experiments.main_program import out_flag, run
from experiments.studies.formats import header, line, machine_lines
from tf_placer import workloads
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import in_unit, milliseconds
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.forms import made_to_fit
from tf_placer.problem.analytic_problem import analytic_problem

_NETWORKS = ("inception_v3", "resnet_152", "bert_base", "transformer_xl_2", "nmt_2", "wavenet_2x18")
out_flag("docs/results", "Folder for the page.")
_SHARES = (0.8, 0.65, 0.5, 0.4)


def step(item: Item, cluster: tf_placer.Cluster) -> tuple[float, int]:
    """Seconds of a step on the GPU alone, however much memory that takes, and bytes at its peak."""
    gpu, *others = cluster.devices
    large = dataclasses.replace(cluster, devices=(dataclasses.replace(gpu, memory_bytes=10**15), *others))
    problem = analytic_problem(item, large)
    times = SimulatedEvaluator(problem).evaluate(problem.everything_on(0)[np.newaxis])
    assert times.peak_bytes is not None  # simulated
    return float(times.runtime_s[0]), int(times.peak_bytes[0, 0])


def row(workload: str) -> str:
    """A line on one network."""
    item, cluster = workloads.build(workload), tf_placer.Cluster.preset("p100x1")
    whole_s, whole_bytes = step(item, cluster)
    cells = [workload, milliseconds(whole_s), in_unit(whole_bytes, "GB")]
    for share in _SHARES:
        limited, told = cluster.with_memory_limit({"GPU:0": int(share * whole_bytes)}), []
        for parks in (False, True):
            again, _ = made_to_fit(item, limited, parks=parks)
            step_s, num_bytes = step(again, cluster)
            least = "" if num_bytes <= share * whole_bytes else f" (least: {num_bytes / whole_bytes:.2f})"
            told.append(f"{step_s / whole_s:.3f}{least}")
        cells.append(", ".join(told))
    return line(*cells)


def main(out: pathlib.Path) -> None:
    columns = ("network", "step", "peak", *(f"at {share:g} of the peak" for share in _SHARES))
    rows = [print(name, flush=True) or row(name) for name in _NETWORKS]
    parts = {"machine": "\n".join(machine_lines()), "table": "\n".join([*header(*columns), *rows])}
    page = pathlib.Path(__file__).with_name("recompute.md").read_text(encoding="utf8")
    write_atomically(out / "recompute.md", page.format(**parts))


if __name__ == "__main__":
    run(main)
