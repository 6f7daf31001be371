"""Searches of a study are made once, kept one by one, and go on after Ctrl-C."""

import dataclasses

import pytest

from experiments.curves import cells as cells_module
from experiments.curves import page
from experiments.curves.cells import fill
from experiments.curves.study import Candidate
from tests.experiments.curves.by_hand import STUDY
from tests.tf_placer.agents.tiny_learner import TINY, TinyConfig
from tf_placer.search import methods
from tf_placer.search.search import search

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


def test_a_search_is_made_once_and_again_where_it_is_another(study, searched, tmp_path):
    *_, filled = fill(study, tmp_path)
    assert searched == [
        ("tiny", 100),
        ("tiny", 101),
        ("random", 100),
        ("random", 101),
        ("list_schedule", 100),
    ]
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


def test_ctrl_c_keeps_what_is_complete(study, monkeypatch, tmp_path, capsys):
    def interrupted(problem, method, *more, **settings):
        found = search(problem, method, *more, **settings)
        return dataclasses.replace(
            found, interrupted=bool(more) and method.name == "random" and more[2] == 101
        )

    monkeypatch.setattr(cells_module, "search", interrupted)
    monkeypatch.setattr(page, "draw", lambda study, rows: b"a picture takes a while")
    assert page.compute(study, tmp_path, "the command") == page.INTERRUPTED
    kept = sorted(path.name for path in (tmp_path / "cells" / "try").glob("*.json"))
    assert kept == [f"dense_small--k40x2--{name}.json" for name in ("random--100", "tiny--100", "tiny--101")]
    assert "Not complete: 0 of 1 problems are done." in (tmp_path / "try.md").read_text()
    monkeypatch.setattr(cells_module, "search", search)
    assert page.compute(study, tmp_path, "the command") == page.COMPLETE
    assert "Not complete" not in (tmp_path / "try.md").read_text()
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"try.md", "try.csv", "try_curves.csv", "try.png"}
    assert "run it again to go on" in capsys.readouterr().out


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
