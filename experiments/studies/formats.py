"""Lines of Markdown tables, CSV text and PNG bytes, and the lines of a page that name the machine and the day."""

from __future__ import annotations

import csv
import datetime
import io
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from matplotlib.figure import Figure


def line(*cells: str) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def header(*names: str) -> list[str]:
    """The first two lines of a Markdown table."""
    return [line(*names), line(*("---" for _ in names))]


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """CSV with the columns of the first record: ``inf`` is out of memory; an empty cell is unknown."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        # Only nan, what is not known, is unequal to itself.
        writer.writerow({key: value if value == value else "" for key, value in record.items()})
    return text.getvalue()


def png(figure: Figure, dpi: int) -> bytes:
    """A picture; equal figures give equal bytes."""
    picture = io.BytesIO()
    figure.savefig(picture, dpi=dpi, metadata={"Software": None})
    return picture.getvalue()


def machine_lines() -> list[str]:
    """``- Machine: ...`` and ``- Date: ...``, in the form that all pages of results have."""
    cores = len(os.sched_getaffinity(0))
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = len(tf.config.list_physical_devices("GPU"))
    versions = [".".join(version.split(".")[:2]) for version in (tf.__version__, platform.python_version())]
    return [
        f"- Machine: {cores} core{'s' * (cores != 1)}, {gib:.0f} GiB of memory, "
        f"{f'{gpus} GPU' if gpus else 'no GPU'}; TensorFlow {versions[0]}, Python {versions[1]}",
        f"- Date: {datetime.date.today().isoformat()}",
    ]


def page_head(title: str, command: str, seed: object) -> list[str]:
    """The first lines of a page of results, with an empty one behind."""
    return [f"# {title}", "", f"- Command: {command}", f"- Seed: {seed}", *machine_lines(), ""]
