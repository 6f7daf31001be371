"""Runs command lines one after the other and prints, as JSON, what each ended with and what has been loaded for it.

Its argument is a JSON file: a list of lists of words. What is printed: a list of status, errors and output, and of the
libraries that take seconds and were loaded in the end.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import sys

import rich.console

from tf_placer.__main__ import run

SLOW = ("tensorflow", "keras", "scipy", "ortools", "sonnet", "matplotlib", "jsonschema")


def main() -> None:
    """One process for all: each further command line would load the libraries for itself only."""
    found = []
    for words in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf8")):
        errors = io.StringIO()
        console = rich.console.Console(file=io.StringIO(), width=110)
        with contextlib.redirect_stderr(errors):
            status = run(words, console)
        loaded = [name for name in SLOW if name in sys.modules]
        found.append(
            {
                "status": status,
                "errors": errors.getvalue(),
                "output": console.file.getvalue(),
                "loaded": loaded,
            }
        )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
