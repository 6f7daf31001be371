"""A description and a row of cells made by hand, for tests of what is written."""

import math

from experiments.papers.cells import NOT_RUN, OUT_OF_MEMORY, Cell, Filled, RowFacts
from experiments.papers.description import Description, Row

ROW = Row(
    "dense_small",
    "k40x2",
    published={"GPU": math.inf, "Expert": 3.0, "RL": 2.0, "Scotch": 9.0, "New": 1.5},
)
DESCRIPTION = Description(
    "try",
    "Try",
    "a paper",
    ("single", "random", "local_search", "list_schedule"),
    20,
    60.0,
    (0, 1, 2),
    (ROW,),
    published_as={"one_accelerator": "GPU", "single": "Expert", "random": "RL", "list_schedule": "Scotch"},
)
# random: mean 3, spread 1; local search fits with one of two seeds and was capped there
FILLED = Filled(
    ROW,
    RowFacts(ops=10, units=5, bound_s=1.0, one_accelerator_s=2.5),
    {
        "single": (Cell("OK", 2.5, 2**30, 3),),
        "random": (Cell("OK", 2.0, 2**30, 20), Cell("OK", 3.0, 2**31, 20), Cell("OK", 4.0, 2**30, 20)),
        "local_search": (Cell("OK", 2.0, 1, 7, capped=True), Cell(OUT_OF_MEMORY, math.inf)),
        "list_schedule": (Cell(NOT_RUN, message="no library; install it"),),
    },
)
