"""What `compare` writes beyond a report: a CSV with a line for each method, and a picture of how each got there."""

from __future__ import annotations

import csv
import io
import math
import pathlib
from collections.abc import Sequence

import matplotlib.axes
from matplotlib.figure import Figure

from tf_placer.command_line.reporting.candidate import Candidate

TABLE, PICTURE = "compare.csv", "progress.png"
COLUMNS = (
    "method",
    "simulated_s",
    "measured_s",
    "evaluations",
    "search_s",
    "peak_bytes",
    "lower_bound_s",
    "status",
)


def write_comparison(candidates: Sequence[Candidate], lower_bound_s: float, folder: pathlib.Path) -> None:
    """Writes ``compare.csv`` and ``progress.png``.

    Args:
      candidates: one of each method.
      lower_bound_s: no placement takes less.
      folder: is there.
    """
    (folder / TABLE).write_text(as_csv(candidates, lower_bound_s), encoding="utf8")
    (folder / PICTURE).write_bytes(draw(candidates, lower_bound_s))


def as_csv(candidates: Sequence[Candidate], lower_bound_s: float) -> str:
    """A line for each method; what is not known is empty. ``peak_bytes`` is the largest of any one device."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for candidate in candidates:
        result = candidate.result
        found = (
            ("", "", "") if result is None else (result.evaluations, result.search_s, candidate.peak_bytes)
        )
        simulated_s, measured_s = (
            "" if s is None else s for s in (candidate.simulated_s, candidate.measured_s)
        )
        writer.writerow(
            [candidate.method, simulated_s, measured_s, *found, lower_bound_s, candidate.status_name]
        )
    return text.getvalue()


def draw(candidates: Sequence[Candidate], lower_bound_s: float) -> bytes:
    """A PNG: the best step so far against seconds and against evaluations, a line for each method that found one."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    by_seconds, by_evaluations = figure.subplots(1, 2, sharey=True)
    found = [candidate for candidate in candidates if candidate.result is not None]
    for i, candidate in enumerate(found):
        assert candidate.result is not None  # those that found something
        history = [entry for entry in candidate.result.history if not math.isnan(entry.best_s)]
        best_ms = [1e3 * entry.best_s for entry in history]
        style = {"color": f"C{i % 10}", "linestyle": ("-", "--", ":")[i // 10 % 3]}
        _line(by_seconds, [entry.elapsed_s for entry in history], best_ms, style, candidate.method)
        _line(by_evaluations, [float(entry.evaluations) for entry in history], best_ms, style)
    best_s = [entry.best_s for candidate in found if candidate.result for entry in candidate.result.history]
    is_positive = all(seconds > 0 for seconds in best_s if not math.isnan(seconds))  # a step may take no time
    for axis in (by_seconds, by_evaluations):
        axis.axhline(1e3 * lower_bound_s, color="black", linestyle=":", linewidth=1)
        axis.set(xscale="log", yscale="log" if is_positive else "linear")
    by_seconds.set(xlabel="seconds", ylabel="best step so far, simulated ms (dotted line: lower bound)")
    by_evaluations.set(xlabel="placements tried")
    if found:
        figure.legend(loc="outside right upper", fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, metadata={"Software": None})
    return picture.getvalue()


def _line(
    axis: matplotlib.axes.Axes, at: list[float], best_ms: list[float], style: dict[str, str], label: str = ""
) -> None:
    """A stair: what was found holds until something better is."""
    axis.plot(
        at,
        best_ms,
        drawstyle="steps-post",
        color=style["color"],
        linestyle=style["linestyle"],
        label=label or None,
    )
    axis.plot(at[-1:], best_ms[-1:], "o", color=style["color"], markersize=4)
