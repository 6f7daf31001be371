"""Every workload by name, with settings that exist: the same each time, traced once and found again on disk."""

import gc
import logging
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from colocation.tensorflow_internals import FuncGraph
from tests.refused import refused
from tf_placer import workloads
from tf_placer.base import files as store
from tf_placer.base.files import exclusively
from tf_placer.graph.item import Item
from tf_placer.workloads import registry

SMALL = ("branches_small", "dense_small", "lstm_lm_small", "transformer_small")


def test_names_of_before_are_still_there():
    before = {*SMALL, "inception_v3", "inception_v3_small", "resnet50", "two_towers"}
    assert before <= set(workloads.names())
    assert workloads.names() == tuple(sorted(workloads.names()))


def test_every_family_is_in_the_table_once():
    rows = [row.name for family in registry._FAMILIES for row in family.ROWS]
    assert len(set(rows)) == len(rows)
    assert set(rows) == registry._BUILT_IN


@pytest.mark.parametrize("name", sorted(registry._BUILT_IN))
def test_a_rows_settings_are_arguments_of_its_family(name):
    spec, settings = registry._settings(name, {})
    assert {key: settings[key] for key in spec.settings} == dict(spec.settings)
    assert settings["seed"] == 0


def test_overrides_come_before_what_a_row_says():
    _, settings = registry._settings("inception_v3_b64", {"batch": 3})
    assert settings["batch"] == 3
    assert registry._settings("inception_v3_b64", {})[1]["batch"] == 64
    assert registry._settings("inception_v3", {})[1]["batch"] == 32
    assert registry._settings("inception_v3_small_forward", {})[1]["training"] is False


@pytest.mark.medium
def test_a_forward_variant_has_no_gradient_and_assigns_nothing():
    item = workloads.build("inception_v3_small_forward", image_size=75, batch=1, classes=3)
    types = set(item.index.op_types)
    assert item.index.op_types.count("Conv2D") == 94  # of Inception-V3
    assert not {kind for kind in types if kind.startswith("Assign") or "Backprop" in kind}


def traced(name):
    """A workload as this process traces it, whatever was kept before."""
    function, args = workloads.function(name)
    return Item.from_function(function, *args, name=name)


@pytest.mark.medium
@pytest.mark.parametrize("name", SMALL)
def test_two_builds_are_equal_in_names_and_values(name):
    first, second = workloads.build(name), traced(name)
    assert first.name == name
    assert first.index.names == second.index.names
    assert first.fingerprint == second.fingerprint
    assert [v.node for v in first.variables] == [v.node for v in second.variables]
    for a, b in zip((*first.variables, *first.feeds), (*second.variables, *second.feeds), strict=True):
        np.testing.assert_array_equal(a.value, b.value)


