"""How soon is who as fast as HDP is in the end?

    python -m experiments.convergence [--quick] [--out=docs/results]

Writes convergence.md, convergence.csv, convergence_curves.csv and convergence.png, and one file a search in OUT/cells:
run again, it goes on where it was killed.
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
    run_study(read_study(STUDIES / "convergence.toml"), flags.FLAGS.quick, _OUT.value)


if __name__ == "__main__":
    run_program(main)
