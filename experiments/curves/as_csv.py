"""A study as CSV for programs: one file of searches, one of their curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from experiments.curves.cells import Filled, SearchCell
from experiments.curves.study import Study

OF_A_SEARCH = ("workload", "cluster", "candidate", "seed")
SEARCHES = (
    *OF_A_SEARCH,
    "status",
    "best_s",
    "reference_s",
    "bound_s",
    "first_best_s",
    "first_mean_s",
    "last_mean_s",
    "updates",
    "evaluations",
    "search_s",
    "capped",
)
CURVES = (*OF_A_SEARCH, "evaluations", "elapsed_s", "best_s", "mean_s", "entropy")


def searches_csv(study: Study, rows: Sequence[Filled]) -> str:
    """One line for each search."""
    return _written(SEARCHES, (_search(*one) for one in _searches(study, rows)))


def curves_csv(study: Study, rows: Sequence[Filled]) -> str:
    """One line for each point of each curve; the entropy is the last that was asked for before the point."""
    return _written(CURVES, (line for one in _searches(study, rows) for line in _points(*one)))


def _searches(study: Study, rows: Sequence[Filled]) -> Iterator[tuple[Filled, str, int, SearchCell]]:
    candidates = {one.name: one for one in study.candidates}
    for filled in rows:
        for name, cells in filled.cells.items():
            for seed, cell in zip(candidates[name].seeds_of(study.seeds), cells, strict=True):
                yield filled, name, seed, cell


def _search(filled: Filled, name: str, seed: int, cell: SearchCell) -> dict[str, Any]:
    return {
        **_of(filled, name, seed),
        "status": cell.status,
        "best_s": cell.runtime_s,
        "reference_s": filled.reference_s,
        "bound_s": filled.bound_s,
        "first_best_s": cell.first_best_s,
        "first_mean_s": cell.first_mean_s,
        "last_mean_s": cell.last_mean_s,
        "updates": cell.updates,
        "evaluations": cell.evaluations,
        "search_s": cell.search_s,
        "capped": cell.capped,
    }


def _points(filled: Filled, name: str, seed: int, cell: SearchCell) -> Iterator[dict[str, Any]]:
    for point in cell.points:
        asked = [nats for evaluations, nats in cell.entropy if evaluations <= point.evaluations]
        yield {
            **_of(filled, name, seed),
            "evaluations": point.evaluations,
            "elapsed_s": point.elapsed_s,
            "best_s": point.best_s,
            "mean_s": point.mean_s,
            "entropy": asked[-1] if asked else math.nan,
        }


def _of(filled: Filled, name: str, seed: int) -> dict[str, Any]:
    return {
        "workload": filled.row.workload,
        "cluster": filled.row.cluster,
        "candidate": name,
        "seed": seed,
    }


def _written(columns: Sequence[str], lines: Iterable[dict[str, Any]]) -> str:
    """CSV; ``inf`` is out of memory, nothing is not known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow(
            {
                key: "" if isinstance(value, float) and math.isnan(value) else value
                for key, value in line.items()
            }
        )
    return text.getvalue()
