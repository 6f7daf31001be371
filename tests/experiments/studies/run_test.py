"""A study from start to end: the same files each time, and one that was stopped goes on."""

import csv
import dataclasses
import io
import math
import re

import pytest
from absl import flags

from experiments.studies import cells, curves_page
from experiments.studies.cells import Cell
from experiments.studies.curves_page import curves_csv, searches_csv
from experiments.studies.study import Candidate, Row
from experiments.studies.table_page import as_csv, as_markdown, differences, draw, mean_s, seconds
from tests.experiments.studies.by_hand import CELLS, FILLED, PAPER, PAPER_FILLED, ROW, STUDY
from tests.experiments.without_flags import loaded
from tf_placer.search.search import search

run, FLAGS = loaded("study")


@pytest.fixture
def table():
    rows = (Row("dense_small", "k40x2", published={"GPU": 9.0, "RL": 0.1}), Row("branches_small", "k40x2"))
    candidates = (Candidate("single", "single"), Candidate("random", "random"))
    published = {"one_accelerator": "GPU", "random": "RL"}
    return dataclasses.replace(PAPER, seeds=(0, 1), rows=rows, candidates=candidates, published_as=published)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.medium
def test_two_runs_write_the_same_bytes(table, tmp_path):
    for name in ("one", "two"):
        assert run.compute(table, tmp_path / name, "the command") == run.COMPLETE
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert one == two and one.keys() == {"try.md", "try.csv", "try.png"}
    assert run.compute(table, tmp_path / "one", "the command") == 0 and files(tmp_path / "one") == two


def test_ctrl_c_keeps_the_rows_of_a_table_that_are_complete(table, tmp_path, monkeypatch, capsys):
    fill = run.fill

    def stopped(*arguments):
        for filled in fill(*arguments):
            yield filled
            if len(filled.cells) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(run, "fill", stopped)
    assert run.compute(table, tmp_path, "the command") == run.INTERRUPTED
    assert "run it again to go on" in capsys.readouterr().out
    assert b"Not complete: 1 of 2" in files(tmp_path)["try.md"]


def test_ctrl_c_keeps_what_is_complete_of_curves(monkeypatch, tmp_path, capsys):
    candidates = tuple(Candidate(name, name) for name in ("list_schedule", "random"))
    study = dataclasses.replace(STUDY, candidates=candidates)
    monkeypatch.setattr(curves_page, "draw", lambda study, rows: b"a picture takes a while")

    def interrupted(problem, spec, *more, **settings):
        found = search(problem, spec, *more, **settings)
        return dataclasses.replace(found, interrupted=bool(more) and (spec.name, more[2]) == ("random", 101))

    monkeypatch.setattr(cells, "search", interrupted)
    assert run.compute(study, tmp_path, "the command") == run.INTERRUPTED
    kept = sorted(path.name for path in (tmp_path / "cells" / "try").glob("*.json"))
    assert kept == [f"dense_small--k40x2--{name}.json" for name in ("list_schedule--100", "random--100")]
    assert "Not complete: 0 of 1 problems are done." in (tmp_path / "try.md").read_text()
    monkeypatch.setattr(cells, "search", search)
    assert run.compute(study, tmp_path, "the command") == run.COMPLETE
    assert "Not complete" not in (tmp_path / "try.md").read_text()
    assert files(tmp_path).keys() == {"try.md", "try.csv", "try_curves.csv", "try.png"}
    assert "run it again to go on" in capsys.readouterr().out


def test_a_study_with_fewer_seeds_says_so_in_its_command(monkeypatch):
    asked = []
    for name in FLAGS:
        FLAGS[name].unparse()
    FLAGS(["study", "--study=learning", "--seeds=2"])
    monkeypatch.setattr(flags, "FLAGS", FLAGS)
    monkeypatch.setattr(run, "compute", lambda study, out, command: asked.append((study.seeds, command)))
    run.main()
    assert asked == [((100, 101), "python -m experiments.study --study=learning --seeds=2")]


def lines(description=PAPER):
    return as_markdown(description, [PAPER_FILLED], "the command").splitlines()


def test_the_page_has_each_method_beside_the_paper():
    page = lines()
    # Best known is 2.0: 2.5 is 1.25 of it, the mean of random 1.5.
    assert "| dense_small on k40x2 | 10 | 2 | 1 | 1.250 | 1.250 | 1.500 | 1.000 † | - |" in page
    assert "| row | GPU | Expert | RL | Scotch | New |" in page
    assert "| dense_small on k40x2 | OOM / 2.5 | 3 / 2.5 | 2 / 3 | 9 / - | 1.5 |" in page
    assert "On dense_small on k40x2: local_search found nothing that fits with 1 of 2 seeds." in page
    assert "On dense_small on k40x2: list_schedule was not run: no library; install it." in page
    assert any(text.endswith("Why: not explained yet") for text in page)


