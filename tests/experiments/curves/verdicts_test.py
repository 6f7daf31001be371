"""What is said of searches, by hand."""

import dataclasses
import math

from experiments.curves import verdicts
from tests.experiments.curves.by_hand import CELLS

(GOOD, BAD), RANDOM, (LIST,), (OOM, _) = CELLS.values()


def test_who_has_learned_draws_better_than_luck_began():
    assert [verdicts.has_learned(cell) for cell in (GOOD, BAD, OOM)] == [True, False, False]
    # As good as the best of the first is not better.
    assert not verdicts.has_learned(dataclasses.replace(GOOD, last_mean_s=GOOD.first_best_s))
    assert not verdicts.has_learned(dataclasses.replace(GOOD, last_mean_s=math.nan))


def test_others_are_taken_after_as_many_evaluations():
    random = RANDOM[0]
    assert verdicts.mean_is_ahead(GOOD, random) and not verdicts.mean_is_ahead(BAD, random)
    assert verdicts.best_is_ahead(GOOD, random) and not verdicts.best_is_ahead(BAD, random)
    # After 10 it has 0.8 only: 0.78 would be ahead of that, and is not of 0.75.
    early = dataclasses.replace(BAD, evaluations=10, runtime_s=0.78)
    assert verdicts.best_is_ahead(early, random)
    assert not verdicts.best_is_ahead(dataclasses.replace(early, evaluations=20), random)


def test_a_tie_is_neither_ahead_nor_behind():
    assert not verdicts.best_is_ahead(BAD, LIST) and verdicts.is_not_behind(BAD, LIST)
    assert not verdicts.is_not_behind(BAD, RANDOM[0])
    assert not verdicts.is_not_behind(OOM, LIST), "what fits nowhere is behind everything"
    assert verdicts.best_is_ahead(BAD, OOM)


def test_seeds_are_paired_and_one_search_stands_for_all_seeds():
    assert verdicts.count(verdicts.best_is_ahead, [GOOD, BAD], RANDOM) == (1, 2)
    assert verdicts.count(verdicts.best_is_ahead, [GOOD, BAD], [LIST]) == (1, 2)
    assert verdicts.count(verdicts.best_is_ahead, [GOOD, BAD], []) == (0, 0)
