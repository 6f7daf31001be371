"""Page of a study of curves: Markdown, CSVs, picture and verdicts."""

import csv
import dataclasses
import math
import re

from experiments.studies import curves_page as page
from experiments.studies.curves_page import as_markdown, curves_csv, draw, searches_csv
from tests.experiments.studies.by_hand import CELLS, FILLED, ROW, STUDY

(GOOD, BAD), RANDOM, (LIST,), (OOM, _) = CELLS.values()
PAGE = as_markdown(STUDY, [FILLED], "python -m experiments.try")


def row(name: str, number: int = 0) -> list[str]:
    """Cells of a line of the page that begins with a name."""
    lines = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in lines[number].strip("| ").split("|")][1:]


def test_the_page_says_what_every_page_of_results_says():
    command, seed, machine, date = PAGE.splitlines()[2:6]
    assert (command, seed) == ("- Command: `python -m experiments.try`", "- Seed: 100, 101")
    # What tests/docs/results_test.py asks of pages.
    assert re.fullmatch(r"- Machine: \d+ cores?, \d+ GiB.*GPU.*TensorFlow 2\.\d+, Python 3\.\d+", machine)
    assert re.fullmatch(r"- Date: 20\d\d-[01]\d-[0-3]\d", date)
    assert "| 1 is | single, 1 s |" in PAGE and "| no plan is below | 0.500 |" in PAGE


def test_what_was_found_by_hand():
    # Means of 0.6 and 0.8, of samples of 1.2 and 1.4, of 0.7 and 1.1.
    assert row("hdp") == ["0.700 (1.300, 0.900)"]
    assert row("random") == ["0.750 †"]
    assert row("cem") == ["OOM"]
    assert "cem, 2 of 2 seeds: too large." in PAGE


def test_verdicts_and_who_has_not_learned():
    # learned; last samples ahead of random's best; best ahead of random, list_schedule and cem
    assert row("hdp", 1) == ["1 of 2", "1 of 2", "1 of 2", "1 of 2", "2 of 2"]
    assert "**Has not learned** on dense_small on k40x2: hdp (1 of 2 seeds)" in PAGE
    learned = dataclasses.replace(FILLED, cells={**FILLED.cells, "hdp": FILLED.cells["hdp"][:1] * 2})
    assert "Has not learned" not in as_markdown(STUDY, [learned], "")


def test_a_page_that_is_not_complete_says_so():
    begun = dataclasses.replace(FILLED, cells={"hdp": FILLED.cells["hdp"]})
    assert "Not complete: 0 of 1 problems are done." in as_markdown(STUDY, [begun], "")
    assert "Not complete" not in PAGE


def test_a_question_stands_above_what_answers_it():
    asking = dataclasses.replace(STUDY.candidates[1], asks="Is chance enough?")
    study = dataclasses.replace(STUDY, candidates=(STUDY.candidates[0], asking), against="hdp")
    filled = dataclasses.replace(FILLED, cells={name: FILLED.cells[name] for name in ("hdp", "random")})
    text = as_markdown(study, [filled], "")
    assert text.index("| hdp |") < text.index("| *Is chance enough?* |  |") < text.index("| random |")
    assert "best ahead of hdp" in text


def test_files_for_programs():
    searches = list(csv.DictReader(searches_csv(STUDY, [FILLED]).splitlines()))
    assert len(searches) == 7  # two seeds each, and one of what draws nothing
    assert (searches[1]["seed"], searches[1]["last_mean_s"], searches[2]["last_mean_s"]) == ("101", "1.1", "")
    curves = list(csv.DictReader(curves_csv(STUDY, [FILLED]).splitlines()))
    assert len(curves) == 9
    assert (curves[1]["best_s"], curves[1]["mean_s"], curves[1]["entropy"]) == ("0.6", "0.7", "0.21")


def test_the_same_rows_give_the_same_picture():
    first = draw(STUDY, [FILLED])
    assert first.startswith(b"\x89PNG") and draw(STUDY, [FILLED]) == first
    begun = dataclasses.replace(FILLED, cells={"cem": FILLED.cells["cem"]})
    assert draw(STUDY, [begun]) != first
    assert ROW.name == "dense_small on k40x2"


def test_who_has_learned_draws_better_than_luck_began():
    assert [page.has_learned(cell) for cell in (GOOD, BAD, OOM)] == [True, False, False]
    # As good as the best of the first is not better.
    assert not page.has_learned(dataclasses.replace(GOOD, last_mean_s=GOOD.first_best_s))
    assert not page.has_learned(dataclasses.replace(GOOD, last_mean_s=math.nan))


def test_others_are_taken_after_as_many_evaluations():
    random = RANDOM[0]
    assert page.mean_is_ahead(GOOD, random) and not page.mean_is_ahead(BAD, random)
    assert page.best_is_ahead(GOOD, random) and not page.best_is_ahead(BAD, random)
    # After 10 it has 0.8 only: 0.78 would be ahead of that, and is not of 0.75.
    early = dataclasses.replace(BAD, evaluations=10, runtime_s=0.78)
    assert page.best_is_ahead(early, random)
    assert not page.best_is_ahead(dataclasses.replace(early, evaluations=20), random)


def test_a_tie_is_neither_ahead_nor_behind():
    assert not page.best_is_ahead(BAD, LIST) and page.is_not_behind(BAD, LIST)
    assert not page.is_not_behind(BAD, RANDOM[0])
    assert not page.is_not_behind(OOM, LIST), "what fits nowhere is behind everything"
    assert page.best_is_ahead(BAD, OOM)


def test_seeds_are_paired_and_one_search_stands_for_all_seeds():
    assert page.count(page.best_is_ahead, [GOOD, BAD], RANDOM) == (1, 2)
    assert page.count(page.best_is_ahead, [GOOD, BAD], [LIST]) == (1, 2)
    assert page.count(page.best_is_ahead, [GOOD, BAD], []) == (0, 0)
