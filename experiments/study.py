"""A study: methods on the workloads of a paper beside its numbers, or curves of searches, filled cell by cell.

    python -m experiments.study --study=hdp_2018 [--quick] [--seeds=2] [--methods=single,random] [--out=FOLDER]

Writes STUDY.md, STUDY.csv and STUDY.png, of curves also STUDY_curves.csv, and one file a search in OUT/cells: run
again, it goes on where it was killed.
"""

from __future__ import annotations

import logging
import pathlib
import shlex
import sys

import tensorflow as tf
from absl import flags

from experiments.main_program import run_program
from experiments.studies import curves_page, table_page
from experiments.studies.cells import Filled, fill
from experiments.studies.study import FILES, TABLES, Study, read_study
from tf_placer.base.arguments import InputError
from tf_placer.base.files import reserved

COMPLETE, INTERRUPTED = 0, 1
flags.DEFINE_enum("study", None, sorted(FILES), "Name of a file of experiments/tables or studies.")
flags.DEFINE_string("out", None, "Folder for the results; its place in docs/results, or out with --quick.")
flags.DEFINE_bool("quick", False, "Small programs, few evaluations, one or two seeds.")
flags.DEFINE_integer("seeds", 0, "Only so many of the seeds; 0 is all.", lower_bound=0)
flags.DEFINE_list("methods", [], "Only these candidates, by name; none is all.")


def main() -> None:
    """Computes a page as the flags say, and ends the process with 1 where Ctrl-C came before the end."""
    values = flags.FLAGS
    name = values.study
    if name is None:
        raise InputError(f"--study is missing; give one of {', '.join(sorted(FILES))}")
    study = read_study(FILES[name]).thinned(values.seeds, values.methods)
    command = f"python -m experiments.study --study={name}"
    command += f" --seeds={values.seeds}" if values.seeds else ""
    command += f" {shlex.quote(flags.FLAGS['methods'].serialize())}" if values.methods else ""
    is_paper = FILES[name].parent == TABLES
    out = "docs/results/papers" if is_paper else "docs/results"
    if values.quick:
        study, command, out = study.quick(), f"{command} --quick", "out/papers" if is_paper else "out/results"
    study.check()
    # Each search traces a learner of its own, which TensorFlow takes for an oversight.
    tf.get_logger().setLevel(logging.ERROR)
    if status := compute(study, pathlib.Path(values.out or out), command):
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


if __name__ == "__main__":
    run_program(main)
