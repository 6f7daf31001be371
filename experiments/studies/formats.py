"""Formats of experiments: their descriptions as TOML, pages as Markdown, tables as CSV, pictures as PNG."""

from __future__ import annotations

import csv
import datetime
import io
import math
import os
import pathlib
import platform
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from matplotlib.figure import Figure

from tf_placer.base.arguments import InputError
from tf_placer.base.files import write_atomically

_Made = TypeVar("_Made")


def line(*cells: str) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def header(*names: str) -> list[str]:
    """The first two lines of a Markdown table."""
    return [line(*names), line(*("---" for _ in names))]


def figure(value: float, form: str) -> str:
    """A number on a page: OOM for an infinite one, where nothing fits, "-" for nan, where there is none."""
    if math.isnan(value):
        return "-"
    return "OOM" if math.isinf(value) else format(value, form)


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


def write_page(out: str, title: str, command: str, seed: object, lines: Iterable[str]) -> None:
    """Writes a page of results, which begins with the lines that all of them have."""
    head = [f"# {title}", "", f"- Command: {command}", f"- Seed: {seed}", *machine_lines(), ""]
    write_atomically(pathlib.Path(out), "\n".join([*head, *lines]) + "\n")


def read_toml(path: pathlib.Path, made_of: Callable[[dict[str, Any]], _Made]) -> _Made:
    """Content of a file as ``made_of`` makes it.

    Raises:
      InputError: it is missing, no TOML, or ``made_of`` refuses it; the message begins with the file.
    """
    try:
        return made_of(tomllib.loads(path.read_text(encoding="utf8")))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give the file of a table") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it is no TOML ({' '.join(str(error).split())}); mend it") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
