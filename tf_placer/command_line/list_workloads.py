"""The table of workloads, with the facts that are known of each."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console

from tf_placer import workloads
from tf_placer.base.quantities import UNKNOWN, amount, milliseconds
from tf_placer.workloads.known import FACTS, WorkloadFacts, kept_facts, shipped

ALL = "all"
COLUMNS = (
    "workload",
    "ops",
    "units",
    "parameters",
    "FLOPs",
    "bytes",
    "critical path",
    "total work",
    "does not fit one device of",
)


def list_workloads(console: rich.console.Console) -> list[dict[str, Any]]:
    """Prints the table, and returns its JSON data; unknown facts are None."""
    facts = {name: kept_facts(name) or shipped(name) for name in workloads.names()}
    _print(facts, console)
    return [
        {"name": name, "facts": None if known is None else dataclasses.asdict(known)}
        for name, known in facts.items()
    ]


def as_markdown(names: Sequence[str], file: pathlib.Path = FACTS) -> str:
    """The table of what came, of some workloads.

    Args:
      names: of workloads.
      file: that ``ship`` wrote.
    """
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 2), "---")]
    for name in names:
        lines.append(row(name, shipped(name, file)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _print(facts: Mapping[str, WorkloadFacts | None], console: rich.console.Console) -> None:
    rows: list[tuple[str, ...]] = [COLUMNS, *(row(name, found) for name, found in facts.items())]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for first, *middle, last in rows:
        cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:], strict=True)]
        line = "  ".join([first.ljust(widths[0]), *cells, last]).rstrip()
        console.print(line, soft_wrap=True, markup=False)
    unknown = sum(row_facts is None for row_facts in facts.values())
    hint = (
        f"{unknown} were not built yet: --facts=NAME,... or --facts={ALL} does it, in up to minutes for each."
    )
    hint = hint if unknown else "--names prints the names alone."
    console.print(f"Times are estimates for a P100 and its host. {hint}", soft_wrap=True, markup=False)


def row(name: str, facts: WorkloadFacts | None) -> tuple[str, ...]:
    """A workload's row of the table, a cell for each of ``COLUMNS``."""
    if facts is None:
        return name, *[UNKNOWN] * (len(COLUMNS) - 1)
    return (
        name,
        f"{facts.ops:,}",
        f"{facts.units:,}",
        amount(facts.parameters),
        amount(facts.flops),
        amount(facts.num_bytes),
        milliseconds(facts.critical_path_ns / 1e9),
        milliseconds(facts.total_work_ns / 1e9),
        ", ".join(facts.does_not_fit) or "(fits all)",
    )