def test_a_traced_graph_does_not_outlive_its_item(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where none is kept yet

    def graphs():
        gc.collect()
        return sum(isinstance(one, FuncGraph) for one in gc.get_objects())

    before = graphs()
    assert workloads.build("rnnlm_2_small", length=2).index.num_ops > 100
    assert graphs() <= before


def test_seed_changes_values_only():
    first, second = workloads.build("dense_small"), workloads.build("dense_small", seed=1)
    assert first.fingerprint == second.fingerprint
    assert not np.array_equal(first.feeds[0].value, second.feeds[0].value)


@pytest.mark.medium
@pytest.mark.parametrize("name", [*SMALL[:3], pytest.param(SMALL[3], marks=pytest.mark.slow)])
def test_training_lowers_the_loss(name):
    step, args = workloads.function(name)
    losses = [float(step(*args)) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_branches_have_their_layers():
    # Each dense layer multiplies once forward and twice backward, the input's layers once less.
    item = workloads.build("branches_small", branches=3, depth=2)
    layers, first_layers = 3 * 2 + 1, 3
    assert item.index.op_types.count("MatMul") == 3 * layers - first_layers


def test_two_towers_share_only_their_input_and_their_end():
    item = workloads.build("two_towers", batch=4, width=8, depth=3)
    assert item.index.op_types.count("MatMul") == 3 * (2 * 3 + 1) - 2
    joined = workloads.build("branches_small", batch=4, width=8, branches=2, depth=3)
    assert item.fingerprint == joined.fingerprint


@pytest.mark.medium
def test_images_and_optimizers_are_overrides():
    small = workloads.build("resnet50", batch=2, image_size=32, classes=7)
    assert [feed.shape for feed in small.feeds] == [(2, 32, 32, 3), (2,)]
    assert small.index.op_types.count("Conv2D") == 53  # 1 + 16 blocks x 3 + 4 shortcuts
    plain = len(workloads.build("dense_small", optimizer="sgd").variables)
    # Momentum has one slot for each of 4 kernels and 4 biases.
    assert len(workloads.build("dense_small", optimizer="momentum").variables) == plain + 8


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("inception_v4", {}, "no workload is called 'inception_v4'; did you mean 'inception_v3'"),
        ("zzz", {}, "no workload is called 'zzz'; there are [0-9]+, the nearest are"),
        ("dense_small", {"bacth": 1}, "has no setting 'bacth'; did you mean 'batch'"),
        ("dense_small", {"optimizer": "adm"}, "no optimizer is called 'adm'; did you mean 'adam'"),
    ],
)
def test_bad_names_are_told_with_the_nearest(name, overrides, message):
    with refused(message):
        workloads.build(name, **overrides)


@pytest.fixture
def workloads_as_they_were(monkeypatch):
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


def squares(batch: int = 4) -> workloads.Workload:
    return workloads.Workload(tf.function(tf.square), (tf.ones([batch]),))


@pytest.mark.usefixtures("workloads_as_they_were")
def test_a_registered_workload_is_built_like_any_other():
    workloads.register("squares", squares)
    assert "squares" in workloads.names()
    item = workloads.build("squares", batch=3)
    assert (item.name, item.feeds[0].shape) == ("squares", (3,))
    with refused("workload 'squares' has no setting 'bacth'; did you mean 'batch'"):
        workloads.build("squares", bacth=3)
    workloads.register("squares", squares)  # a notebook's cell that is run again


@pytest.mark.usefixtures("workloads_as_they_were")
@pytest.mark.parametrize(
    ("name", "family", "message"),
    [
        ("resnet50", squares, "'resnet50' comes with tf_placer; give your workload another name"),
        ("my step", squares, "'my step' is no name of a workload; use small letters, digits and _"),
        (3, squares, "3 is no name of a workload"),
        ("mine", squares(), "workload 'mine' is .*, which cannot be called"),
    ],
)
def test_what_cannot_be_registered_is_told_and_changes_nothing(name, family, message):
    before = workloads.names()
    with refused(message):
        workloads.register(name, family)
    assert workloads.names() == before


SETTINGS = {"batch": 4, "width": 8, "layers": 2}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty one, for the time of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(store, "_warned", set())
    return tmp_path / "tf_placer" / "workloads"


@pytest.fixture
def traces(cache, monkeypatch):
    """What is traced while the test runs."""
    names = []
    trace = Item.from_function

    def counted(fn, *example_args, name=None):
        names.append(name)
        return trace(fn, *example_args, name=name)

    monkeypatch.setattr(Item, "from_function", counted)
    return names


def build(**more):
    return workloads.build("dense_small", **SETTINGS | more)


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


def test_where_nothing_can_be_written_each_is_traced_and_told_once(tmp_path, monkeypatch, traces, caplog):
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


@pytest.mark.usefixtures("workloads_as_they_were")
def test_what_was_registered_is_traced_each_time(cache, traces):
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


def test_a_limit_that_is_no_number_is_refused(cache, monkeypatch):
    monkeypatch.setenv("TF_PLACER_WORKLOAD_CACHE_GIB", "five")
    with refused("TF_PLACER_WORKLOAD_CACHE_GIB is 'five'; give gibibytes"):
        build()
