"""Runs an experiment that writes into ``--out``: the folder is found good, and is its alone, before the work."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

from absl import app, flags

from tf_placer.errors import InputError
from tf_placer.folders import reserved

BAD_INPUT = 2


def run(main: Callable[[pathlib.Path], None]) -> None:
    """Parses the flags and calls ``main`` with the folder; what is wrong with the input is one line on stderr."""

    def in_folder(argv: list[str]) -> None:
        del argv
        out = pathlib.Path(flags.FLAGS.out)
        try:
            with reserved(out, f"--out={out}"):
                main(out)
        except InputError as error:
            sys.stderr.write(f"{pathlib.Path(sys.argv[0]).stem}: {error}\n")
            sys.exit(BAD_INPUT)

    app.run(in_folder)
