"""Page of a table of a paper: Markdown for people, CSV for programs, a picture; no time of a clock is in any.

The order of methods is compared with the paper's.
"""

from __future__ import annotations

import itertools
import math
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.studies.cells import NOT_RUN, OK, OUT_OF_MEMORY, Filled
from experiments.studies.formats import csv_text, figure, header, line, png
from experiments.studies.study import DATA_PARALLEL, IN_PARTS, ONE_ACCELERATOR, Study
from tf_placer.base.files import write_atomically
from tf_placer.cluster.cluster import Cluster
from tf_placer.report.sentences import fidelity_sentences
from tf_placer.search.methods import NO_ORDER

_MARKERS = "os^vD<>P*hX"
# Nearer than that, two step times are no order: the papers print two or three digits.
_CLEAR = 1.02
_PARTS_COLUMNS = (
    *("row", "parts", "one device s", "data parallel s", "placed whole s", "in parts and placed s"),
    *("over the better", "bound in parts s"),
)


def write(study: Study, rows: Sequence[Filled], out: pathlib.Path, command: str) -> None:
    """Writes the page, the CSV and the picture of the rows that are complete; prints where the last one differs."""
    rows = [filled for filled in rows if len(filled.cells) == len(study.candidates_of(filled.row))]
    if not rows:
        return
    write_atomically(out / f"{study.name}.md", as_markdown(study, rows, command))
    write_atomically(out / f"{study.name}.csv", as_csv(study, rows))
    write_atomically(out / f"{study.name}.png", draw(study, rows))
    for one in differences(study, rows[-1]):
        print(f"  not as in the paper: {one}", flush=True)


def as_csv(study: Study, rows: Sequence[Filled]) -> str:
    """One line for each row and method, and one for each of the paper's columns that no method stands for."""
    records = []
    for filled in rows:
        records += [_record(study, filled, name) for name in _names(study)]
        base = {"workload": filled.row.workload, "cluster": filled.row.cluster}
        for column, published_s in filled.row.published.items():
            if column not in study.published_as.values():
                records.append({**base, "published_as": column, "published_s": published_s})
    return csv_text(records)


def as_markdown(study: Study, rows: Sequence[Filled], command: str) -> str:
    """A page: what was run, step times as fractions of the best known, the paper's numbers, and where they differ."""
    clusters = sorted({row.cluster for row in study.rows})
    lines = [
        f"# {study.title}",
        "",
        f"- Command: `{command}`",
        f"- Seed: {', '.join(map(str, study.seeds))}",
        f"- Budget: {study.evaluations} placements for each plan, and at most {study.cap_s:g} s",
        f"- Published numbers: {study.source}",
        *_variants(study),
        "",
        "Step times are simulated, so they are not the paper's; what can be compared is who fits and who is faster.",
        "Means over seeds; † ended by the cap of seconds, so another run may differ. Spread, memory and placements",
        f"tried are in [the CSV]({study.name}.csv).",
        # How far the simulated GPUs are from real ones, a sentence for each model.
        *dict.fromkeys(s for name in clusters for s in fidelity_sentences(Cluster.preset(name))),
        *(["", study.about] if study.about else []),
    ]
    if len(rows) < len(study.rows):
        lines += ["", f"Not complete: {len(rows)} of {len(study.rows)} rows are done."]
    if study.has_parts:
        lines += ["", "## The batch in parts", "", *_parts_beside_the_whole(study, rows)]
    else:
        lines += ["", "## Step time over the best known", "", *_overview(study, rows)]
    if study.against:
        lines += ["", f"## Step time over {study.against}", "", *_shares(study, rows)]
    published = list(dict.fromkeys(column for filled in rows for column in filled.row.published))
    if published:
        lines += ["", "## Seconds in the paper / here", "", *_beside_the_paper(study, rows, published)]
    for filled in rows:
        lines += [*_marks(filled), *_order(study, filled)]
    return "\n".join(lines) + "\n"


