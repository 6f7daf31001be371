"""Cells of a table: one search each, kept on disk as soon as it is done, so that a killed table goes on."""

from __future__ import annotations

import dataclasses
import gc
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import tf_placer
from experiments.papers.description import ONE_ACCELERATOR, Description, Row
from experiments.papers.kept import keep, made_of, read_kept
from tf_placer import workloads
from tf_placer.errors import InputError
from tf_placer.evaluation.any_order import search_simulator
from tf_placer.evaluation.measurement import Status
from tf_placer.problem.bounds import lower_bounds
from tf_placer.search.search import search
from tf_placer.search.shortest import NothingFits

OK, OUT_OF_MEMORY, NOT_RUN = Status.OK.name, Status.OUT_OF_MEMORY.name, "NOT_RUN"


@dataclasses.dataclass(frozen=True)
class Cell:
    """What one method found with one seed.

    Attributes:
      status: ``OK``, ``OUT_OF_MEMORY`` where nothing that it tried fits, ``NOT_RUN`` where it cannot do this problem
        or wants a library.
      runtime_s: simulated step time, infinite where nothing fits, nan where it was not run.
      peak_bytes: most memory in use on any one device; 0 where nothing runs.
      evaluations: placements tried.
      capped: it ended by the cap of seconds, so another run may find something else.
      message: one line about a failure.
    """

    status: str
    runtime_s: float = math.nan
    peak_bytes: int = 0
    evaluations: int = 0
    capped: bool = False
    message: str = ""


@dataclasses.dataclass(frozen=True)
class RowFacts:
    """What is true of a row whoever places it.

    Attributes:
      ops, units: of the problem.
      bound_s: the tightest lower bound.
      one_accelerator_s: step time on the best device that is no CPU, all that may be there; infinite where it fits on
        none of them, nan where there is none.
    """

    ops: int
    units: int
    bound_s: float
    one_accelerator_s: float


@dataclasses.dataclass(frozen=True)
class Filled:
    """A row with its cells.

    Attributes:
      row: of the description.
      facts: of its problem.
      cells: method -> one cell for each of its seeds.
    """

    row: Row
    facts: RowFacts
    cells: dict[str, tuple[Cell, ...]]

    def times_s(self, name: str) -> tuple[float, ...]:
        """Step times of a method, or of ``ONE_ACCELERATOR``: infinite without memory, nan where not run."""
        if name == ONE_ACCELERATOR:
            return (self.facts.one_accelerator_s,)
        return tuple(cell.runtime_s for cell in self.cells[name])

    @property
    def best_known_s(self) -> float:
        """The shortest step in the row, infinite where nothing fits."""
        times = [t for name in (*self.cells, ONE_ACCELERATOR) for t in self.times_s(name)]
        return min((t for t in times if not math.isnan(t)), default=math.inf)


def fill(description: Description, folder: pathlib.Path) -> Iterator[Filled]:
    """Computes a table row by row; cells that ``folder`` has are taken from there.

    Prints a line for each cell.

    Args:
      description: whose names have been checked.
      folder: for one file a cell; it is there.

    Yields:
      Rows, each as soon as it is complete.

    Raises:
      KeyboardInterrupt: Ctrl-C; the cells that are complete are in ``folder``.
    """
    for number, row in enumerate(description.rows, 1):
        yield _filled(description, row, f"[{number}/{len(description.rows)}]", folder)
        gc.collect()  # a traced step is a ring of references, and two large ones do not fit side by side


def _filled(description: Description, row: Row, place: str, folder: pathlib.Path) -> Filled:
    """One row; its problem is dropped with it."""
    problem = tf_placer.build_problem(workloads.build(row.workload), tf_placer.Cluster.preset(row.cluster))
    facts = _facts(problem)
    print(f"{place} {row.name}: {facts.ops} ops in {facts.units} units", flush=True)
    cells = {
        method: tuple(
            _kept_cell(description, row, problem, method, seed, folder)
            for seed in description.seeds_of(method)
        )
        for method in description.methods
    }
    return Filled(row, facts, cells)


def _facts(problem: tf_placer.Problem) -> RowFacts:
    devices = [d for d, device in enumerate(problem.cluster.devices) if device.type != "CPU"]
    one_accelerator_s = math.nan
    if devices:
        rows = np.repeat(np.array(devices)[:, np.newaxis], problem.num_units, axis=1)
        found = search_simulator(problem).evaluate(problem.legalized(rows))
        fits = found.status == Status.OK
        one_accelerator_s = float(found.runtime_s[fits].min()) if fits.any() else math.inf
    return RowFacts(problem.num_ops, problem.num_units, lower_bounds(problem).best_s, one_accelerator_s)


def _kept_cell(
    description: Description,
    row: Row,
    problem: tf_placer.Problem,
    column: str,
    seed: int,
    folder: pathlib.Path,
) -> Cell:
    """The cell that is on disk if all that makes it is the same, else a new one, which then is."""
    settings = description.settings_of(row, column)
    made = made_of(
        problem, description.method_of(column), settings, seed, description.evaluations, description.cap_s
    )
    path = folder / f"{row.workload}@{row.cluster}@{column}@{seed}.json"
    known: Cell | None = read_kept(path, made, Cell)
    if known is not None:
        return known
    cell, search_s = _searched(description, problem, column, settings, seed)
    # A library can be installed, so what could not run is asked again the next time.
    if cell.status != NOT_RUN:
        keep(path, made, cell, search_s=search_s)
    print(f"  {column}, seed {seed}: {_told(cell)} ({cell.evaluations} tried, {search_s:.1f} s)", flush=True)
    return cell


def _searched(
    description: Description,
    problem: tf_placer.Problem,
    column: str,
    settings: Mapping[str, Any],
    seed: int,
) -> tuple[Cell, float]:
    """One search, and the seconds that it took."""
    try:
        result = search(
            problem,
            description.method_of(column),
            description.cap_s,
            description.evaluations,
            seed,
            config=settings,
        )
    except NothingFits as error:
        return Cell(OUT_OF_MEMORY, math.inf, message=str(error)), 0.0
    except InputError as error:
        return Cell(NOT_RUN, message=str(error)), 0.0
    if result.interrupted:
        raise KeyboardInterrupt
    cell = Cell(
        status=OK,
        runtime_s=result.runtime_s,
        peak_bytes=max(result.peak_bytes.values()),
        evaluations=result.evaluations,
        capped=result.search_s >= description.cap_s,
    )
    return cell, result.search_s


def _told(cell: Cell) -> str:
    return f"{cell.runtime_s:.4f} s" if cell.status == OK else cell.message
