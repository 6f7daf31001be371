"""Fusion measured: steps with clusters that XLA compiles, in turn with the same steps without, on one process.

    python -m experiments.fusion [--quick] [--workloads=lstm_lm_small,two_towers] [--out=docs/results/fusion.md]

For each workload clusters are searched as ``auto_place(..., cluster="local:1", fuse=True)`` does, in a process like one
that calls the function. What is found is then timed in turn with the function as it is once more, in a fresh process,
because a race that chose a winner flatters it. Writes the page.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.main_program import run_program
from experiments.studies.formats import csv_text, line
from tf_placer import workloads
from tf_placer.base import native
from tf_placer.base.arguments import InputError
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import in_unit, milliseconds
from tf_placer.cluster.cluster import Cluster
from tf_placer.planning.fusing import Fusing, Tried, find_clusters_here
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.transform.fusion import LEAST_KERNELS, RULES, savings
from tf_placer.workers.fork_server import environment

_QUICK = flags.DEFINE_boolean("quick", False, "A quarter of the time for each workload.")
_BUDGET_S = flags.DEFINE_float(
    "budget_s", 240.0, "Seconds of each search; a quarter with --quick.", lower_bound=1.0
)
_ROUNDS = flags.DEFINE_integer("rounds", 30, "Turns of each race.", lower_bound=10)
_OUT = flags.DEFINE_string("out", "docs/results/fusion.md", "The page to write.")
flags.DEFINE_list(
    "workloads", ["lstm_lm_small", "transformer_small", "inception_v3_small", "two_towers"], "what to fuse"
)


def measured(name: str, budget_s: float) -> tuple[Fusing, Fusing]:
    """What a search finds for a workload, and the same clusters timed again in a fresh process."""
    item = workloads.build(name)
    problem = analytic_problem(item, Cluster.logical(1))
    plain = Placement(problem, problem.everything_on(0))
    with (
        tempfile.TemporaryDirectory() as folder,
        environment(native.XLA_FLAGS, native.compilation_flags(pathlib.Path(folder))),
    ):
        found = find_clusters_here(item, plain, budget_s, _ROUNDS.value)
        return found, find_clusters_here(item, found.placement, budget_s, _ROUNDS.value, is_given=True)


def row(name: str, found: Fusing, again: Fusing) -> str:
    """A row of the first table."""
    clusters = found.placement.cluster_of_op
    saved = None if clusters is None else savings(found.placement.problem, clusters)
    ratios = [again.fused_spread_s[0] / again.unfused_s, again.fused_spread_s[1] / again.unfused_s]
    gains = ["", "", ""]
    if saved is not None:
        gains = [str(saved.clusters), str(saved.kernels), in_unit(saved.num_bytes, "MB")]
    return line(
        name,
        found.name if saved else "nothing",
        milliseconds(again.unfused_s),
        milliseconds(again.fused_s),
        f"{again.fused_s / again.unfused_s:.2f} ({ratios[0]:.2f} to {ratios[1]:.2f})",
        f"{found.fused_s / found.unfused_s:.2f}",
        *gains,
        f"{found.compile_s:.1f} s" if saved else "",
        f"{again.compile_s:.1f} s" if saved else "",
    )


def tried_rows(name: str, tried: Sequence[Tried]) -> list[dict[str, Any]]:
    """Lines of the CSV: all that was timed."""
    return [
        {
            "step": name,
            "clusters by": one.name,
            "clusters": one.saved.clusters,
            "ops": one.saved.ops,
            "of the step as it is": one.message or f"{one.share:.2f}",
            "compiled in": "" if one.message else f"{one.compile_s:.1f} s",
        }
        for one in tried
    ]


def page(rows: Sequence[str], budget_s: float) -> str:
    """The results page."""
    command = "python -m experiments.fusion" + (" --quick" if _QUICK.value else "")
    rules = "; ".join(f"`{name}`, {rule.what}" for name, rule in RULES.items())
    rules += f" ({LEAST_KERNELS} kernels or more)"
    return f"""# What fusion gains, measured

- Command: `{command}`
- Seed: 0, of the workloads; clusters follow from rules and from measured times
- Machine: 2 cores, 24 GiB of memory, no GPU; TensorFlow 2.21, Python 3.11
- Date: {time.strftime("%Y-%m-%d")}

Each step runs in one process with the whole machine and this process's graph optimizations, once as it is and once
with clusters of its ops compiled by XLA, turn by turn. {budget_s:.0f} s of search for each; "again" is the same pair in
a fresh process, {_ROUNDS.value} turns each, which is the result; in brackets the quartiles.

| step | by | as it is | fused | again | in the search | clusters | kernels less | bytes inside | compiled | loaded |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The first step compiles, and later processes load what was compiled: the last two columns are the first step of the
process of the search and of the one after it.

Each set of clusters that was timed is a line of [the CSV](fusion.csv), with the share of the step as it is.

Rules: {rules}. Refined: clusters that took longer in a trace than their ops did without are taken out, or cut in two
where they are large.
"""


def main() -> None:
    out = pathlib.Path(_OUT.value)
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is no directory; make it, or give another --out")
    budget_s = _BUDGET_S.value / 4 if _QUICK.value else _BUDGET_S.value
    rows, tried = [], []
    for name in flags.FLAGS.workloads:
        found, again = measured(name, budget_s)
        rows.append(row(name, found, again))
        tried += tried_rows(name, found.tried)
        print(*tried_rows(name, found.tried), rows[-1], sep="\n", flush=True)
    write_atomically(out, page(rows, budget_s).encode())
    write_atomically(out.with_suffix(".csv"), csv_text(tried))
    print(f"wrote {out}")


if __name__ == "__main__":
    run_program(main)
