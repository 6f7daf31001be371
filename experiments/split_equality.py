"""Split steps against the steps that they came from: outputs, updated variables and slots, both in float64.

    python -m experiments.split_equality [--quick] [--programs=3000] [--seed=0] [--out=docs/results/split_equality.md]

Random training steps of 2 to 8 examples in 2 to 4 parts, and the small twin of every workload in two. For each it says
the largest difference over the largest number of a tensor; of workloads also the share of the time of ops that work on
examples (analytic, on a P100) that is in split ops, and what stays whole. Writes the page.
"""

from __future__ import annotations

import collections
import pathlib
import time
from collections.abc import Sequence

from absl import flags

from experiments.main_program import out_flag, run_program, seed_flag
from experiments.studies.random_steps import RandomStep
from tests.oracles.split_equality import (
    RELATIVE,
    differences,
    largest_difference,
    lost_order,
    run_lifted,
)
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.base.files import write_atomically
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs
from tf_placer.graph.item import Item
from tf_placer.transform.split import split_program, split_types

_QUICK = flags.DEFINE_boolean("quick", False, "Fewer programs, and small workloads of fewer than 3,000 ops.")
_PROGRAMS = flags.DEFINE_integer("programs", 3000, "Random training steps; 60 with --quick.", lower_bound=1)
_SEED = seed_flag("Of the first random step.")
_OUT = out_flag("docs/results/split_equality.md", "The page to write.")

BATCHES = (5, 6, 7, 2, 3, 8)
_QUICK_PROGRAMS, _QUICK_OPS = 60, 3000


def random_steps(first: int, count: int) -> tuple[float, list[str], collections.Counter[str]]:
    """Largest difference of all, a line for each step that differs, and op types that stay whole."""
    largest, wrong, whole = 0.0, [], collections.Counter[str]()
    for seed in range(first, first + count):
        batch = BATCHES[seed % len(BATCHES)]
        step = RandomStep(seed, batch)
        item = Item.from_function(step.function(), *step.arguments)
        found = split_program(item, min(batch, 2 + seed % 3))
        expected, given = run_lifted(item), run_lifted(found.item)
        complaints = differences(expected, given) + lost_order(item, found.item, found.origin_of)
        wrong += [f"{step}: {complaint}" for complaint in complaints]
        largest = max(largest, largest_difference(expected, given))
        whole.update(one.op_type for one in found.stayed_whole)
    return largest, wrong, whole


def workload_row(name: str, item: Item) -> tuple[str, list[str]]:
    """A row of the table, and a line for each difference."""
    item = item.with_drawn_inputs()
    found = split_program(item, 2)
    expected, given = run_lifted(item), run_lifted(found.item)
    times = analytic_costs(item, Cluster.preset("p100x2")).compute_ns[:, 0].tolist()
    time_of_op = dict(zip(item.index.names, times, strict=True))
    whole = "; ".join(found.sentences(time_of_op, 2)) or "nothing"
    share, error = found.split_share(time_of_op), largest_difference(expected, given)
    row = f"| {name} | {item.index.num_ops} | {found.item.index.num_ops} | {share:.3f} | {error:.1e} | {whole} |"
    return row, [f"{name}: {complaint}" for complaint in differences(expected, given)]


def page(
    programs: int, largest: float, whole: collections.Counter[str], rows: Sequence[str], wrong: int
) -> str:
    """The results page."""
    command = "python -m experiments.split_equality"
    command += " --quick" if _QUICK.value else f" --programs={programs}"
    types = ", ".join(f"{op_type} ({count})" for op_type, count in whole.most_common(12))
    return f"""# A split step computes what the step computes

- Command: `{command}`
- Seed: {_SEED.value}, the first of {programs} random training steps
- Machine: 2 cores, 24 GiB of memory, no GPU; TensorFlow 2.21, Python 3.11
- Date: {time.strftime("%Y-%m-%d")}

{programs} random training steps of 2 to 8 examples are split into 2 to 4 parts, which divide the batch or do not,
with the batch on the first or the second axis. Both graphs run in float64. Of these and the workloads below, {wrong}
outputs, variables or orders are wrong; the largest difference of these is {largest:.1e} of the largest number of its
tensor ({RELATIVE:.0e} is allowed).
{len(split_types())} op types have a rule. Op types that work on examples and stay whole in these steps, with how often:
{types}.

The small twin of each workload, in two parts. Split is the share of the time of ops that work on examples (analytic,
P100). A variable differs most where its gradient is zero but for rounding: the bias of keys in attention (Adam divides
that rounding by about itself), and a bias before batch normalization.

| workload | ops | ops, split | split | largest difference | stays whole |
|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def main(argv: list[str]) -> None:
    del argv
    out = pathlib.Path(_OUT.value)
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is no directory; make it, or give another --out")
    programs = _QUICK_PROGRAMS if _QUICK.value else _PROGRAMS.value
    largest, wrong, whole = random_steps(_SEED.value, programs)
    print(
        f"{programs} random steps: {len(wrong)} differences, the largest {largest:.1e} of a tensor's largest number"
    )
    rows = []
    for name in workloads.names():
        if "small" not in name:
            continue
        item = workloads.build(name)
        if _QUICK.value and item.index.num_ops >= _QUICK_OPS:
            continue
        row, complaints = workload_row(name, item)
        print(row, flush=True)
        rows.append(row)
        wrong += complaints
    for line in wrong:
        print(line)
    write_atomically(out, page(programs, largest, whole, rows, len(wrong)).encode())


if __name__ == "__main__":
    run_program(main)
