"""The order of methods beside a paper's, on numbers made by hand."""

import dataclasses
import math

from experiments.papers.cells import Cell
from experiments.papers.order import differences, mean_s, seconds
from tests.experiments.papers.by_hand import DESCRIPTION, FILLED


def test_pairs_that_are_turned_and_who_fits_on_one_side_only():
    # Here: one device fits (2.5), single 2.5 before random 3; there: OOM, Expert 3 behind RL 2. What was not run is
    # in no pair.
    assert differences(DESCRIPTION, FILLED) == [
        "one_accelerator fits here; in the paper GPU does not fit",
        "single (2.5) is faster than random (3) here; in the paper RL (2) is faster than Expert (3)",
    ]


def test_the_same_order_and_a_tie_are_no_difference():
    facts = dataclasses.replace(FILLED.facts, one_accelerator_s=math.inf)
    for single_s in (3.5, 3.0, 2.99):  # behind, a tie, and nearer than 2 %
        cells = {**FILLED.cells, "single": (Cell("OK", single_s),)}
        assert differences(DESCRIPTION, dataclasses.replace(FILLED, facts=facts, cells=cells)) == []


def test_the_mean_is_of_what_fits():
    assert mean_s((2.0, math.inf, 4.0)) == 3.0
    assert mean_s((math.inf,)) == math.inf
    assert math.isnan(mean_s((math.nan,)))
    assert [seconds(value) for value in (0.12345, math.inf, math.nan)] == ["0.1235", "OOM", "-"]
