"""Searches of a study are made once, kept one by one, watched, and say what could not be placed."""

import dataclasses
import json
import math

import numpy as np
import pytest

from experiments.studies import cells as cells_module
from experiments.studies import table_page
from experiments.studies.cells import NOT_RUN, OUT_OF_MEMORY, Cell, Filled, Point, Seen, fill
from experiments.studies.study import Candidate, Row
from tests.experiments.studies.by_hand import PAPER, STUDY
from tests.tf_placer.agents.tiny_learner import TINY, TinyConfig
from tests.tf_placer.problem.small_problems import branches_problem, problem_of
from tf_placer.base.arguments import InputError
from tf_placer.search import methods
from tf_placer.search.recorder import HistoryEntry
from tf_placer.search.search import NothingFits, search

# Not the host: the tiny learner knows devices 0 and 1 alone.
LEARNER = dataclasses.replace(TINY, default=TinyConfig(samples=8))


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setitem(methods._METHODS, "tiny", LEARNER)
    names = ("tiny", "random", "list_schedule")
    return dataclasses.replace(STUDY, candidates=tuple(Candidate(name, name) for name in names))


@pytest.fixture
def searched(monkeypatch):
    """The (method, seed) of each search for a cell that is made."""
    made = []

    def counted(problem, method, *more, **settings):
        if more:
            made.append((method.name, more[2]))
        return search(problem, method, *more, **settings)

    monkeypatch.setattr(cells_module, "search", counted)
    return made


@pytest.mark.medium
def test_a_search_is_made_once_and_again_where_it_is_another(study, searched, tmp_path):
    *_, filled = fill(study, tmp_path)
    assert searched == [
        ("tiny", 100), ("tiny", 101), ("random", 100), ("random", 101), ("list_schedule", 100),
    ]  # fmt: skip
    tiny, random = filled.cells["tiny"][0], filled.cells["random"][0]
    # 8, 8 and 4 samples
    assert (tiny.updates, tiny.evaluations, random.updates) == (3, 20, 0)
    assert [point.evaluations for point in tiny.points] == [8, 16, 20]
    assert tiny.runtime_s == tiny.points[-1].best_s and len(tiny.entropy) == 3
    *_, again = fill(study, tmp_path)
    # Not ==: what is not known is equal to nothing.
    assert repr(again) == repr(filled) and len(searched) == 5
    *_, _ = fill(dataclasses.replace(study, window=9), tmp_path)
    assert len(searched) == 10


def test_settings_of_units_are_as_many_as_the_problem_has(study, tmp_path):
    one = dataclasses.replace(study.candidates[0], of_units=("samples",))
    *_, filled = fill(dataclasses.replace(study, candidates=(one,), evaluations=400), tmp_path)
    assert filled.cells["tiny"][0].points[0].evaluations == filled.units


def test_another_variant_of_the_problem_begins_at_the_same_plan(study, monkeypatch, tmp_path):
    monkeypatch.setitem(methods._METHODS, "tiny", dataclasses.replace(LEARNER, uses_start=True))
    one = dataclasses.replace(study.candidates[0], variant="colocation_groups")
    *_, filled = fill(dataclasses.replace(study, candidates=(one,)), tmp_path)
    assert [cell.status for cell in filled.cells["tiny"]] == ["OK", "OK"]
    # The start is one of the 20, and not of what was drawn.
    assert filled.cells["tiny"][0].points[-1].evaluations == 19


@pytest.fixture
def table():
    rows = (Row("dense_small", "k40x2"), Row("branches_small", "k40x2"))
    candidates = (Candidate("single", "single", once=True), Candidate("random", "random", once=False))
    return dataclasses.replace(PAPER, seeds=(0, 1), rows=rows, candidates=candidates, published_as={})


def rows_of(table, folder):
    """The rows as they are complete."""
    return (one for one in fill(table, folder) if len(one.cells) == len(table.candidates))


