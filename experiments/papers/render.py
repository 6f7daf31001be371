"""A table of a paper as Markdown for people and CSV for programs; no time of a clock is in either."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.papers.cells import NOT_RUN, OK, Filled
from experiments.papers.description import ONE_ACCELERATOR, Description
from experiments.papers.order import differences, mean_s, seconds

_GIB = 2**30
CSV_COLUMNS = (
    "workload",
    "cluster",
    "method",
    "seeds",
    "fitting",
    "mean_s",
    "spread_s",
    "best_s",
    "of_best_known",
    "lower_bound_s",
    "peak_bytes",
    "evaluations",
    "capped",
    "status",
    "published_as",
    "published_s",
)


def as_csv(description: Description, rows: Sequence[Filled]) -> str:
    """One line for each row and method, and one for each of the paper's columns that no method stands for."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for filled in rows:
        writer.writerows(_records(description, filled))
    return text.getvalue()


def as_markdown(description: Description, rows: Sequence[Filled], command: str) -> str:
    """A page: what was run, step times as fractions of the best known, then each row with the paper's numbers.

    Args:
      description: the table.
      rows: those that are complete.
      command: what makes the page again.
    """
    seeds = ", ".join(map(str, description.seeds))
    lines = [
        f"# {description.title}",
        "",
        f"- Command: `{command}`",
        f"- Seed: {seeds}",
        f"- Budget: {description.evaluations} placements for each plan, and at most {description.cap_s:g} s",
        f"- Published numbers: {description.source}",
        *(_variant(description, column) for column in {**description.variants, **description.settings}),
        "",
        "Step times are simulated, so they are not the paper's; what can be compared is who fits and who is faster.",
    ]
    if len(rows) < len(description.rows):
        lines += ["", f"Not complete: {len(rows)} of {len(description.rows)} rows are done."]
    lines += ["", "## Step time over the best known", "", *_overview(description, rows)]
    for filled in rows:
        lines += ["", f"## {filled.row.name}", "", *_section(description, filled)]
    return "\n".join(lines) + "\n"


def _variant(description: Description, column: str) -> str:
    """What a column is that is no method as shipped."""
    settings = _told(description.settings.get(column, {}))
    return f"- {column}: `{description.method_of(column)}`" + (f" with `{settings}`" if settings else "")


def _told(settings: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value!r}" if value == "" else f"{key}={value}" for key, value in settings.items()
    )


def _overview(description: Description, rows: Sequence[Filled]) -> list[str]:
    names = (ONE_ACCELERATOR, *description.methods)
    lines = _header("row", "best known s", "bound s", *names)
    for filled in rows:
        cells = [_fraction(filled, name) for name in names]
        best, bound = seconds(filled.best_known_s), seconds(filled.facts.bound_s)
        lines.append(_line(filled.row.name, best, bound, *cells))
    return lines


def _section(description: Description, filled: Filled) -> list[str]:
    facts = filled.facts
    lines = [
        f"{facts.ops} ops in {facts.units} units; no placement is faster than {seconds(facts.bound_s)} s.",
        "",
        *(f"- {column}: `{_told(own)}`" for column, own in filled.row.settings.items()),
        *([""] if filled.row.settings else []),
        *_header("method", "step s", "spread", "of best known", "peak GiB", "tried", "in the paper"),
    ]
    for name in (ONE_ACCELERATOR, *description.methods):
        record = _record(description, filled, name)
        lines.append(
            _line(
                name,
                seconds(mean_s(filled.times_s(name))) + _mark(filled, name),
                _shown(record["spread_s"], "{:.2g}"),
                _fraction(filled, name),
                _shown(record["peak_bytes"], "{:.2f}", 1 / _GIB),
                _shown(record["evaluations"], "{}"),
                _published(description, filled, name),
            )
        )
    for column in _only_in_the_paper(description, filled):
        lines.append(_line("", "", "", "", "", "", f"{column}: {seconds(filled.row.published[column])}"))
    return [*lines, *_marks(description, filled), *_order(description, filled)]


