"""Does each agent learn? Five seeds of every learned method, beside what learns nothing, at equal evaluations.

    python -m experiments.learning [--quick] [--out=docs/results]

Writes learning.md, learning.csv, learning_curves.csv and learning.png, and one file a search in OUT/cells: run again,
it goes on where it was killed.
"""

from __future__ import annotations

import dataclasses

from absl import flags

from experiments.curves.run_study import FULL, QUICK, STUDIES, run_study
from experiments.curves.study import Candidate, Study, read_study
from experiments.main_program import run_program
from tf_placer.search import methods
from tf_placer.search.spec import Kind, Role

_OUT = flags.DEFINE_string("out", None, f"Folder for the results; {FULL}, or {QUICK} with --quick.")
flags.DEFINE_bool("quick", False, "One small program, a few updates, two seeds.")


def with_every_agent(study: Study) -> Study:
    """Every learned method of the table, then who is searched with beside them, then what the study has itself."""
    learned = [name for name in methods.names() if methods.find(name).kind == Kind.LEARNED]
    beside = [spec.name for role in (Role.CONTROL, Role.PLAIN, Role.BESIDE) for spec in methods.having(role)]
    candidates = [Candidate(name, name) for name in dict.fromkeys([*learned, *beside])]
    return dataclasses.replace(study, candidates=(*candidates, *study.candidates))


def main(argv: list[str]) -> None:
    del argv
    study = with_every_agent(read_study(STUDIES / "learning.toml"))
    run_study(study, flags.FLAGS.quick, _OUT.value)


if __name__ == "__main__":
    run_program(main)
