"""A picture of a table: for each row, how far each method is from the best known."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.papers.cells import Filled
from experiments.papers.description import ONE_ACCELERATOR, Description
from experiments.papers.order import mean_s

_MARKERS = "os^vD<>P*hX"


def draw(description: Description, rows: Sequence[Filled]) -> bytes:
    """A PNG with a mark for each row and method; what ran out of memory stands at the right edge.

    The same rows give the same bytes.
    """
    names = (ONE_ACCELERATOR, *description.methods)
    fractions = [[mean_s(row.times_s(name)) / row.best_known_s for name in names] for row in rows]
    most = max((value for row in fractions for value in row if math.isfinite(value)), default=1.0)
    edge = 1.3 * max(most, 1.1)
    figure = Figure(figsize=(9, 0.45 * len(rows) + 1.5), layout="constrained")
    axis = figure.add_subplot()
    for i, name in enumerate(names):
        at = [(row[i], y) for y, row in enumerate(fractions)]
        marker, color = _MARKERS[i % len(_MARKERS)], f"C{i % 10}"
        fits = [(x, y) for x, y in at if math.isfinite(x)]
        style = {"linestyle": "", "marker": marker, "color": color, "alpha": 0.7}
        axis.plot([x for x, _ in fits], [y for _, y in fits], label=name, **style)  # type: ignore[arg-type]
        # Beside each other, or all but one would be hidden.
        failed = [
            y + 0.5 * (i / len(names) - 0.5)
            for x, y in at
            if not math.isfinite(x) and not _unknown(rows[y], name)
        ]
        axis.plot([edge] * len(failed), failed, markersize=4, **{**style, "alpha": 1})  # type: ignore[arg-type]
    axis.axvline(edge, color="black", linestyle=":", linewidth=1)
    axis.set(
        xscale="log",
        yticks=range(len(rows)),
        yticklabels=[row.row.name for row in rows],
        xlabel="step time / best known (dotted line: out of memory)",
    )
    axis.invert_yaxis()
    figure.legend(loc="outside right upper", fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, metadata={"Software": None})
    return picture.getvalue()


def _unknown(row: Filled, name: str) -> bool:
    return math.isnan(mean_s(row.times_s(name)))