def draw(study: Study, rows: Sequence[Filled]) -> bytes:
    """A PNG with a mark for each row and method; what ran out of memory stands at the right edge.

    The same rows give the same bytes.
    """
    names = _names(study)
    fractions = [[mean_s(row.times_s(name)) / row.best_known_s for name in names] for row in rows]
    most = max((value for row in fractions for value in row if math.isfinite(value)), default=1.0)
    edge = 1.3 * max(most, 1.1)
    figure = Figure(figsize=(9, max(0.45 * len(rows) + 1.5, 0.22 * len(names) + 0.3)), layout="constrained")
    axis = figure.add_subplot()
    for i, name in enumerate(names):
        at = [(row[i], y) for y, row in enumerate(fractions)]
        style: dict[str, Any] = {
            "linestyle": "",
            "marker": _MARKERS[i % len(_MARKERS)],
            "color": f"C{i % 10}",
        }
        fits = [(x, y) for x, y in at if math.isfinite(x)]
        axis.plot([x for x, _ in fits], [y for _, y in fits], label=name, alpha=0.7, **style)
        # Beside each other, or all but one would be hidden.
        was_run = [y for x, y in at if not math.isfinite(x) and not math.isnan(mean_s(rows[y].times_s(name)))]
        failed = [y + 0.5 * (i / len(names) - 0.5) for y in was_run]
        axis.plot([edge] * len(failed), failed, markersize=4, alpha=1, **style)
    axis.axvline(edge, color="black", linestyle=":", linewidth=1)
    axis.set(
        xscale="log",
        yticks=range(len(rows)),
        yticklabels=[row.row.name for row in rows],
        xlabel="step time / best known (dotted line: out of memory)",
    )
    axis.invert_yaxis()
    figure.legend(loc="outside right upper", fontsize=8)
    return png(figure, dpi=120)


def differences(study: Study, filled: Filled) -> list[str]:
    """One sentence for each pair of methods whose order is the other way around, and each that fits on one side only.

    Only what is in the paper and was run here is compared.
    """
    published, column_of = filled.row.published, study.published_as
    pairs = {
        ours: (mean_s(filled.times_s(ours)), published[column])
        for ours, column in column_of.items()
        if column in published
    }
    known = {ours: times for ours, times in pairs.items() if not math.isnan(times[0])}
    fits = {True: "does not fit", False: "fits"}
    told = [
        f"{ours} {fits[math.isinf(here)]} here; in the paper {column_of[ours]} {fits[math.isinf(there)]}"
        for ours, (here, there) in known.items()
        if math.isinf(here) != math.isinf(there)
    ]
    finite = {ours: times for ours, times in known.items() if all(map(math.isfinite, times))}
    for one, other in itertools.combinations(finite, 2):
        for fast, slow in ((one, other), (other, one)):
            (here_fast, there_fast), (here_slow, there_slow) = finite[fast], finite[slow]
            if here_slow > _CLEAR * here_fast and there_fast > _CLEAR * there_slow:
                told.append(
                    f"{fast} ({seconds(here_fast)}) is faster than {slow} ({seconds(here_slow)}) here; in the paper "
                    f"{column_of[slow]} ({seconds(there_slow)}) is faster than "
                    f"{column_of[fast]} ({seconds(there_fast)})"
                )
    return told


def mean_s(times_s: tuple[float, ...]) -> float:
    """Mean of the step times that fit: infinite where none fits, nan where the method was not run."""
    fit = [t for t in times_s if math.isfinite(t)]
    if fit:
        return sum(fit) / len(fit)
    return math.inf if any(math.isinf(t) for t in times_s) else math.nan


def seconds(value: float) -> str:
    """A step time with four digits."""
    return figure(value, ".4g")


def _names(study: Study) -> tuple[str, ...]:
    plain = (ONE_ACCELERATOR, DATA_PARALLEL) if study.has_parts else (ONE_ACCELERATOR,)
    return (*plain, *(one.name for one in study.candidates))


def _parts_beside_the_whole(study: Study, rows: Sequence[Filled]) -> list[str]:
    """A line for each row: its plans of the whole batch, and the best of them in parts over the better of these."""

    def best_s(filled: Filled, is_in_parts: bool) -> float:
        """Mean step time of the best of some candidates, nan where none was run."""
        names = [one.name for one in study.candidates if (one.variant == IN_PARTS) == is_in_parts]
        times = [mean_s(filled.times_s(name)) for name in names]
        return min((t for t in times if not math.isnan(t)), default=math.nan)

    lines = header(*_PARTS_COLUMNS)
    for filled in rows:
        if math.isnan(filled.bound_in_parts_s):
            continue
        one, data_parallel = mean_s(filled.times_s(ONE_ACCELERATOR)), filled.data_parallel_s
        whole, in_parts = best_s(filled, False), best_s(filled, True)
        better = min(data_parallel, whole)
        ratio = f"{in_parts / better:.3f}" if math.isfinite(better) and math.isfinite(in_parts) else "-"
        times = [seconds(value) for value in (one, data_parallel, whole, in_parts)]
        times_and_bound = [*times, ratio, seconds(filled.bound_in_parts_s)]
        lines.append(line(filled.row.name, str(filled.row.parts), *times_and_bound))
    return lines


def _variants(study: Study) -> Iterator[str]:
    """Columns that are no method as shipped; those of another name first."""
    for one in sorted(study.candidates, key=lambda one: one.name == one.method):
        told = [f"`{_told(one.settings)}`"] if one.settings else []
        told += [f"order `{one.order}`"] if one.order != NO_ORDER else []
        told += ["the clusters of rules"] if one.fused else []
        if told or one.name != one.method:
            yield f"- {one.name}: `{one.method}`" + (f" with {', '.join(told)}" if told else "")


