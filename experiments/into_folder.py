"""Runs an experiment that writes into ``--out``: the folder is found good, and is its alone, before the work."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from absl import flags

from experiments.main_program import run_program
from tf_placer.folders import reserved


def run(main: Callable[[pathlib.Path], None]) -> None:
    """Parses the flags and calls ``main`` with the folder; what is wrong with the input is one line on stderr."""

    def in_folder(argv: list[str]) -> None:
        del argv
        out = pathlib.Path(flags.FLAGS.out)
        with reserved(out, f"--out={out}"):
            main(out)

    run_program(in_folder)