def test_a_cell_is_what_search_finds_and_is_searched_once(table, searched, tmp_path):
    first = list(rows_of(table, tmp_path))
    # single once, random with each seed, in both rows
    assert searched == [("single", 0), ("random", 0), ("random", 1)] * 2
    assert first[0].cells["random"][1].evaluations == 20
    cells = [cell for of_one in first[0].cells.values() for cell in of_one]
    assert first[0].best_known_s == min(cell.runtime_s for cell in cells)
    assert first[0].bound_s <= first[0].best_known_s <= first[0].one_accelerator_s
    assert repr(list(rows_of(table, tmp_path))) == repr(first)
    assert len(searched) == 6


def test_clusters_of_rules_are_tried_at_the_end_and_searches_begin_where_the_table_says(table, tmp_path):
    candidates = (
        Candidate("tf_default", "tf_default"),
        Candidate("fused", "tf_default", fused=True),
        Candidate("searched", "local_search", order="heft_rank"),
    )
    rows = (Row("dense_small", "p100x2"),)
    told = dataclasses.replace(table, rows=rows, candidates=candidates, seeds=(0,), evaluations=9)
    begun = dataclasses.replace(told, begins="tf_default", against="tf_default")
    (filled,) = rows_of(begun, tmp_path)
    plain, fused, searched = (filled.cells[one.name][0] for one in candidates)
    # Launches are a large part of this step.
    assert fused.runtime_s < plain.runtime_s and fused.evaluations > plain.evaluations
    assert searched.runtime_s <= plain.runtime_s
    shares = table_page.as_markdown(begun, [filled], "the command")
    assert "## Step time over tf_default" in shares
    assert "| tf_default | 1.000 | 1.000 | 0.0 % |" in shares.splitlines()
    assert "- fused: `tf_default` with the clusters of rules" in shares.splitlines()
    assert "- searched: `local_search` with order `heft_rank`" in shares.splitlines()


@pytest.mark.medium
def test_parts_are_searched_from_data_parallel_or_the_best_whole_plan(table, searched, tmp_path):
    in_parts = Candidate("parts", "local_search", variant="in_parts")
    rows = (Row("dense_small", "k40x2", parts=2),)
    split = dataclasses.replace(table, rows=rows, candidates=(*table.candidates, in_parts), evaluations=1)
    (filled,) = rows_of(split, tmp_path)
    assert filled.bound_in_parts_s <= filled.data_parallel_s
    assert filled.times_s("data_parallel") == (filled.data_parallel_s,)
    # One plan is tried, the start.
    assert filled.cells["parts"][0].runtime_s <= filled.data_parallel_s
    assert filled.best_known_s <= filled.data_parallel_s
    assert filled.cells["random"][0].devices and not filled.cells["parts"][0].devices
    assert repr(list(rows_of(split, tmp_path))) == repr([filled])
    whole = next(iter(rows_of(table, tmp_path / "..")))
    assert math.isnan(whole.bound_in_parts_s) and not whole.cells["random"][0].devices


def test_a_table_is_complete_where_a_candidate_is_left_out_of_a_row(table, tmp_path):
    only = dataclasses.replace(table.candidates[1], only=("branches_small on k40x2",))
    some = dataclasses.replace(table, candidates=(table.candidates[0], only))
    *_, last = fill(some, tmp_path)
    first = next(fill(some, tmp_path))
    table_page.write(some, [first, last], tmp_path, "the command")
    assert "Not complete" not in (tmp_path / "try.md").read_text()
    assert " | 1.000 | - |" in (tmp_path / "try.md").read_text()


@pytest.mark.medium
def test_another_budget_or_a_damaged_file_is_searched_anew(table, searched, tmp_path):
    list(rows_of(table, tmp_path))
    more = dataclasses.replace(table, evaluations=21)
    assert next(iter(rows_of(more, tmp_path))).cells["random"][0].evaluations == 21
    del searched[:]
    (tmp_path / "dense_small--k40x2--random--1.json").write_text("{")
    next(iter(rows_of(more, tmp_path)))
    assert searched == [("random", 1)]


