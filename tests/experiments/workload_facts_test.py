"""The program that finds what workloads are: what is missing, a row at a time; the page shows what it wrote."""

import pathlib

import pytest

import experiments.workload_facts as program
from tf_placer import workloads
from tf_placer.command_line.shipped_facts import FILE, ship, shipped
from tf_placer.command_line.workload_facts import facts_from

NAMES = ["dense_small", "two_towers"]


@pytest.fixture
def found(monkeypatch):
    """The workloads that are built, which takes no time; what is found has their place in ``NAMES`` for ops."""
    built = []

    def find(name):
        built.append(name)
        facts = facts_from(shipped("dense_small"))
        return facts.__class__(**{**facts.__dict__, "ops": NAMES.index(name) + 1})

    monkeypatch.setattr(program, "_in_its_own_process", find)
    monkeypatch.setattr(program, "_WORKLOADS", type("Flag", (), {"value": NAMES}))
    monkeypatch.setattr(program, "_AGAIN", type("Flag", (), {"value": False}))
    return built


def test_what_is_missing_is_found_and_the_rest_is_kept(found, tmp_path, monkeypatch, capsys):
    file = tmp_path / "facts.json"
    ship({"two_towers": {**shipped("dense_small"), "ops": 77}}, file)
    program.main(tmp_path)
    assert found == ["dense_small"]
    header, line, dense, towers = capsys.readouterr().out.splitlines()
    assert header.startswith("| workload | ops |")
    assert line == "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    assert dense.startswith("| dense_small | 1 |")
    assert towers.startswith("| two_towers | 77 |")
    monkeypatch.setattr(program._AGAIN, "value", True)
    program.main(tmp_path)
    assert found == ["dense_small", *NAMES]
    assert shipped("two_towers", file)["ops"] == 2


def test_the_page_shows_what_ships(root=pathlib.Path(__file__).parents[2]):
    page = (root / "docs" / "results" / "workloads.md").read_text(encoding="utf8")
    assert f"\n\n{program.as_markdown(workloads.names(), FILE)}\n\n" in page
