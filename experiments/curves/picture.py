"""A picture of a study: for each problem the best and the mean of samples, over evaluations and over seconds."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.curves.cells import Filled, SearchCell
from experiments.curves.study import Study
from tf_placer.search import methods
from tf_placer.search.spec import Role

_HIGHEST = 1.5  # of the reference: what is above says nothing about the rest
_STYLES = ("-", "--", ":", "-.")
_OVER = {"evaluations": "evaluations", "elapsed_s": "seconds"}


def draw(study: Study, rows: Sequence[Filled]) -> bytes:
    """A PNG. The same rows give the same bytes."""
    figure = Figure(figsize=(16, 3.4 * len(rows) + 0.4), layout="constrained")
    grid: Any = figure.subplots(len(rows), 4, squeeze=False)
    numbers = {one.name: number for number, one in enumerate(study.candidates)}
    control = {one.name for one in study.candidates if Role.CONTROL in methods.find(one.method).roles}
    for axes, filled in zip(grid, rows, strict=True):
        for name, cells in filled.cells.items():
            style = {"color": f"C{numbers[name] % 10}", "linestyle": _STYLES[numbers[name] // 10 % 4]}
            some = [cell for cell in cells if cell.curve]
            # What learns nothing has no samples of a policy; beside those stands the best of the control.
            of_samples = "mean_s" if any(cell.updates for cell in cells) else "best_s"
            for axis, (y, x) in zip(axes, itertools.product(("best_s", of_samples), _OVER), strict=True):
                if y == "best_s" and axis in axes[2:] and name not in control:
                    continue
                _line(axis, some, x, y, filled.reference_s, name, style)
        _frame(axes, filled)
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=100, metadata={"Software": None})
    return picture.getvalue()


def _line(
    axis: Axes,
    cells: Sequence[SearchCell],
    x: str,
    y: str,
    reference_s: float,
    name: str,
    style: dict[str, Any],
) -> None:
    """The mean over seeds as a line, point by point, and from the least to the most as a band."""
    if not cells:
        return
    length = min(len(cell.curve) for cell in cells)
    points = [cell.points[:length] for cell in cells]
    at = np.mean([[getattr(point, x) for point in some] for some in points], axis=0)
    values = np.array([[getattr(point, y) / reference_s for point in some] for some in points])
    known = ~np.isnan(values).any(axis=0)
    if not known.any():
        return
    at, values = at[known], values[:, known]
    if len(at) == 1:
        axis.axhline(float(values.mean()), label=name, linewidth=1, **style)
        return
    axis.plot(at, values.mean(axis=0), label=name, linewidth=1.3, **style)
    axis.fill_between(
        at, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.15, linewidth=0
    )


def _frame(axes: Sequence[Axes], filled: Filled) -> None:
    bound = filled.bound_s / filled.reference_s
    titles = (f"{filled.row.name}: best", "best", "mean of samples", "mean of samples")
    for number, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        axis.axhline(1, color="black", linestyle=":", linewidth=0.8)
        axis.axhline(bound, color="black", linestyle="--", linewidth=0.8)
        top = max(float(np.max(line.get_ydata())) for line in axis.get_lines())
        axis.set_ylim(0.95 * bound, min(_HIGHEST, 1.02 * top))
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(_OVER[tuple(_OVER)[number % 2]], fontsize=8)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel(f"step time / {filled.reference}", fontsize=8)
