"""Tables of papers: our methods on their workloads and machines, beside the numbers that they print.

    python -m experiments.papers_table --table=hdp_2018 [--quick] [--out=docs/results/papers]

Writes TABLE.md, TABLE.csv and TABLE.png, and one file a search in OUT/cells: run again, it goes on where it was killed.
"""

from __future__ import annotations

from absl import flags

from experiments.main_program import run_program
from experiments.studies.run import define_flags, run_study
from experiments.studies.study import TABLES
from tf_placer.base.arguments import InputError

_TABLE = flags.DEFINE_enum(
    "table", None, sorted(path.stem for path in TABLES.glob("*.toml")), "Of which paper."
)
define_flags(__name__, is_table=True)


def main(argv: list[str]) -> None:
    del argv
    if _TABLE.value is None:
        known = ", ".join(flags.FLAGS["table"].parser.enum_values)
        raise InputError(f"--table is missing; give one of {known}")
    run_study(TABLES / f"{_TABLE.value}.toml", f"python -m experiments.papers_table --table={_TABLE.value}")


if __name__ == "__main__":
    run_program(main)
