"""The table of workloads, and the facts in it: found once, kept, and those that come with tf_placer never stale."""

import dataclasses
import io

import keras
import pytest
import rich.console
import tensorflow as tf

from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line import list_workloads as find_facts
from tf_placer.command_line.list_workloads import facts_of, found_settings, list_workloads, row, ship
from tf_placer.problem.analytic_problem import analytic_problem
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


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty one, and no facts that came."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(known, "FACTS", tmp_path / "facts.json")
    return tmp_path / "tf_placer" / "workload_facts"


def listed(*find):
    out = io.StringIO()
    console = rich.console.Console(file=out, width=40)
    find_facts.find_missing(find, rich.console.Console(file=io.StringIO()))
    list_workloads(console)
    return {line.split()[0]: line.split()[1:] for line in out.getvalue().splitlines()}


def test_nothing_is_built_that_was_not_asked_for(monkeypatch, cache):
    monkeypatch.setattr(find_facts.workloads, "build", None)
    rows = listed()
    assert set(workloads.names()) <= set(rows)
    assert set(rows["dense_small"]) == {"-"}
    assert not cache.exists()


@pytest.mark.medium
def test_facts_are_found_once(monkeypatch, cache):
    rows = listed("dense_small")
    # 32 x 32 and 32 three times, 32 x 10 and 10: 3 x 1,056 + 330 numbers.
    item = workloads.build("dense_small")
    units = analytic_problem(item, Cluster.preset("p100x1")).num_units
    assert rows["dense_small"][:3] == [str(item.index.num_ops), str(units), "3.5K"]
    assert rows["dense_small"][-2:] == ["(fits", "all)"]
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(find_facts.workloads, "build", None)
    assert listed("dense_small") == {**listed(), "Times": listed("dense_small")["Times"]}


@pytest.mark.medium
def test_what_is_damaged_is_found_again(cache):
    before = listed("dense_small")["dense_small"]
    next(cache.iterdir()).write_text("{")
    assert set(listed()["dense_small"]) == {"-"}
    assert listed("dense_small")["dense_small"] == before


def test_what_came_is_listed_and_what_is_asked_for_is_found_anew(monkeypatch, cache):
    came = WorkloadFacts(1234, 2, 3, 4.0, 5.0, 6, 7, ())
    find_facts.ship({"dense_small": came}, known.FACTS)
    assert listed()["dense_small"][0] == "1,234"
    assert not cache.exists()
    monkeypatch.setattr(find_facts.workloads, "build", lambda name: name)
    monkeypatch.setattr(find_facts, "facts_of", lambda item: dataclasses.replace(came, ops=5678))
    assert listed("dense_small")["dense_small"][0] == "5,678"
    assert listed()["dense_small"][0] == "5,678"  # what this code found comes before what came


def test_machines_of_which_no_device_holds_a_step(monkeypatch, cache):
    preset = Cluster.preset

    def small_k40(name):
        """K40s with room for 100 bytes."""
        cluster = preset(name)
        size = [100 if device.model == "k40" else device.memory_bytes for device in cluster.devices]
        devices = (dataclasses.replace(d, memory_bytes=s) for d, s in zip(cluster.devices, size, strict=True))
        return dataclasses.replace(cluster, devices=tuple(devices))

    item = workloads.build("dense_small", width=4)
    assert find_facts.facts_of(item).does_not_fit == ()
    monkeypatch.setattr(find_facts.Cluster, "preset", small_k40)
    facts = find_facts.facts_of(item)
    assert facts.does_not_fit == ("k40x2", "k40x4", "k40x8")
    # The momentum of each number is not counted.
    assert facts.parameters == (4 * 4 + 4) * 3 + 4 * 10 + 10


def test_an_unknown_name_is_told_before_anything_is_built(monkeypatch, cache):
    monkeypatch.setattr(find_facts.workloads, "build", None)
    with pytest.raises(InputError, match="no workload is called 'dense_smal'; did you mean 'dense_small'"):
        listed("dense_small", "dense_smal")
