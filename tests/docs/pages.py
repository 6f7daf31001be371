"""The pages of the documentation, and what stands on them."""

import dataclasses
import os
import pathlib
import re
import shlex
import subprocess

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE_ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    language: str  # the first word behind the fence
    note: str  # the rest of that line: the name of the file that it is, or ``not run``
    text: str  # what is in it


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


def command_lines(text: str) -> list[list[str]]:
    """Command and flags of every ``tf-placer`` or ``python -m tf_placer`` line in an indented block."""
    lines = re.findall(r"^    (?:tf-placer|\S*python -m tf_placer) (.*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def printed_by(
    command: str | list[str], root: pathlib.Path, folder: pathlib.Path, timeout_s: float, **environment: str
) -> str:
    """What a command of the shell, or a program and its arguments, prints in a folder; it must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(root)} | environment,
        shell=isinstance(command, str),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr
