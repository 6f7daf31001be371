"""What are the parts of GO and Mars worth? Each changed alone, five seeds, at equal evaluations.

    python -m experiments.transfer_ablations [--quick] [--out=docs/results]

Writes transfer_ablations.md, transfer_ablations.csv, transfer_ablations_curves.csv and transfer_ablations.png, and one
file a search in OUT/cells: run again, it goes on where it was killed.
"""

from __future__ import annotations

from absl import flags

from experiments.curves.run_study import FULL, QUICK, STUDIES, run_study
from experiments.curves.study import read_study
from experiments.main_program import run_program

_OUT = flags.DEFINE_string("out", None, f"Folder for the results; {FULL}, or {QUICK} with --quick.")
flags.DEFINE_bool("quick", False, "One small program, a few updates, one seed.")


def main(argv: list[str]) -> None:
    del argv
    run_study(read_study(STUDIES / "transfer_ablations.toml"), flags.FLAGS.quick, _OUT.value)


if __name__ == "__main__":
    run_program(main)
