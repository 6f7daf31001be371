"""The facts that come with tf_placer: those of what is there now, and no stale ones."""

import dataclasses

import keras
import pytest
import tensorflow as tf

from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.command_line import list_workloads as find_facts
from tf_placer.command_line.list_workloads import facts_of, found_settings, row, ship
from tf_placer.workloads import known
from tf_placer.workloads.known import FACTS, WorkloadFacts, shipped, shipped_rows, versions

ONE = WorkloadFacts(1, 2, 3, 4.0, 5.0, 6, 7, ("k40x2",))
TWO = dataclasses.replace(ONE, ops=2)


def test_what_comes_is_what_is_found_now():
    assert shipped("dense_small") == facts_of(workloads.build("dense_small"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in workloads.names() if "_small" in name])
def test_what_comes_of_every_small_workload_is_what_is_found_now(name):
    assert shipped(name) == facts_of(workloads.build(name))


def test_no_row_is_stale():
    rows = shipped_rows(FACTS)
    assert set(rows) == set(workloads.names())
    now = {name: {**found_settings(name), **versions()} for name in rows}
    assert {name: row["found_with"] for name, row in rows.items()} == now


def test_versions_are_known_without_the_libraries():
    assert versions() == {
        name: ".".join(library.__version__.split(".")[:2])
        for name, library in (("tensorflow", tf), ("keras", keras))
    }


def test_every_row_can_be_shown():
    names = list(shipped_rows(FACTS))
    assert "dense_small" in names
    for name in names:
        assert "-" not in row(name, shipped(name))


def test_other_versions_make_a_row_stale(tmp_path, monkeypatch):
    file = tmp_path / "facts.json"
    ship({"dense_small": ONE}, file)
    ship({"two_towers": TWO}, file)
    assert (shipped("dense_small", file), shipped("two_towers", file)) == (ONE, TWO)
    assert shipped("branches_small", file) is None
    now = versions()
    for library in now:
        with monkeypatch.context() as patch:
            patch.setattr(known, "versions", lambda library=library: {**now, library: "2.99"})
            assert shipped("dense_small", file) is None


def test_rows_of_workloads_that_are_gone_go(tmp_path, monkeypatch):
    file = tmp_path / "facts.json"
    ship({"dense_small": ONE, "two_towers": TWO}, file)
    monkeypatch.setattr(find_facts.workloads, "names", lambda: ("two_towers",))
    ship({}, file)
    assert "dense_small" not in file.read_text()
    assert shipped("two_towers", file) == TWO


@pytest.mark.parametrize("text", ["{", "[1]", '{"dense_small": 3}', '{"dense_small": {"facts": {}}}'])
def test_a_damaged_file_is_told(tmp_path, text):
    file = tmp_path / "facts.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"facts\.json .*; take it from the repository again"):
        shipped("dense_small", file)


def test_what_is_written_can_be_read_back(tmp_path):
    facts = shipped("dense_small")
    file = tmp_path / "facts.json"
    ship({"dense_small": facts}, file)
    assert shipped("dense_small", file) == facts
