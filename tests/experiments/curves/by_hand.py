"""A study and a problem with its searches made by hand, for tests of what is written."""

import math

from experiments.curves.cells import Filled, SearchCell
from experiments.curves.study import Candidate, Study
from experiments.papers.cells import OUT_OF_MEMORY
from experiments.papers.description import Row

ROW = Row("dense_small", "k40x2", quick="dense_small")
# hdp ends with one seed below its first samples' best and random's, and with the other above both.
CELLS = {
    "hdp": (
        SearchCell(
            "OK", 0.6, 20, 4.0, updates=2, first_best_s=0.9, first_mean_s=1.2, last_mean_s=0.7,
            curve=[[10, 1.0, 0.9, 1.2], [20, 2.0, 0.6, 0.7]], entropy=[[10, 0.69], [20, 0.21]],
        ),
        SearchCell(
            "OK", 0.8, 20, 6.0, updates=2, first_best_s=0.9, first_mean_s=1.4, last_mean_s=1.1,
            curve=[[10, 1.0, 0.9, 1.4], [20, 2.0, 0.8, 1.1]], entropy=[[10, 0.67], [20, 0.61]],
        ),
    ),
    "random": (
        SearchCell("OK", 0.75, 20, 1.0, curve=[[10, 0.5, 0.8, 1.5], [20, 1.0, 0.75, 1.5]]),
        SearchCell("OK", 0.75, 20, 1.0, capped=True, curve=[[10, 0.5, 0.9, 1.5], [20, 1.0, 0.75, 1.5]]),
    ),
    "list_schedule": (SearchCell("OK", 0.8, 2, 0.1, curve=[[2, 0.1, 0.8, 0.8]]),),
    "cem": (SearchCell(OUT_OF_MEMORY, math.inf, message="too large"),) * 2,
}  # fmt: skip
FILLED = Filled(ROW, 10, 5, 0.5, "single", 1.0, CELLS)
STUDY = Study(
    name="try",
    title="Try",
    about="A try.",
    evaluations=20,
    cap_s=60.0,
    seeds=(100, 101),
    window=8,
    rows=(ROW,),
    candidates=tuple(Candidate(name, name) for name in CELLS),
    quick_evaluations=10,
    quick_seeds=1,
)
