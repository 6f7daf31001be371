"""Does each agent learn? Five seeds of every learned method, beside what learns nothing, at equal evaluations.

    python -m experiments.learning [--quick] [--out=docs/results]

Writes learning.md, learning.csv, learning_curves.csv and learning.png, and one file a search in OUT/cells: run again,
it goes on where it was killed.
"""

from __future__ import annotations

from absl import flags

from experiments.curves.every_agent import with_every_agent
from experiments.curves.run_study import FULL, QUICK, STUDIES, run_study
from experiments.curves.study import read_study
from experiments.main_program import run_program

_OUT = flags.DEFINE_string("out", None, f"Folder for the results; {FULL}, or {QUICK} with --quick.")
flags.DEFINE_bool("quick", False, "One small program, a few updates, two seeds.")


def main(argv: list[str]) -> None:
    del argv
    study = with_every_agent(read_study(STUDIES / "learning.toml"))
    run_study(study, flags.FLAGS.quick, _OUT.value)


if __name__ == "__main__":
    run_program(main)
