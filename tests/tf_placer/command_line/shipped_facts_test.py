"""The facts that come with tf_placer: those of what is there now, and no stale ones."""

import dataclasses

import pytest

from tf_placer import workloads
from tf_placer.command_line import shipped_facts
from tf_placer.command_line.list_workloads import row
from tf_placer.command_line.shipped_facts import FILE, ship, shipped
from tf_placer.command_line.workload_facts import facts_from, facts_of
from tf_placer.errors import InputError


def test_what_comes_is_what_is_found_now():
    assert facts_from(shipped("dense_small")) == facts_of(workloads.build("dense_small"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in workloads.names() if "_small" in name])
def test_what_comes_of_every_small_workload_is_what_is_found_now(name):
    assert facts_from(shipped(name)) == facts_of(workloads.build(name))


def test_no_row_is_stale():
    rows = shipped_facts._rows(FILE)
    assert [name for name in rows if name not in workloads.names() or shipped(name) is None] == []


def test_every_row_can_be_shown():
    names = list(shipped_facts._rows(FILE))
    assert "dense_small" in names
    for name in names:
        assert "-" not in row(name, facts_from(shipped(name)))


def test_other_settings_or_versions_make_a_row_stale(tmp_path, monkeypatch):
    file = tmp_path / "facts.json"
    ship({"dense_small": {"ops": 1}}, file)
    ship({"two_towers": {"ops": 2}}, file)
    assert (shipped("dense_small", file), shipped("two_towers", file)) == ({"ops": 1}, {"ops": 2})
    assert shipped("branches_small", file) is None
    settings = shipped_facts.settings_of
    with monkeypatch.context() as patch:
        patch.setattr(shipped_facts, "settings_of", lambda name: {**settings(name), "batch": 7})
        assert shipped("dense_small", file) is None
    for library in (shipped_facts.tf, shipped_facts.keras):
        with monkeypatch.context() as patch:
            patch.setattr(library, "__version__", "2.99.0")
            assert shipped("dense_small", file) is None


def test_rows_of_workloads_that_are_gone_go(tmp_path, monkeypatch):
    file = tmp_path / "facts.json"
    ship({"dense_small": {"ops": 1}, "two_towers": {"ops": 2}}, file)
    monkeypatch.setattr(shipped_facts.workloads, "names", lambda: ("two_towers",))
    ship({}, file)
    assert "dense_small" not in file.read_text()
    assert shipped("two_towers", file) == {"ops": 2}


@pytest.mark.parametrize("text", ["{", "[1]", '{"dense_small": 3}', '{"dense_small": {"facts": {}}}'])
def test_a_damaged_file_is_told(tmp_path, text):
    file = tmp_path / "facts.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"facts\.json .*; take it from the repository again"):
        shipped("dense_small", file)


def test_what_is_written_can_be_read_back(tmp_path):
    facts = facts_from(shipped("dense_small"))
    file = tmp_path / "facts.json"
    ship({"dense_small": dataclasses.asdict(facts)}, file)
    assert facts_from(shipped("dense_small", file)) == facts