def test_a_note_stands_below_what_it_explains_and_a_table_that_goes_on_says_so():
    other = dataclasses.replace(PAPER.rows[0], workload="two_towers")
    notes = {"dense_small on k40x2": "One device is enough."}
    noted = dataclasses.replace(PAPER, rows=(*PAPER.rows, other), notes=notes)
    page = lines(noted)
    assert any(text.endswith("Why: One device is enough.") for text in page)
    assert "Not complete: 1 of 2 rows are done." in page
    assert not any(line.startswith("Not complete") for line in lines())


def test_what_a_table_says_about_itself_stands_above_its_rows():
    page = lines(dataclasses.replace(PAPER, about="One row moved."))
    assert page.index("One row moved.") < page.index("## Step time over the best known")
    assert len(page) == len(lines()) + 2


def test_a_column_that_is_a_method_with_settings_says_so():
    variant = Candidate("local_search", "memetic", settings={"chains": 1, "levels": 2})
    study = dataclasses.replace(PAPER, candidates=(*PAPER.candidates[:2], variant, PAPER.candidates[3]))
    assert "- local_search: `memetic` with `chains=1 levels=2`" in lines(study)


def test_a_row_in_parts_is_told_beside_the_better_of_its_plans_of_the_whole():
    row = dataclasses.replace(PAPER.rows[0], parts=2)
    with_parts = {**PAPER_FILLED.cells, "parts": (Cell("OK", 1.2),)}
    in_parts = {"bound_in_parts_s": 0.75, "data_parallel_s": 1.5}
    filled = dataclasses.replace(PAPER_FILLED, row=row, cells=with_parts, **in_parts)
    candidates = (*PAPER.candidates, Candidate("parts", "auto", variant="in_parts"))
    study = dataclasses.replace(PAPER, rows=(row,), candidates=candidates)
    page = as_markdown(study, [filled], "the command").splitlines()
    # 1.2 over 1.5; local_search placed the whole in 2.
    assert "| dense_small on k40x2 | 2 | 2.5 | 1.5 | 2 | 1.2 | 0.800 | 0.75 |" in page
    assert "## Step time over the best known" not in page
    lines_of_csv = csv.DictReader(io.StringIO(as_csv(study, [filled])))
    bounds = {line["method"]: line["lower_bound_s"] for line in lines_of_csv}
    assert (bounds["parts"], bounds["data_parallel"], bounds["random"]) == ("0.75", "0.75", "1.0")
    assert "## The batch in parts" not in lines()


def test_the_csv_has_a_line_for_each_method_and_each_column_that_is_the_papers_alone():
    rows = list(csv.DictReader(io.StringIO(as_csv(PAPER, [PAPER_FILLED]))))
    assert [row["method"] for row in rows] == ["one_accelerator", *(one.name for one in PAPER.candidates), ""]
    random = rows[2]
    names = ("mean_s", "spread_s", "best_s", "of_best_known")
    assert [float(random[name]) for name in names] == [3, 1, 2, 1.5]
    assert (random["peak_bytes"], random["published_as"], random["published_s"]) == (str(2**31), "RL", "2.0")
    assert (rows[3]["capped"], rows[3]["fitting"], rows[3]["seeds"]) == ("True", "1", "2")
    assert (rows[4]["status"], rows[4]["mean_s"]) == ("NOT_RUN", "")
    assert rows[0]["published_s"] == "inf"
    assert (rows[5]["published_as"], float(rows[5]["published_s"])) == ("New", pytest.approx(1.5))


def test_pairs_that_are_turned_and_who_fits_on_one_side_only():
    # Here: one device fits (2.5), single 2.5 before random 3; there: OOM, Expert 3 behind RL 2. What was not run is
    # in no pair.
    assert differences(PAPER, PAPER_FILLED) == [
        "one_accelerator fits here; in the paper GPU does not fit",
        "single (2.5) is faster than random (3) here; in the paper RL (2) is faster than Expert (3)",
    ]


def test_the_same_order_and_a_tie_are_no_difference():
    for single_s in (3.5, 3.0, 2.99):  # behind, a tie, and nearer than 2 %
        cells = {**PAPER_FILLED.cells, "single": (Cell("OK", single_s),)}
        filled = dataclasses.replace(PAPER_FILLED, one_accelerator_s=math.inf, cells=cells)
        assert differences(PAPER, filled) == []