def test_what_was_done_before_ctrl_c_is_kept_and_an_interrupted_search_is_not(table, tmp_path, monkeypatch):
    def interrupted(problem, method, budget_s, evaluations, seed, **more):
        found = search(problem, method, budget_s, evaluations, seed, **more)
        return dataclasses.replace(found, interrupted=method.name == "random" and seed == 1)

    monkeypatch.setattr(cells_module, "search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(rows_of(table, tmp_path))
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["dense_small--k40x2--random--0.json", "dense_small--k40x2--single--0.json"]


def test_no_memory_and_no_library_are_told_apart(table, tmp_path, monkeypatch, capsys):
    def failing(problem, method, *more, **settings):
        raise NothingFits("too large") if method.name == "single" else InputError("no library; install it")

    monkeypatch.setattr(cells_module, "search", failing)
    filled = next(iter(rows_of(table, tmp_path)))
    (single,), (random, _) = filled.cells["single"], filled.cells["random"]
    assert (single.status, single.runtime_s) == (OUT_OF_MEMORY, math.inf)
    assert random.status == NOT_RUN and math.isnan(random.runtime_s)
    assert "no library; install it" in capsys.readouterr().out
    # The library may be there the next time.
    assert [path.name for path in tmp_path.iterdir()] == ["dense_small--k40x2--single--0.json"]
    assert json.loads(next(tmp_path.iterdir()).read_text())["cell"]["message"] == "too large"


def test_nothing_fits_at_all(table):
    cells = {"single": (Cell(OUT_OF_MEMORY, math.inf),), "random": (Cell(NOT_RUN),)}
    assert Filled(table.rows[0], 1, 1, 0.5, cells, one_accelerator_s=math.inf).best_known_s == math.inf


CELL = Cell("OK", 2.5, 7, 20, 3.0)
PROBLEM = problem_of([1], [])


def made(**changed):
    given = {"method": "hdp", "config": None, "seed": 0, "evaluations": 20, "cap_s": 60.0, **changed}
    return cells_module.made_of(PROBLEM, **given)


def test_what_is_kept_is_read_for_the_same_search_and_no_other(tmp_path):
    path = tmp_path / "cell.json"
    assert cells_module.read_kept(path, made()) is None
    cells_module.keep(path, made(), CELL)
    # Not ==: what is not known is equal to nothing.
    assert repr(cells_module.read_kept(path, made())) == repr(CELL)
    assert [one.name for one in tmp_path.iterdir()] == ["cell.json"]
    others = {"seed": 1, "evaluations": 21, "cap_s": 61.0, "config": {"placements": 3}, "method": "single"}
    for name, value in others.items():
        assert cells_module.read_kept(path, made(**{name: value})) is None
    # The version of the network is part of it.
    assert made()["versions"]
    assert cells_module.read_kept(path, {**made(), "versions": {}}) is None
    whole = path.read_text()
    for damaged in (whole[:-9], "[]", whole.replace('"peak_bytes"', '"peak"')):
        path.write_text(damaged)
        assert cells_module.read_kept(path, made()) is None


def test_weights_are_known_by_what_is_in_them(tmp_path):
    path = tmp_path / "weights.npz"
    go = {"method": "go", "config": {"weights": str(path)}}
    of_file = [made(**go)["weights"] for text in "ab" if path.write_text(text)]
    assert of_file[0] != of_file[1]
    # Those that ship are each method's own.
    shipped = {name: made(method=name)["weights"] for name in ("go", "go_zero_shot", "learned_list")}
    assert shipped["go"] == shipped["go_zero_shot"] != shipped["learned_list"]
    assert "weights" not in made(method="go", config={"weights": ""})


RAN = np.array([True, True, True, False])


def test_rounds_and_first_and_last_samples_by_hand():
    # Four, four and two samples; the last update had four, of which two are beyond the budget.
    seen = Seen(most=10)
    seen.add(np.array([9.0, 5.0, 4.0, 0.0]), RAN)
    seen.add(np.array([3.0, 8.0, 0.0, 0.0]), np.array([True, True, False, False]))
    seen.add(np.array([7.0, 6.0, 1.0, 1.0]), RAN)
    assert (seen.updates, seen.samples, seen.best_s) == (3, 10, 3.0)
    told = [(entry.evaluations, entry.best_s, entry.mean_s, entry.failed) for entry in seen.history]
    assert told == [(4, 4.0, 6.0, 1), (8, 3.0, 5.5, 2), (10, 3.0, 6.5, 0)]
    # (9 + 5 + 4 + 3 + 8) / 5, and (3 + 8 + 7 + 6) / 4
    assert [seen.first(count) for count in (4, 5)] == [(4.0, 6.0), (3.0, 5.8)]
    last = [(6.0, 6.5), (3.0, 6.0), (3.0, 42 / 7)]
    assert [seen.last(count) for count in (2, 3, 99)] == last


def test_nothing_that_ran_is_no_best():
    seen = Seen()
    assert math.isnan(seen.best_s)
    seen.add(np.zeros(2), np.zeros(2, bool))
    assert math.isnan(seen.best_s) and seen.first(1)[0] == math.inf and math.isnan(seen.last(1)[1])


def test_a_search_that_is_watched_is_the_search():
    problem, config = branches_problem(2, 3), TinyConfig(samples=8)
    plain = search(problem, TINY, budget_evaluations=44, seed=1, config=config)
    spec, seen = cells_module.observed(TINY, 44)
    watched = search(problem, spec, budget_evaluations=44, seed=1, config=config)
    assert watched.placement.device_of_unit.tolist() == plain.placement.device_of_unit.tolist()
    seen_rounds, rounds = (
        [(entry.evaluations, entry.best_s, entry.mean_s) for entry in history]
        for history in (seen.history, watched.history)
    )
    np.testing.assert_allclose(seen_rounds, rounds)
    # Each update up to the sixth is asked; a table that is sure of nothing yet knows log 2 of each unit.
    assert [samples for samples, _ in seen.entropy] == [8, 16, 24, 32, 40, 44]
    assert seen.entropy[-1][1] < seen.entropy[0][1] < math.log(2)


def test_points_are_as_far_apart_as_can_be_and_means_count_what_ran():
    nan = math.nan
    entries = [
        (10, 1.0, nan, nan, 10), (20, 2.0, 4.0, 5.0, 5), (30, 3.0, 3.0, 8.0, 0), (40, 4.0, 3.0, 6.0, 0),
        (45, 5.0, 2.0, 2.0, 4),
    ]  # fmt: skip
    history = [HistoryEntry(*numbers, failed=failed) for *numbers, failed in entries]
    # A point at each 22.5 of 45: after the third round, and the end. (5 * 5 + 10 * 8) / 15; (10 * 6 + 1 * 2) / 11
    assert cells_module.curve_of(history, 2) == [Point(30, 3.0, 3.0, 7.0), Point(45, 5.0, 2.0, 62 / 11)]
    assert [point.evaluations for point in cells_module.curve_of(history, 100)] == [10, 20, 30, 40, 45]
    assert cells_module.curve_of([], 3) == []


def test_the_best_at_a_count_never_flatters_who_is_compared_with_it():
    cell = Cell("OK", curve=[[10, 1.0, math.nan, 5.0], [20, 2.0, 4.0, 5.0], [30, 3.0, 3.0, 5.0]])
    assert [cell.best_at(count) for count in (5, 10, 11, 20, 21, 30, 99)] == [
        math.inf, math.inf, 4, 4, 3, 3, 3,
    ]  # fmt: skip
    assert Cell("OK").best_at(5) == math.inf
