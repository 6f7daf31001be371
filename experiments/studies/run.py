"""Runs a study from start to end: filled cell by cell, and written as it grows."""

from __future__ import annotations

import logging
import pathlib
import sys
from collections.abc import Callable

import tensorflow as tf
from absl import flags

from experiments.studies import curves_page, table_page
from experiments.studies.cells import Filled, fill
from experiments.studies.study import STUDIES, Study, read_study
from tf_placer.base.arguments import InputError
from tf_placer.base.files import reserved

COMPLETE, INTERRUPTED = 0, 1
_CURVES, _TABLES = ("docs/results", "out/results"), ("docs/results/papers", "out/papers")


def define_flags(module: str, is_table: bool = False) -> None:
    """Defines ``--out``, ``--quick`` and ``--seeds``, the flags of every study, and ``--methods`` of a table.

    Args:
      module: ``__name__`` of the program that has them.
      is_table: whether its pages are tables of papers.
    """
    full, quick = _TABLES if is_table else _CURVES
    own = {"module_name": sys.argv[0] if module == "__main__" else module}
    flags.DEFINE_string("out", None, f"Folder for the results; {full}, or {quick} with --quick.", **own)
    flags.DEFINE_bool("quick", False, "Small programs, few evaluations, one or two seeds.", **own)
    flags.DEFINE_integer("seeds", 0, "Only so many of the seeds; 0 is all.", lower_bound=0, **own)
    if is_table:
        flags.DEFINE_list(
            "methods",
            [],
            "Only these of the table's columns, by the name of their method; none is all.",
            **own,
        )


def program(module: str, study: str) -> Callable[[list[str]], None]:
    """The main function of a program that runs one study of ``experiments/studies``; defines its flags."""
    define_flags(module)
    return lambda argv: run_study(STUDIES / f"{study}.toml", f"python -m experiments.{study}")


def run_study(path: pathlib.Path, command: str) -> None:
    """Computes a page as the flags say, and ends the process with 1 where Ctrl-C came before the end.

    Args:
      path: of the study's file.
      command: what makes the page in full.

    Raises:
      InputError: a name in the file or in ``--methods`` is unknown.
    """
    study, out = read_study(path), flags.FLAGS.out
    full, quick = _TABLES if study.is_table else _CURVES
    methods = flags.FLAGS.methods if study.is_table else []
    try:
        study = study.thinned(flags.FLAGS.seeds, methods)
    except InputError as error:
        raise InputError(f"--methods={','.join(methods)}: {error}") from None
    command += f" --seeds={flags.FLAGS.seeds}" if flags.FLAGS.seeds else ""
    command += f" --methods={','.join(methods)}" if methods else ""
    if flags.FLAGS.quick:
        study, command = study.quick(), f"{command} --quick"
    # Each search traces a learner of its own, which TensorFlow takes for an oversight.
    tf.get_logger().setLevel(logging.ERROR)
    if status := compute(study, pathlib.Path(out or (quick if flags.FLAGS.quick else full)), command):
        sys.exit(status)


def compute(study: Study, out: pathlib.Path, command: str) -> int:
    """Fills a study and writes its page after every candidate, or every row of a table.

    Returns:
      The exit status: Ctrl-C keeps what is complete and is 1.

    Raises:
      InputError: another process computes the same page there.
    """
    write = table_page.write if study.is_table else curves_page.write
    cells = out / "cells" / study.name
    cells.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Filled] = {}
    with reserved(cells, f"--out={out}"):
        try:
            for filled in fill(study, cells):
                rows[filled.row.name] = filled
                if not study.is_table or len(filled.cells) == len(study.candidates_of(filled.row)):
                    write(study, list(rows.values()), out, command)
        except KeyboardInterrupt:
            print(f"interrupted: what is complete is in {cells}; run it again to go on")
            return INTERRUPTED
    print(f"wrote {out / study.name}.md, its CSV and its picture")
    return COMPLETE
