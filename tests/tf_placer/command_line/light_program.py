"""Runs command lines one after the other and prints, as JSON, what each ended with and what has been loaded for it.

Its arguments are a JSON file, a list of lists of words, and the folder that they are typed in. What is printed: a list
of status, errors and output, and of the libraries that take seconds and were loaded so far.
"""

import contextlib
import io
import json
import os
import pathlib
import sys

import rich.console

from tf_placer.__main__ import run

SLOW = ("tensorflow", "keras", "scipy", "ortools", "sonnet", "matplotlib", "jsonschema")


def main() -> None:
    """One process for all: each further command line would load the libraries for itself only."""
    lines, found = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf8")), []
    os.chdir(sys.argv[2])
    for words in lines:
        errors = io.StringIO()
        console = rich.console.Console(file=io.StringIO(), width=110)
        with contextlib.redirect_stderr(errors):
            status = run(words, console)
        found.append(
            {
                "status": status,
                "errors": errors.getvalue(),
                "output": console.file.getvalue(),
                "loaded": [name for name in SLOW if name in sys.modules],
            }
        )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
