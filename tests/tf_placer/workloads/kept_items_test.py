"""Workloads on disk: traced once, found again by what they are made of, never in the way."""

import logging
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_placer import workloads
from tf_placer.base import files as store
from tf_placer.base.arguments import InputError
from tf_placer.base.files import exclusively
from tf_placer.graph.item import Item
from tf_placer.workloads import registry

SMALL = {"batch": 4, "width": 8, "layers": 2}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(store, "_warned", set())
    return tmp_path / "tf_placer" / "workloads"


@pytest.fixture
def traces(monkeypatch):
    """What is traced while the test runs."""
    names = []
    trace = Item.from_function

    def counted(fn, *example_args, name=None):
        names.append(name)
        return trace(fn, *example_args, name=name)

    monkeypatch.setattr(Item, "from_function", counted)
    return names


def build(**more):
    return workloads.build("dense_small", **SMALL | more)


def files(cache):
    return sorted(path.name for path in cache.iterdir())


def test_the_second_time_nothing_is_traced(cache, traces):
    first, second = build(), build()
    assert traces == ["dense_small"]
    assert first.graph_def == second.graph_def and first.fingerprint == second.fingerprint
    assert second.name == "dense_small" and first.index.names == second.index.names
    (name,) = files(cache)
    assert name.startswith("dense_small-") and name.endswith(".item")


def test_defaults_that_are_given_are_the_same_workload(traces):
    build()
    build(seed=0)
    assert traces == ["dense_small"]


@pytest.mark.parametrize("changed", [{"seed": 1}, {"batch": 5}, {"optimizer": "sgd"}])
def test_other_settings_are_another_workload(traces, changed):
    build()
    build(**changed)
    assert traces == ["dense_small"] * 2


@pytest.mark.medium
@pytest.mark.parametrize("what", ["sources", "tensorflow", "floats", "kernels", "deterministic"])
def test_what_is_made_otherwise_is_traced_again(monkeypatch, traces, what):
    build()
    digest = registry._digest
    monkeypatch.setattr(registry, "_digest", lambda of: digest({**of, what: "another"} if what in of else of))
    build()
    assert traces == ["dense_small"] * 2


def test_the_settings_of_keras_count(traces):
    build()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        build()
    finally:
        keras.config.set_dtype_policy("float32")
    assert traces == ["dense_small"] * 2


def test_the_sources_of_workloads_and_of_the_clean_up_count(tmp_path, monkeypatch):
    for folder in ("colocation", "tf_placer/graph", "tf_placer/workloads"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("1")
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "tf_placer" / "workloads" / "a.py"))
    digest = registry._digest_of_sources.__wrapped__
    found = {digest()}
    for folder in ("colocation", "tf_placer/graph", "tf_placer/workloads"):
        (tmp_path / folder / "a.py").write_text("2")
        found.add(digest())
    (tmp_path / "tf_placer" / "workloads" / "a.py").rename(tmp_path / "tf_placer" / "workloads" / "b.py")
    found.add(digest())
    assert len(found) == 5
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "none" / "tf_placer" / "workloads" / "a.py"))
    assert digest() is None


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        (lambda patch: patch.setattr(registry, "_digest_of_sources", lambda: None), {}),
        (lambda patch: patch.setenv("TF_PLACER_WORKLOAD_CACHE_GIB", "0"), {}),
        (lambda patch: patch.setenv("TF_PLACER_WORKLOAD_CACHE_GIB", "1e-6"), {}),  # less than its size
        (lambda patch: None, {"batch": np.int64(4)}),  # no plain value
    ],
)
def test_what_cannot_be_kept_is_traced_each_time(monkeypatch, cache, traces, change, settings):
    change(monkeypatch)
    for _ in range(2):
        build(**settings)
    assert traces == ["dense_small"] * 2 and not cache.exists()


@pytest.mark.parametrize("damage", [b"", b"no item", None])
def test_a_damaged_file_is_told_once_and_made_again(cache, traces, caplog, damage):
    build()
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:-100] if damage is None else damage)
    with caplog.at_level(logging.WARNING):
        build()
        build()
    assert traces == ["dense_small"] * 2
    (message,) = [record.getMessage() for record in caplog.records if record.name == registry.__name__]
    assert str(path) in message and "traced again" in message and "\n" not in message


def test_where_nothing_can_be_written_every_build_is_traced_and_told_once(
    tmp_path, monkeypatch, traces, caplog
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        build()
        build()
    assert traces == ["dense_small"] * 2
    (message,) = [record.getMessage() for record in caplog.records if record.name == store.__name__]
    assert "no workload can be kept in" in message and "set XDG_CACHE_HOME" in message


def test_who_writes_it_already_is_left_alone(cache, traces, caplog):
    build()
    (path,) = cache.iterdir()
    path.unlink()
    with caplog.at_level(logging.WARNING), exclusively(path.with_name(path.name + ".lock"), "busy"):
        build()
    assert traces == ["dense_small"] * 2 and files(cache) == []
    assert [record for record in caplog.records if record.name == registry.__name__] == []


def test_three_versions_of_a_workload_stay(cache, monkeypatch):
    build(seed=5)
    kept = files(cache)
    for version in range(5):
        monkeypatch.setattr(registry, "_digest_of_sources", lambda version=version: f"{version}")
        build()
    assert len(files(cache)) == 3 + 1
    assert set(kept) < set(files(cache))


def squares(batch: int = 4) -> workloads.Workload:
    return workloads.Workload(tf.function(tf.square), (tf.ones([batch]),))


def test_what_was_registered_is_traced_each_time(cache, monkeypatch, traces):
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    workloads.register("squares", squares)
    for _ in range(2):
        workloads.build("squares")
    assert traces == ["squares"] * 2 and not cache.exists()


def test_over_the_limit_what_was_not_used_for_longest_leaves_first(cache, monkeypatch, traces):
    for seed in range(3):
        build(seed=seed)
    sizes = {path: path.stat().st_size for path in cache.iterdir()}
    by_age = sorted(sizes, key=lambda path: path.stat().st_mtime_ns)
    for age, path in enumerate(by_age):
        os.utime(path, (1000 + age, 1000 + age))
    build(seed=0)  # read, so it is the newest now
    # Room for the one that is added, the one that was read, and a byte less than one more.
    limit_bytes = 3 * max(sizes.values()) - 1
    monkeypatch.setenv("TF_PLACER_WORKLOAD_CACHE_GIB", str(limit_bytes / 2**30))
    assert len(traces) == 3
    build(seed=3)
    left = set(cache.iterdir())
    assert len(left) == 2 and by_age[0] in left and not {by_age[1], by_age[2]} & left
    assert sum(path.stat().st_size for path in left) <= limit_bytes


def test_a_limit_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("TF_PLACER_WORKLOAD_CACHE_GIB", "five")
    with pytest.raises(InputError, match="TF_PLACER_WORKLOAD_CACHE_GIB is 'five'; give gibibytes"):
        build()
