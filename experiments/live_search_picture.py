"""Draws the README's picture from the table of docs/results/live_search.md.

    python -m experiments.live_search_picture

Every measured run is a dot, so the picture shows nothing that the table does not say.
"""

from __future__ import annotations

import pathlib
import re

import matplotlib.pyplot as plt
import numpy as np
from absl import flags

from experiments.main_program import run_program
from tf_placer.base.arguments import InputError

_DOCS = pathlib.Path(__file__).parent.parent / "docs"
_PAGE = flags.DEFINE_string("page", str(_DOCS / "results" / "live_search.md"), "page with the table")
_PICTURE = flags.DEFINE_string("picture", str(_DOCS / "live_search.png"), "file for the picture")

_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+), \w+ times \| ((?:\d+\.\d+ ?){2,}) \|", re.MULTILINE)
_GAIN, _NO_GAIN = "tab:green", "tab:gray"


def measured_fractions(page: str) -> dict[str, tuple[str, np.ndarray]]:
    """Training step -> what was recommended, and [runs] measured step times as fractions of the single device's."""
    return {step: (method, np.array(times.split(), float)) for step, method, times in _ROW.findall(page)}


def draw(rows: dict[str, tuple[str, np.ndarray]], path: pathlib.Path) -> None:
    """One line for each training step: a bar to the median, a dot for each run."""
    figure, axis = plt.subplots(figsize=(8, 0.42 * len(rows) + 1.1), layout="constrained")
    for y, (method, fractions) in enumerate(rows.values()):
        stays = method == "single device"
        color = _NO_GAIN if stays else _GAIN
        median = float(np.median(fractions))
        axis.barh(y, median, color=color, alpha=0.35, height=0.6)
        axis.plot(fractions, np.full(len(fractions), y), "o", color=color, markersize=4)
        text = "stays on one device" if stays else f"{1 - median:.0%} less time, by {method}"
        axis.text(0.02, y, text, va="center", fontsize=9)
    axis.axvline(1.0, color="black", linestyle=":", linewidth=1)
    axis.set(
        yticks=range(len(rows)),
        yticklabels=list(rows),
        xlim=(0, 1.08),
        xlabel="measured step time / best single device (two CPU workers; a dot for each of five runs)",
    )
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def main(argv: list[str]) -> None:
    del argv
    rows = measured_fractions(pathlib.Path(_PAGE.value).read_text(encoding="utf8"))
    if not rows:
        raise InputError(f"--page={_PAGE.value} has no table of runs; give the page of live searches")
    draw(rows, pathlib.Path(_PICTURE.value))
    print(f"wrote {_PICTURE.value}")


if __name__ == "__main__":
    run_program(main)