def _told(settings: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value!r}" if value == "" else f"{key}={value}" for key, value in settings.items()
    )


def _overview(study: Study, rows: Sequence[Filled]) -> list[str]:
    names = _names(study)
    lines = header("row", "ops", "best known s", "bound s", *names)
    for filled in rows:
        capped = {name for name, cells in filled.cells.items() if any(cell.capped for cell in cells)}
        cells = [_fraction(filled, name) + (" †" if name in capped else "") for name in names]
        # The best known may be of either form that was placed, so a bound on it is the lesser of theirs.
        bound_s = float(np.fmin(filled.bound_s, filled.bound_in_parts_s))
        best, bound = seconds(filled.best_known_s), seconds(bound_s)
        lines.append(line(filled.row.name, str(filled.ops), best, bound, *cells))
    return lines


def _shares(study: Study, rows: Sequence[Filled]) -> list[str]:
    """A line for each candidate: its mean step in each row over that of ``study.against``, and what it saves of it."""
    lines = header("method", *(filled.row.name for filled in rows), "geometric mean", "saved")
    for name in (one.name for one in study.candidates):
        shares = [mean_s(one.times_s(name)) / mean_s(one.times_s(study.against)) for one in rows]
        is_known = all(map(math.isfinite, shares))
        mean = math.exp(statistics.fmean(map(math.log, shares))) if is_known else math.nan
        saved = "-" if math.isnan(mean) else f"{100 * (1 - mean):.1f} %"
        told = ["-" if math.isnan(share) else f"{share:.3f}" for share in (*shares, mean)]
        lines.append(line(name, *told, saved))
    return lines


def _beside_the_paper(study: Study, rows: Sequence[Filled], published: Sequence[str]) -> list[str]:
    """A line for each row: the paper's step times, each beside that of the method which stands for it here."""
    lines, name_of = header("row", *published), {column: name for name, column in study.published_as.items()}
    for filled in rows:
        cells = []
        for column in published:
            cell = seconds(filled.row.published[column]) if column in filled.row.published else ""
            if cell and column in name_of:
                cell += f" / {seconds(mean_s(filled.times_s(name_of[column])))}"
            cells.append(cell)
        lines.append(line(filled.row.name, *cells))
    return lines


def _marks(filled: Filled) -> list[str]:
    """Settings of a row's own, and reasons for methods that were not run or found nothing that fits."""
    row = filled.row
    lines = [f"{name} is set to `{_told(own)}`." for name, own in row.settings.items()]
    for method, of_one in filled.cells.items():
        failed = sum(math.isinf(cell.runtime_s) for cell in of_one)
        if 0 < failed < len(of_one):
            lines.append(f"{method} found nothing that fits with {failed} of {len(of_one)} seeds.")
        if of_one[0].status == NOT_RUN:
            lines.append(f"{method} was not run: {of_one[0].message}.")
    return [text for told in lines for text in ("", f"On {row.name}: {told}")]


def _order(study: Study, filled: Filled) -> list[str]:
    found = differences(study, filled)
    if not found:
        return []
    note = study.notes.get(filled.row.name, "not explained yet")
    return ["", f"Not as in the paper, {filled.row.name}: {'; '.join(found)}. Why: {note}"]


def _record(study: Study, filled: Filled, name: str) -> dict[str, Any]:
    """A line of the CSV."""
    times, cells, column = filled.times_s(name), filled.cells.get(name, ()), study.published_as.get(name, "")
    fit, mean = [t for t in times if math.isfinite(t)], mean_s(times)
    in_parts = {DATA_PARALLEL, *(one.name for one in study.candidates if one.variant == IN_PARTS)}
    bound_s = filled.bound_in_parts_s if name in in_parts else math.nan
    return {
        "workload": filled.row.workload,
        "cluster": filled.row.cluster,
        "method": name,
        "seeds": len(times),
        "fitting": len(fit),
        "mean_s": mean,
        "spread_s": statistics.stdev(fit) if len(fit) > 1 else math.nan,
        "best_s": min(fit, default=math.nan),
        "of_best_known": mean / filled.best_known_s if fit else math.nan,
        "lower_bound_s": filled.bound_s if math.isnan(bound_s) else bound_s,
        "peak_bytes": max((cell.peak_bytes for cell in cells), default=0) or math.nan,
        "evaluations": max((cell.evaluations for cell in cells), default=0) or math.nan,
        "capped": any(cell.capped for cell in cells),
        "status": OK if fit else (OUT_OF_MEMORY if math.isinf(mean) else NOT_RUN),
        "published_as": column,
        "published_s": filled.row.published.get(column, math.nan),
    }


def _fraction(filled: Filled, name: str) -> str:
    mean = mean_s(filled.times_s(name))
    return figure(mean / filled.best_known_s if math.isfinite(mean) else mean, ".3f")
