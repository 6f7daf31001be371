"""Searches of a study, each kept on disk with its curve as soon as it is done."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
from collections.abc import Iterator

from experiments.curves.curve import Point, best_at, curve_of
from experiments.curves.observed import Seen, observed
from experiments.curves.study import Candidate, Study
from experiments.curves.variants import VARIANTS
from experiments.papers.cells import NOT_RUN, OK, OUT_OF_MEMORY
from experiments.papers.description import Row
from experiments.papers.kept import keep, made_of, read_kept
from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.result import SearchResult
from tf_placer.search.search import search
from tf_placer.search.shortest import NothingFits
from tf_placer.search.spec import Kind, Role

POINTS = 100
# More than any method makes that is done when it has made its plans.
_CHEAP = 1000


@dataclasses.dataclass(frozen=True)
class SearchCell:
    """What one candidate did with one seed.

    Attributes:
      status: ``OK``, ``OUT_OF_MEMORY`` where nothing that it tried fits, ``NOT_RUN`` where it cannot do this problem.
      runtime_s: step time of its best, infinite where nothing fits, nan where it was not run. Of what is learned it is
        the best that the policy drew: where it began is not its own.
      evaluations: placements tried.
      search_s: seconds that it took.
      capped: it ended by the cap of seconds.
      message: one line about a failure.
      updates: gradient steps, or what stands for them; 0 where nothing is learned, as are the next three, of samples:
      first_best_s, first_mean_s: the fastest of the first ones, and their mean.
      last_mean_s: the mean of the last ones; nan where none of them ran.
      curve: points as lists, in the order of the fields of ``Point``.
      entropy: pairs of placements tried and nats a decision; empty where the learner does not say.
    """

    status: str
    runtime_s: float = math.nan
    evaluations: int = 0
    search_s: float = 0.0
    capped: bool = False
    message: str = ""
    updates: int = 0
    first_best_s: float = math.nan
    first_mean_s: float = math.nan
    last_mean_s: float = math.nan
    curve: list[list[float]] = dataclasses.field(default_factory=list)
    entropy: list[list[float]] = dataclasses.field(default_factory=list)

    @property
    def points(self) -> list[Point]:
        return [Point(int(evaluations), *rest) for evaluations, *rest in self.curve]

    def best_at(self, evaluations: int) -> float:
        """The fastest step after at least so many evaluations: infinite where nothing fits, nan where not run."""
        return math.nan if self.status == NOT_RUN else best_at(self.points, evaluations)

    def reaches(self, target_s: float) -> Point | None:
        """The first point that is as fast as a step time; None where none is."""
        return next((point for point in self.points if point.best_s <= target_s), None)


@dataclasses.dataclass(frozen=True)
class Filled:
    """A problem with its searches.

    Attributes:
      row: of the study.
      ops, units: of the problem as shipped.
      bound_s: no placement is faster.
      reference, reference_s: what fractions are of: the best single device's step, and where the program fits on none,
        that of the fastest plan that costs nothing; and who made it.
      cells: name of a candidate -> one for each of its seeds.
    """

    row: Row
    ops: int
    units: int
    bound_s: float
    reference: str
    reference_s: float
    cells: dict[str, tuple[SearchCell, ...]]


def fill(study: Study, folder: pathlib.Path) -> Iterator[Filled]:
    """Computes a study problem by problem; searches that ``folder`` has are taken from there.

    Prints a line for each search.

    Args:
      study: whose names have been checked.
      folder: for one file a search; it is there.

    Yields:
      A problem after each of its candidates, with those so far: the last of a problem is complete.

    Raises:
      KeyboardInterrupt: Ctrl-C; the searches that are complete are in ``folder``.
    """
    for number, row in enumerate(study.rows, 1):
        item, cluster = workloads.build(row.workload), Cluster.preset(row.cluster)
        problem = VARIANTS["as_shipped"](item, cluster)
        reference = _reference(problem)
        # Units of another variant are other ones, so is the plan that puts them where the reference does.
        begun = {"as_shipped": (problem, reference)}
        print(
            f"[{number}/{len(study.rows)}] {row.name}: {problem.num_ops} ops in {problem.num_units} units; "
            f"{reference.method} takes {reference.runtime_s:.4f} s",
            flush=True,
        )
        filled = Filled(
            row,
            problem.num_ops,
            problem.num_units,
            reference.bounds.best_s,
            reference.method,
            reference.runtime_s,
            {},
        )
        for one in study.candidates:
            if one.only and row.name not in one.only:
                continue
            if one.variant not in begun:
                variant = VARIANTS[one.variant](item, cluster)
                begun[one.variant] = variant, _reference(variant)
            cells = tuple(
                _kept_cell(study, row, *begun[one.variant], one, seed, folder)
                for seed in one.seeds_of(study.seeds)
            )
            filled = dataclasses.replace(filled, cells={**filled.cells, one.name: cells})
            yield filled


def _reference(problem: Problem) -> SearchResult:
    """The best single device; where none fits, the fastest plan that costs nothing.

    Raises:
      NothingFits: no such plan fits.
    """
    singles = methods.the(Role.REFERENCE)
    try:
        return search(problem, singles.name, budget_evaluations=_CHEAP)
    except NothingFits:
        beside = [spec for spec in methods.having(Role.BESIDE) if spec.name != singles.name]
        found = [search(problem, spec.name, budget_evaluations=_CHEAP) for spec in beside]
        return min(found, key=lambda one: one.runtime_s)


def _kept_cell(
    study: Study,
    row: Row,
    problem: Problem,
    reference: SearchResult,
    one: Candidate,
    seed: int,
    folder: pathlib.Path,
) -> SearchCell:
    """The search that is on disk if all that makes it is the same, else a new one, which then is."""
    made = {
        **made_of(problem, one.method, one.config(problem), seed, study.evaluations, study.cap_s),
        "begins_at": reference.method,
        "window": study.window,
    }
    stem = re.sub(r"[^\w.-]+", "_", f"{row.workload}@{row.cluster}@{one.name}@{seed}".replace("@", "--"))
    path = folder / f"{stem}.json"
    known: SearchCell | None = read_kept(path, made, SearchCell)
    if known is not None:
        return known
    cell = _searched(study, problem, reference, one, seed)
    # A library can be installed, so what could not run is asked again the next time.
    if cell.status != NOT_RUN:
        keep(path, made, cell)
    print(f"  {one.name}, seed {seed}: {_told(cell, reference.runtime_s)}", flush=True)
    return cell


def _searched(
    study: Study, problem: Problem, reference: SearchResult, one: Candidate, seed: int
) -> SearchCell:
    spec, seen = methods.find(one.method), None
    if spec.kind == Kind.LEARNED:
        spec, seen = observed(spec, study.evaluations)
    # From the single device: a list schedule that fits is hard to improve, and what it is worth is not learned.
    begins = spec.uses_start and Role.REFERENCE in methods.find(reference.method).roles
    try:
        result = search(
            problem,
            spec,
            study.cap_s,
            study.evaluations,
            seed,
            start=reference.placement if begins else None,
            config=one.config(problem),
        )
    except NothingFits as error:
        return SearchCell(OUT_OF_MEMORY, math.inf, message=str(error))
    except InputError as error:
        return SearchCell(NOT_RUN, message=str(error))
    if result.interrupted:
        raise KeyboardInterrupt
    history = result.history if seen is None else seen.history
    cell = SearchCell(
        status=OK,
        runtime_s=result.runtime_s,
        evaluations=result.evaluations,
        search_s=result.search_s,
        capped=result.search_s >= study.cap_s,
        curve=[list(dataclasses.astuple(point)) for point in curve_of(history, POINTS)],
    )
    return cell if seen is None else _learned(cell, seen, study.window)


def _learned(cell: SearchCell, seen: Seen, window: int) -> SearchCell:
    """With what was seen of the learner, and nothing of where it began."""
    first, last = seen.first(window), seen.last(window)
    fits = math.isfinite(seen.best_s)
    return dataclasses.replace(
        cell,
        status=OK if fits else OUT_OF_MEMORY,
        runtime_s=seen.best_s if fits else math.inf,
        message="" if fits else "nothing that it drew fits",
        updates=seen.updates,
        first_best_s=first.best_s,
        first_mean_s=first.mean_s,
        last_mean_s=last.mean_s,
        entropy=[list(pair) for pair in seen.entropy],
    )


def _told(cell: SearchCell, reference_s: float) -> str:
    if cell.status != OK:
        return cell.message
    means = ""
    if cell.updates:
        first, last = cell.first_mean_s / reference_s, cell.last_mean_s / reference_s
        means = f", samples {first:.3f} to {last:.3f} in {cell.updates} updates"
    return f"best {cell.runtime_s / reference_s:.3f}{means} ({cell.evaluations} tried, {cell.search_s:.1f} s)"
