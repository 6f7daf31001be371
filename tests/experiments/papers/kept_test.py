"""A cell is read again if all that makes it is the same, and if it is whole."""

import dataclasses
import json

from experiments.papers.cells import Cell
from experiments.papers.kept import keep, made_of, read_kept
from tests.tf_placer.problem.small_problems import problem_of

CELL = Cell("OK", 2.5, 7, 20)
PROBLEM = problem_of([1], [])


def made(**changed):
    given = {"method": "hdp", "config": None, "seed": 0, "evaluations": 20, "cap_s": 60.0, **changed}
    return made_of(PROBLEM, **given)


def test_what_is_kept_is_read(tmp_path):
    path = tmp_path / "cell.json"
    assert read_kept(path, made(), Cell) is None
    keep(path, made(), CELL, search_s=3.0)
    assert read_kept(path, made(), Cell) == CELL
    assert json.loads(path.read_text())["search_s"] == 3.0
    assert [one.name for one in tmp_path.iterdir()] == ["cell.json"]


def test_another_search_is_not_this_one(tmp_path):
    path = tmp_path / "cell.json"
    keep(path, made(), CELL)
    others = (
        {"seed": 1},
        {"evaluations": 21},
        {"cap_s": 61.0},
        {"config": {"placements": 3}},
        {"method": "single"},
    )
    assert [read_kept(path, made(**other), Cell) for other in others] == [None] * len(others)
    # The version of the network is part of it.
    assert made()["versions"]
    assert read_kept(path, {**made(), "versions": {}}, Cell) is None


def test_weights_are_known_by_what_is_in_them(tmp_path):
    path = tmp_path / "weights.npz"
    of_file = [
        made(method="go", config={"weights": str(path)})["weights"] for text in "ab" if path.write_text(text)
    ]
    assert of_file[0] != of_file[1]
    # Those that ship are each method's own.
    shipped = {name: made(method=name)["weights"] for name in ("go", "go_zero_shot", "learned_list")}
    assert shipped["go"] == shipped["go_zero_shot"] != shipped["learned_list"]
    assert "weights" not in made(method="go", config={"weights": ""})


def test_a_damaged_file_or_one_of_other_fields_is_none(tmp_path):
    path, of_another_version = tmp_path / "cell.json", dataclasses.make_dataclass("Other", ["status"])
    keep(path, made(), CELL)
    assert read_kept(path, made(), of_another_version) is None
    path.write_text(path.read_text()[:-9])
    assert read_kept(path, made(), Cell) is None
    path.write_text("[]")
    assert read_kept(path, made(), Cell) is None
