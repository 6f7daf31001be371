"""Learning curves of every learned method beside methods that do not learn: five seeds, equal evaluations.

    python -m experiments.learning [--quick] [--out=docs/results]

Writes a page, a CSV of searches, one of their curves and a picture, and one file a search in OUT/cells: run again, it
goes on where it was killed.
"""

from __future__ import annotations

from experiments.main_program import run_program
from experiments.studies.run import program

main = program(__name__, "learning")

if __name__ == "__main__":
    run_program(main)
