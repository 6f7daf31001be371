"""The pages of the documentation, and what stands on them."""

from __future__ import annotations

import dataclasses
import pathlib
import re

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE_ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
      language: the first word behind the fence.
      note: the rest of that line: the name of the file that it is, or ``not run``.
      text: what is in it.
    """

    language: str
    note: str
    text: str


def pages(root: pathlib.Path) -> list[pathlib.Path]:
    """The README and all pages of docs/, sorted."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def blocks(page: pathlib.Path, language: str) -> list[Block]:
    """The fenced blocks of a language, in order."""
    found = [Block(first, note.strip(), text) for first, note, text in _FENCE.findall(read(page))]
    return [block for block in found if block.language == language]


def table_rows(page: pathlib.Path) -> list[list[str]]:
    """The cells of every row of every table, headings too, but not the line below them.

    A bar inside a cell is written ``\\|``.
    """
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row)]
        for row in _TABLE_ROW.findall(read(page))
    ]


def read(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf8")
