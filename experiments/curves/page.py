"""A study from start to end: filled search by search, and written after each candidate."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from experiments.curves.as_csv import curves_csv, searches_csv
from experiments.curves.cells import Filled, fill
from experiments.curves.picture import draw
from experiments.curves.render import as_markdown
from experiments.curves.study import Study
from tf_placer.files import write_atomically
from tf_placer.folders import reserved

COMPLETE, INTERRUPTED = 0, 1


def write(study: Study, rows: Sequence[Filled], out: pathlib.Path, command: str) -> None:
    """Writes the page, the CSVs and the picture of what is done."""
    write_atomically(out / f"{study.name}.md", as_markdown(study, rows, command))
    write_atomically(out / f"{study.name}.csv", searches_csv(study, rows))
    write_atomically(out / f"{study.name}_curves.csv", curves_csv(study, rows))
    write_atomically(out / f"{study.name}.png", draw(study, rows))


def compute(study: Study, out: pathlib.Path, command: str) -> int:
    """Fills the study and writes it after every candidate, so that what is there can be read while it goes on.

    Returns:
      The exit status: Ctrl-C keeps what is complete and is 1.

    Raises:
      InputError: another process computes the same page there.
    """
    cells = out / "cells" / study.name
    cells.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Filled] = {}
    with reserved(cells, f"--out={out}"):
        try:
            for filled in fill(study, cells):
                rows[filled.row.name] = filled
                write(study, list(rows.values()), out, command)
        except KeyboardInterrupt:
            print(f"interrupted: what is complete is in {cells}; run it again to go on")
            return INTERRUPTED
    print(f"wrote {out / study.name}.md, .csv, _curves.csv and .png")
    return COMPLETE