def _marks(description: Description, filled: Filled) -> list[str]:
    """What the marks of the section mean, and why methods were not run."""
    lines = []
    cells = {method: filled.cells[method] for method in description.methods}
    if any(cell.capped for of_one in cells.values() for cell in of_one):
        lines += ["", "† ended by the cap of seconds: another run may differ."]
    for method, of_one in cells.items():
        failed = sum(math.isinf(cell.runtime_s) for cell in of_one)
        if 0 < failed < len(of_one):
            lines += ["", f"{method} found nothing that fits with {failed} of {len(of_one)} seeds."]
        if of_one[0].status == NOT_RUN:
            lines += ["", f"{method} was not run: {of_one[0].message}."]
    return lines


def _order(description: Description, filled: Filled) -> list[str]:
    found = differences(description, filled)
    if not found:
        return []
    note = description.notes.get(filled.row.name, "not explained yet")
    return ["", "Not as in the paper:", "", *(f"- {one}" for one in found), "", f"Why: {note}"]


def _records(description: Description, filled: Filled) -> list[dict[str, Any]]:
    ours = [_record(description, filled, name) for name in (ONE_ACCELERATOR, *description.methods)]
    base = {"workload": filled.row.workload, "cluster": filled.row.cluster}
    return ours + [
        {**base, "published_as": column, "published_s": _number(filled.row.published[column])}
        for column in _only_in_the_paper(description, filled)
    ]


def _record(description: Description, filled: Filled, name: str) -> dict[str, Any]:
    """A line of the CSV."""
    times = filled.times_s(name)
    fit = [t for t in times if math.isfinite(t)]
    cells = filled.cells.get(name, ())
    column = description.published_as.get(name, "")
    mean = mean_s(times)
    status = OK if fit else ("OUT_OF_MEMORY" if math.isinf(mean) else NOT_RUN)
    return {
        "workload": filled.row.workload,
        "cluster": filled.row.cluster,
        "method": name,
        "seeds": len(times),
        "fitting": len(fit),
        "mean_s": _number(mean),
        "spread_s": _number(statistics.stdev(fit)) if len(fit) > 1 else "",
        "best_s": _number(min(fit)) if fit else "",
        "of_best_known": _number(mean / filled.best_known_s) if fit else "",
        "lower_bound_s": _number(filled.facts.bound_s),
        "peak_bytes": max((cell.peak_bytes for cell in cells), default=0) or "",
        "evaluations": max((cell.evaluations for cell in cells), default=0) or "",
        "capped": any(cell.capped for cell in cells),
        "status": status,
        "published_as": column,
        "published_s": _number(filled.row.published.get(column, math.nan)),
    }


def _only_in_the_paper(description: Description, filled: Filled) -> list[str]:
    return [column for column in filled.row.published if column not in description.published_as.values()]


def _published(description: Description, filled: Filled, name: str) -> str:
    column = description.published_as.get(name)
    if column is None or column not in filled.row.published:
        return ""
    return f"{column}: {seconds(filled.row.published[column])}"


def _fraction(filled: Filled, name: str) -> str:
    mean = mean_s(filled.times_s(name))
    return f"{mean / filled.best_known_s:.3f}" if math.isfinite(mean) else seconds(mean)


def _mark(filled: Filled, name: str) -> str:
    return " †" if any(cell.capped for cell in filled.cells.get(name, ())) else ""


def _number(value: float) -> float | str:
    """For programs: ``inf`` is out of memory, nothing is not known."""
    return "" if math.isnan(value) else value


def _shown(value: Any, form: str, scale: float = 1) -> str:
    return "" if value == "" else form.format(value if scale == 1 else value * scale)


def _header(*names: str) -> list[str]:
    return [_line(*names), _line(*("---" for _ in names))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
