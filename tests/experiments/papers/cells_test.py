"""Cells are searched once, kept one by one, and say what could not be placed."""

import dataclasses
import json
import math

import pytest

from experiments.papers import cells as cells_module
from experiments.papers.cells import NOT_RUN, OUT_OF_MEMORY, Cell, Filled, fill
from experiments.papers.description import Description, Row
from tf_placer.errors import InputError
from tf_placer.search.search import search
from tf_placer.search.shortest import NothingFits


@pytest.fixture
def description():
    rows = (Row("dense_small", "k40x2"), Row("branches_small", "k40x2"))
    return Description("try", "Try", "nobody", ("single", "random"), 20, 60.0, (0, 1), rows, ("single",))


@pytest.fixture
def searched(monkeypatch):
    """The (method, seed) of each search that is made."""
    made = []

    def counted(problem, method, budget_s, evaluations, seed, **more):
        made.append((method, seed))
        return search(problem, method, budget_s, evaluations, seed, **more)

    monkeypatch.setattr(cells_module, "search", counted)
    return made


def test_a_cell_is_what_search_finds_and_is_searched_once(description, searched, tmp_path):
    first = list(fill(description, tmp_path))
    # single once, random with each seed, in both rows
    assert searched == [("single", 0), ("random", 0), ("random", 1)] * 2
    assert first[0].cells["random"][1].evaluations == 20
    assert first[0].best_known_s == min(
        cell.runtime_s for of_one in first[0].cells.values() for cell in of_one
    )
    assert first[0].facts.bound_s <= first[0].best_known_s <= first[0].facts.one_accelerator_s
    assert list(fill(description, tmp_path)) == first
    assert len(searched) == 6


def test_another_budget_or_a_damaged_file_is_searched_anew(description, searched, tmp_path):
    list(fill(description, tmp_path))
    more = dataclasses.replace(description, evaluations=21)
    assert next(iter(fill(more, tmp_path))).cells["random"][0].evaluations == 21
    del searched[:]
    (tmp_path / "dense_small@k40x2@random@1.json").write_text("{")
    next(iter(fill(more, tmp_path)))
    assert searched == [("random", 1)]


def test_what_was_done_before_ctrl_c_is_kept_and_an_interrupted_search_is_not(
    description, tmp_path, monkeypatch
):
    def interrupted(problem, method, budget_s, evaluations, seed, **more):
        found = search(problem, method, budget_s, evaluations, seed, **more)
        return dataclasses.replace(found, interrupted=method == "random" and seed == 1)

    monkeypatch.setattr(cells_module, "search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(fill(description, tmp_path))
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["dense_small@k40x2@random@0.json", "dense_small@k40x2@single@0.json"]


def test_no_memory_and_no_library_are_told_apart(description, tmp_path, monkeypatch, capsys):
    def failing(problem, method, *more, **settings):
        raise NothingFits("too large") if method == "single" else InputError("no library; install it")

    monkeypatch.setattr(cells_module, "search", failing)
    filled = next(iter(fill(description, tmp_path)))
    (single,), (random, _) = filled.cells["single"], filled.cells["random"]
    assert (single.status, single.runtime_s) == (OUT_OF_MEMORY, math.inf)
    assert random.status == NOT_RUN and math.isnan(random.runtime_s)
    assert "no library; install it" in capsys.readouterr().out
    # The library may be there the next time.
    assert [path.name for path in tmp_path.iterdir()] == ["dense_small@k40x2@single@0.json"]
    assert json.loads(next(tmp_path.iterdir()).read_text())["cell"]["message"] == "too large"


def test_nothing_fits_at_all(description):
    cells = {"single": (Cell(OUT_OF_MEMORY, math.inf),), "random": (Cell(NOT_RUN),)}
    facts = cells_module.RowFacts(1, 1, 0.5, math.inf)
    assert Filled(description.rows[0], facts, cells).best_known_s == math.inf
