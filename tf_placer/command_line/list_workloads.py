"""The table of workloads: what each is, as far as that was found."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence

import rich.console

from tf_placer import workloads
from tf_placer.command_line.workload_facts import (
    WorkloadFacts,
    find_facts,
    kept_facts,
    known_facts,
    shipped,
)
from tf_placer.planning.stages import Stages
from tf_placer.quantities import UNKNOWN, amount, milliseconds
from tf_placer.workloads.known import FACTS

ALL = "all"
_FACTS_S = 30.0  # of a workload that was never built on this machine, on two idle cores
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


def list_workloads(find: Sequence[str], console: rich.console.Console) -> dict[str, WorkloadFacts | None]:
    """Prints the table; finds what this code has not found yet of some workloads first.

    Args:
      find: names, or ``all``. What came with tf_placer is found anew.
      console: where the table goes.

    Returns:
      Name -> what it is, None where that is not known.

    Raises:
      InputError: no workload has one of the names.
    """
    names = workloads.names()
    for name in find:
        if name != ALL:
            workloads.check_name(name)
    facts = {name: known_facts(name) for name in names}
    missing = [name for name in names if (name in find or ALL in find) and kept_facts(name) is None]
    if missing:
        stages = Stages(console)

        def find_one(position: int, name: str, _: float) -> None:
            stages.tell(f"{position} of {len(missing)}: {name} ...")
            facts[name] = find_facts(name)

        stages.run(
            [
                stages.kept(name, functools.partial(find_one, i, name), _FACTS_S, f"finding facts of {name}")
                for i, name in enumerate(missing, 1)
            ]
        )
    _print(facts, console)
    return facts


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


def _print(facts: dict[str, WorkloadFacts | None], console: rich.console.Console) -> None:
    rows: list[tuple[str, ...]] = [COLUMNS, *(row(name, found) for name, found in facts.items())]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for first, *middle, last in rows:
        cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:], strict=True)]
        line = "  ".join([first.ljust(widths[0]), *cells, last]).rstrip()
        console.print(line, soft_wrap=True, markup=False)
    console.print(
        "Times are estimates for a P100 and its host. " + _unknown(facts), soft_wrap=True, markup=False
    )


def row(name: str, facts: WorkloadFacts | None) -> tuple[str, ...]:
    """A workload as the table shows it, a cell for each of ``COLUMNS``."""
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


def _unknown(facts: dict[str, WorkloadFacts | None]) -> str:
    unknown = sum(found is None for found in facts.values())
    if not unknown:
        return "--names prints the names alone."
    return (
        f"{unknown} were not built yet: --facts=NAME,... or --facts={ALL} does it, in up to minutes for each."
    )
