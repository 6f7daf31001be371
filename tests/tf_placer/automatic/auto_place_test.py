"""What auto_place refuses, and what runs as it is."""

import pytest
import tensorflow as tf

import tf_placer
from tf_placer.automatic import signature
from tf_placer.base.arguments import InputError
from tf_placer.cluster.local import local_devices
from tf_placer.planning import find
from tf_placer.rewrite.placed_function import check_nothing_is_lost


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clusters": "local"}, "no setting 'clusters'; did you mean 'cluster'"),
        (
            {"cluster": "p100x2"},
            "cluster 'p100x2' is only described, so nothing can run on it; auto_place on",
        ),
        ({"variables": "swap"}, "variables is 'swap'; give one of move, stay"),
        ({"budget_s": 0}, "budget_s is 0; give a finite number above 0"),
        ({"batch_size": 0}, "batch_size is 0; give a whole number of at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(tf_placer.InputError, match=message):
        tf_placer.auto_place(tf.function(lambda x: x), **settings)


def test_what_is_no_function_is_refused():
    with pytest.raises(tf_placer.InputError, match="fn is 3; give a tf"):
        tf_placer.auto_place(3)
    once = tf_placer.auto_place(tf.function(lambda x: x))
    with pytest.raises(tf_placer.InputError, match="auto-placed already"):
        tf_placer.auto_place(once)


def test_a_described_cluster_is_refused():
    with pytest.raises(tf_placer.InputError, match="'p100x2' is only described, so nothing can run on it"):
        tf_placer.auto_place(tf.function(lambda x: x + 1.0), cluster=tf_placer.Cluster.preset("p100x2"))


def test_a_function_that_was_not_called_has_no_placement():
    with pytest.raises(tf_placer.InputError, match="call it first"):
        _ = tf_placer.auto_place(tf.function(lambda x: x)).placement


def compiled():
    """One that cannot be placed, because XLA compiles it."""
    return tf.function(lambda x: x * 2.0, jit_compile=True)


def test_what_cannot_be_placed_runs_with_one_warning():
    placed = tf_placer.auto_place(compiled())
    with pytest.warns(
        tf_placer.RunsAsItIs, match="'<lambda>' runs as it is, unplaced: jit_compile=True"
    ) as told:
        results = [float(placed(tf.constant(value))) for value in (1.0, 2.0)]
    assert results == [2.0, 4.0] and len(told) == 1
    assert told[0].filename == __file__  # where it was called
    assert "jit_compile=True" in placed.report() and placed.placements == ()
    with pytest.raises(tf_placer.InputError, match="runs as it is, unplaced: jit_compile=True"):
        _ = placed.placement


def test_strict_is_an_error():
    with pytest.raises(tf_placer.InputError, match="'<lambda>' cannot be placed: jit_compile=True"):
        tf_placer.auto_place(compiled(), strict=True)(tf.constant(1.0))


def test_errors_of_the_program_are_its_own():
    def wrong(x):
        raise ValueError(f"of the program itself, for {x.shape}")

    with pytest.raises(ValueError, match="of the program itself"):
        tf_placer.auto_place(wrong)(tf.constant(1.0))
    with pytest.raises(TypeError):  # a wrong call, as TensorFlow tells it
        tf_placer.auto_place(lambda x: x)(tf.constant(1.0), tf.constant(2.0))


def test_a_function_without_ops_is_itself():
    placed = tf_placer.auto_place(lambda x: None)  # no warning: there is nothing to say
    assert placed(tf.constant(1.0)) is None and placed.placements == () and placed.report() == ""
    with pytest.raises(tf_placer.InputError, match="it has no op to place"):
        _ = placed.placement


ONE = tf_placer.Cluster.logical(1)


def in_one_process(function, folder, **settings):
    return tf_placer.auto_place(
        function, cluster=ONE, method="single", budget_s=1.0, cache_dir=folder, **settings
    )


def test_a_pin_that_matched_in_one_signature_need_not_in_the_next(tmp_path):
    """What is traced depends on a Python value; a pin that matches nowhere is told all the same."""
    function = tf.function(lambda x, is_sine: tf.sin(x, name="sine") if is_sine else tf.cos(x, name="cosine"))
    placed = in_one_process(function, tmp_path, pins={"sine": "CPU:0"}, strict=True)
    for is_sine in (True, False):
        placed(tf.constant(1.0), is_sine)
    assert len(placed.placements) == 2
    with pytest.raises(tf_placer.InputError, match="pin 'tangent' matches no op"):
        in_one_process(function, tmp_path, pins={"tangent": "CPU:0"}, strict=True)(tf.constant(1.0), True)


def test_what_could_not_be_used_is_not_searched_for(tmp_path, monkeypatch):
    """The rebuilt function and the devices are looked at first."""

    def searched(*_, **__):
        raise AssertionError("it was searched")

    monkeypatch.setattr(find, "search", searched)

    def refused(*_, **__):
        raise tf_placer.InputError("it cannot be rebuilt")

    with monkeypatch.context() as patched:
        patched.setattr(signature, "placed_concrete_function", refused)
        with pytest.raises(tf_placer.InputError, match="it cannot be rebuilt"):
            in_one_process(lambda x: tf.sin(x), tmp_path, strict=True)(tf.constant(1.0))
    two = tf_placer.Cluster.logical(2)  # this process has one
    placed = tf_placer.auto_place(lambda x: tf.sin(x), cluster=two, cache_dir=tmp_path, strict=True)
    with pytest.raises(tf_placer.InputError, match=r"this process has no device .*CPU:1"):
        placed(tf.constant(1.0))


@pytest.mark.parametrize(
    "error", [AttributeError("'NoneType' object has no attribute 'graph'"), IndexError("x")]
)
def test_a_fault_of_this_package_is_said_to_be_one(tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(signature.Item, "from_function", fails)
    with pytest.warns(tf_placer.RunsAsItIs, match="a fault of tf_placer; please report it: ") as told:
        assert float(in_one_process(lambda x: x + 1.0, tmp_path)(tf.constant(1.0))) == 2.0
    assert type(error).__name__ in str(told[0].message)


def test_what_connecting_would_lose_is_refused():
    reader = tf.raw_ops.WholeFileReaderV2(shared_name="lost")
    counted = tf.function(lambda: tf.abs(tf.raw_ops.ReaderNumRecordsProducedV2(reader_handle=reader)))
    item = tf_placer.Item.from_function(counted)
    cluster = tf_placer.Cluster("local", *local_devices(2), kind="local")
    with pytest.raises(InputError, match=r"a resource \(ReaderInterface\) of this process .* would lose"):
        check_nothing_is_lost(item, cluster)
