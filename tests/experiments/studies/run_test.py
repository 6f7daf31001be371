"""A study from start to end: the same files each time, and one that was stopped goes on."""

import dataclasses

import pytest
from absl import flags

from experiments.studies import cells, curves_page
from experiments.studies.study import Candidate, Row
from tests.experiments.studies.by_hand import PAPER, STUDY
from tests.experiments.without_flags import loaded
from tf_placer.search.search import search

run, FLAGS = loaded("study")


@pytest.fixture
def table():
    rows = (Row("dense_small", "k40x2", published={"GPU": 9.0, "RL": 0.1}), Row("branches_small", "k40x2"))
    candidates = (Candidate("single", "single"), Candidate("random", "random"))
    published_as = {"one_accelerator": "GPU", "random": "RL"}
    return dataclasses.replace(
        PAPER, seeds=(0, 1), rows=rows, candidates=candidates, published_as=published_as
    )


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.medium
def test_two_runs_write_the_same_bytes(table, tmp_path):
    for name in ("one", "two"):
        assert run.compute(table, tmp_path / name, "the command") == run.COMPLETE
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert one == two and one.keys() == {"try.md", "try.csv", "try.png"}
    assert run.compute(table, tmp_path / "one", "the command") == 0 and files(tmp_path / "one") == two


def interrupted_at(monkeypatch, method, seed):
    """The search of a method with a seed is stopped by Ctrl-C."""

    def interrupted(problem, spec, *more, **settings):
        found = search(problem, spec, *more, **settings)
        is_it = bool(more) and spec.name == method and more[2] == seed
        return dataclasses.replace(found, interrupted=is_it)

    monkeypatch.setattr(cells, "search", interrupted)


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
    study = dataclasses.replace(
        STUDY, candidates=tuple(Candidate(name, name) for name in ("list_schedule", "random"))
    )
    monkeypatch.setattr(curves_page, "draw", lambda study, rows: b"a picture takes a while")
    interrupted_at(monkeypatch, "random", 101)
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
    run.main([])
    assert asked == [((100, 101), "python -m experiments.study --study=learning --seeds=2")]
