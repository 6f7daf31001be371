"""Commands that run in this process, what they print, and what they write."""

import io
import json
import pathlib
from typing import Any

import rich.console

from tf_placer.__main__ import run


def command(*argv: str, width: int = 200) -> tuple[int, str]:
    """Exit status and standard output of a command."""
    console = rich.console.Console(file=io.StringIO(), width=width)
    return run(argv, console), console.file.getvalue()


def printed_by(*argv: str, width: int = 200) -> str:
    """Standard output of a command that ends well."""
    status, text = command(*argv, width=width)
    assert status == 0, text
    return text


def written(folder: pathlib.Path, name: str = "summary") -> Any:
    """One of the JSON files that a run wrote: "summary", "placement" or "timeline"."""
    return json.loads((folder / f"{name}.json").read_text())


def devices_in(folder: pathlib.Path) -> dict[str, str]:
    """Device of each op, in the plan that a run wrote."""
    return written(folder, "placement")["devices"]