def test_the_mean_is_of_what_fits():
    assert mean_s((2.0, math.inf, 4.0)) == 3.0
    assert mean_s((math.inf,)) == math.inf
    assert math.isnan(mean_s((math.nan,)))
    assert [seconds(value) for value in (0.12345, math.inf, math.nan)] == ["0.1235", "OOM", "-"]


def test_the_same_rows_give_the_same_picture():
    first = draw(PAPER, [PAPER_FILLED])
    assert first.startswith(b"\x89PNG")
    assert draw(PAPER, [PAPER_FILLED]) == first
    assert draw(PAPER, [PAPER_FILLED, PAPER_FILLED]) != first


(GOOD, BAD), RANDOM, (LIST,), (OOM, _) = CELLS.values()
PAGE = curves_page.as_markdown(STUDY, [FILLED], "python -m experiments.try")


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
    assert "Has not learned" not in curves_page.as_markdown(STUDY, [learned], "")


def test_a_page_that_is_not_complete_says_so():
    begun = dataclasses.replace(FILLED, cells={"hdp": FILLED.cells["hdp"]})
    assert "Not complete: 0 of 1 problems are done." in curves_page.as_markdown(STUDY, [begun], "")
    assert "Not complete" not in PAGE


def test_a_question_stands_above_what_answers_it():
    asking = dataclasses.replace(STUDY.candidates[1], asks="Is chance enough?")
    study = dataclasses.replace(STUDY, candidates=(STUDY.candidates[0], asking), against="hdp")
    filled = dataclasses.replace(FILLED, cells={name: FILLED.cells[name] for name in ("hdp", "random")})
    text = curves_page.as_markdown(study, [filled], "")
    assert text.index("| hdp |") < text.index("| *Is chance enough?* |  |") < text.index("| random |")
    assert "best ahead of hdp" in text


def test_files_for_programs():
    searches = list(csv.DictReader(searches_csv(STUDY, [FILLED]).splitlines()))
    assert len(searches) == 7  # two seeds each, and one of what draws nothing
    assert (searches[1]["seed"], searches[1]["last_mean_s"], searches[2]["last_mean_s"]) == ("101", "1.1", "")
    curves = list(csv.DictReader(curves_csv(STUDY, [FILLED]).splitlines()))
    assert len(curves) == 9
    assert (curves[1]["best_s"], curves[1]["mean_s"], curves[1]["entropy"]) == ("0.6", "0.7", "0.21")


def test_the_same_rows_give_the_same_curves():
    first = curves_page.draw(STUDY, [FILLED])
    assert first.startswith(b"\x89PNG") and curves_page.draw(STUDY, [FILLED]) == first
    begun = dataclasses.replace(FILLED, cells={"cem": FILLED.cells["cem"]})
    assert curves_page.draw(STUDY, [begun]) != first
    assert ROW.name == "dense_small on k40x2"


def test_who_has_learned_draws_better_than_luck_began():
    assert [curves_page.has_learned(cell) for cell in (GOOD, BAD, OOM)] == [True, False, False]
    # As good as the best of the first is not better.
    assert not curves_page.has_learned(dataclasses.replace(GOOD, last_mean_s=GOOD.first_best_s))
    assert not curves_page.has_learned(dataclasses.replace(GOOD, last_mean_s=math.nan))


def test_others_are_taken_after_as_many_evaluations():
    random = RANDOM[0]
    assert curves_page.mean_is_ahead(GOOD, random) and not curves_page.mean_is_ahead(BAD, random)
    assert curves_page.best_is_ahead(GOOD, random) and not curves_page.best_is_ahead(BAD, random)
    # After 10 it has 0.8 only: 0.78 would be ahead of that, and is not of 0.75.
    early = dataclasses.replace(BAD, evaluations=10, runtime_s=0.78)
    assert curves_page.best_is_ahead(early, random)
    assert not curves_page.best_is_ahead(dataclasses.replace(early, evaluations=20), random)


def test_a_tie_is_neither_ahead_nor_behind():
    assert not curves_page.best_is_ahead(BAD, LIST) and curves_page.is_not_behind(BAD, LIST)
    assert not curves_page.is_not_behind(BAD, RANDOM[0])
    assert not curves_page.is_not_behind(OOM, LIST), "what fits nowhere is behind everything"
    assert curves_page.best_is_ahead(BAD, OOM)


def test_seeds_are_paired_and_one_search_stands_for_all_seeds():
    assert curves_page.count(curves_page.best_is_ahead, [GOOD, BAD], RANDOM) == (1, 2)
    assert curves_page.count(curves_page.best_is_ahead, [GOOD, BAD], [LIST]) == (1, 2)
    assert curves_page.count(curves_page.best_is_ahead, [GOOD, BAD], []) == (0, 0)
