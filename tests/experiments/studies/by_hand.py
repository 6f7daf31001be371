"""Studies and problems with their searches made by hand, for tests of what is written."""

import math

from experiments.studies.cells import NOT_RUN, OUT_OF_MEMORY, Cell, Filled
from experiments.studies.study import Candidate, Row, Study

ROW = Row("dense_small", "k40x2", quick="dense_small")
# hdp ends with one seed below its first samples' best and random's, and with the other above both.
CELLS = {
    "hdp": (
        Cell(
            "OK", 0.6, evaluations=20, search_s=4.0, updates=2, first_best_s=0.9, first_mean_s=1.2, last_mean_s=0.7,
            curve=[[10, 1.0, 0.9, 1.2], [20, 2.0, 0.6, 0.7]], entropy=[[10, 0.69], [20, 0.21]],
        ),
        Cell(
            "OK", 0.8, evaluations=20, search_s=6.0, updates=2, first_best_s=0.9, first_mean_s=1.4, last_mean_s=1.1,
            curve=[[10, 1.0, 0.9, 1.4], [20, 2.0, 0.8, 1.1]], entropy=[[10, 0.67], [20, 0.61]],
        ),
    ),
    "random": (
        Cell(
            "OK", 0.75, evaluations=20, search_s=1.0, curve=[[10, 0.5, 0.8, 1.5], [20, 1.0, 0.75, 1.5]]),
        Cell(
            "OK", 0.75, evaluations=20, search_s=1.0, capped=True, curve=[[10, 0.5, 0.9, 1.5], [20, 1.0, 0.75, 1.5]]),
    ),
    "list_schedule": (Cell(
            "OK", 0.8, evaluations=2, search_s=0.1, curve=[[2, 0.1, 0.8, 0.8]]),),
    "cem": (Cell(OUT_OF_MEMORY, math.inf, message="too large"),) * 2,
}  # fmt: skip
FILLED = Filled(ROW, 10, 5, 0.5, CELLS, reference="single", reference_s=1.0)
STUDY = Study(
    name="try", title="Try", about="A try.", evaluations=20, cap_s=60.0, seeds=(100, 101), window=8, rows=(ROW,),
    candidates=tuple(Candidate(name, name) for name in CELLS), quick_evaluations=10, quick_seeds=1,
)  # fmt: skip

PAPER_ROW = Row(
    "dense_small", "k40x2", published={"GPU": math.inf, "Expert": 3.0, "RL": 2.0, "Scotch": 9.0, "New": 1.5}
)
PAPER_CELLS = {
    "single": (Cell("OK", 2.5, 2**30, 3),),
    "random": (Cell("OK", 2.0, 2**30, 20), Cell("OK", 3.0, 2**31, 20), Cell("OK", 4.0, 2**30, 20)),
    "local_search": (Cell("OK", 2.0, 1, 7, capped=True), Cell(OUT_OF_MEMORY, math.inf)),
    "list_schedule": (Cell(NOT_RUN, message="no library; install it"),),
}
PAPER = Study(
    name="try", title="Try", source="a paper", evaluations=20, cap_s=60.0, seeds=(0, 1, 2), rows=(PAPER_ROW,),
    candidates=tuple(Candidate(name, name) for name in PAPER_CELLS),
    published_as={"one_accelerator": "GPU", "single": "Expert", "random": "RL", "list_schedule": "Scotch"},
)  # fmt: skip
# random: mean 3, spread 1; local search fits with one of two seeds and was capped there
PAPER_FILLED = Filled(PAPER_ROW, 10, 5, 1.0, PAPER_CELLS, one_accelerator_s=2.5)
