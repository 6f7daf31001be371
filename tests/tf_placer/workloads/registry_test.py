"""Every workload by name, the same each time, with settings that exist."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from colocation.tensorflow_internals import FuncGraph
from tf_placer import workloads
from tf_placer.base.arguments import InputError
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
    with pytest.raises(InputError, match=message):
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
    with pytest.raises(InputError, match="workload 'squares' has no setting 'bacth'; did you mean 'batch'"):
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
    with pytest.raises(InputError, match=message):
        workloads.register(name, family)
    assert workloads.names() == before
