"""Computes a table of a paper: our methods on its workloads and machines, beside the numbers that it prints.

    python -m experiments.papers_table --table=hdp_2018 [--quick] [--out=docs/results/papers]

Writes TABLE.md, TABLE.csv and TABLE.png, and one file a search in OUT/cells: run again, it goes on where it was killed.
"""

from __future__ import annotations

import pathlib
import sys

from absl import flags

from experiments.main_program import run_program
from experiments.papers.description import TABLES, read_description
from experiments.papers.table import compute
from tf_placer.errors import InputError
from tf_placer.folders import reserved

_FULL, _QUICK = "docs/results/papers", "out/papers"

_TABLE = flags.DEFINE_enum(
    "table", None, sorted(path.stem for path in TABLES.glob("*.toml")), "Which paper's table."
)
_OUT = flags.DEFINE_string("out", None, f"Folder for the results; {_FULL}, or {_QUICK} with --quick.")
flags.DEFINE_bool("quick", False, "Small workloads, a tenth of the budget, one seed.")


def main(argv: list[str]) -> None:
    del argv
    if _TABLE.value is None:
        raise InputError(
            f"--table is missing; give one of {', '.join(flags.FLAGS['table'].parser.enum_values)}"
        )
    description = read_description(TABLES / f"{_TABLE.value}.toml")
    command = f"python -m experiments.papers_table --table={description.name}"
    if flags.FLAGS.quick:
        description, command = description.quick(), f"{command} --quick"
    out = pathlib.Path(_OUT.value or (_QUICK if flags.FLAGS.quick else _FULL))
    with reserved(out, f"--out={out}"):
        status = compute(description, out, command)
    if status:
        sys.exit(status)


if __name__ == "__main__":
    run_program(main)
