"""A table from start to end: filled row by row, and written after each."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from experiments.papers.cells import Filled, fill
from experiments.papers.description import Description
from experiments.papers.order import differences
from experiments.papers.picture import draw
from experiments.papers.render import as_csv, as_markdown
from tf_placer.files import write_atomically

COMPLETE, INTERRUPTED = 0, 1


def write(description: Description, rows: Sequence[Filled], out: pathlib.Path, command: str) -> None:
    """Writes the page, the CSV and the picture of the rows that are complete."""
    write_atomically(out / f"{description.name}.md", as_markdown(description, rows, command))
    write_atomically(out / f"{description.name}.csv", as_csv(description, rows))
    write_atomically(out / f"{description.name}.png", draw(description, rows))


def compute(description: Description, out: pathlib.Path, command: str) -> int:
    """Fills the table, writes it after every row, and tells where the order is not the paper's.

    Returns:
      The exit status: Ctrl-C keeps what is complete and is 1.
    """
    cells = out / "cells" / description.name
    cells.mkdir(parents=True, exist_ok=True)
    rows: list[Filled] = []
    try:
        for filled in fill(description, cells):
            rows.append(filled)
            write(description, rows, out, command)
            for one in differences(description, filled):
                print(f"  not as in the paper: {one}", flush=True)
    except KeyboardInterrupt:
        print(f"interrupted: {len(rows)} of {len(description.rows)} rows are complete; run it again to go on")
        return INTERRUPTED
    print(f"wrote {out / description.name}.md, .csv and .png")
    return COMPLETE
