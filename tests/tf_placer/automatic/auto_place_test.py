"""What auto_place takes and refuses, what runs as it is, and ops that stay where the function asks for them."""

import warnings

import pytest
import tensorflow as tf

import tf_placer
from tf_placer.automatic import signature
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.plan import find_plan
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.planning import find
from tf_placer.planning.outcome import Outcome
from tf_placer.rewrite.placed_function import check_nothing_is_lost


def test_a_setting_that_there_is_not_is_refused():
    with pytest.raises(tf_placer.InputError, match="no setting 'clusters'; did you mean 'cluster'"):
        tf_placer.auto_place(tf.function(lambda x: x), clusters="local")


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
    cluster = tf_placer.Cluster.local(2)
    with pytest.raises(InputError, match=r"a resource \(ReaderInterface\) of this process .* would lose"):
        check_nothing_is_lost(item, cluster)


@pytest.mark.parametrize("folder", ["{tmp}/file", "{tmp}/file/plans", "/proc/plans"])
def test_a_folder_for_plans_that_cannot_be_written_to(tmp_path, folder):
    (tmp_path / "file").touch()
    folder = folder.format(tmp=tmp_path)
    with pytest.raises(InputError, match=f"^cache_dir={folder}: .*; give another folder$"):
        tf_placer.auto_place(lambda x: x, cache_dir=folder)


def test_a_folder_for_plans_is_made_when_there_is_a_plan(tmp_path):
    tf_placer.auto_place(lambda x: x, cache_dir=tmp_path / "deep" / "plans")
    assert list(tmp_path.iterdir()) == []


@tf.function
def inner(x):
    with tf.device("/CPU:0"):
        x = tf.tanh(x, name="there")
    return tf.sin(x, name="beside")


@tf.function
def step(x):
    with tf.device("/CPU:2"):
        x = inner(x)
    with tf.device("/GPU:0"):
        x = tf.exp(x, name="nowhere")
    return tf.cos(x, name="anywhere")


@pytest.fixture(scope="module")
def item() -> Item:
    return Item.from_function(step, tf.constant([1.0, 2.0]), name="step")


def plan_of(item: Item, tmp_path, fixed=None, **settings) -> Outcome:
    config = AutoPlaceConfig(method="random", budget_s=0.05, cache_dir=tmp_path, **settings)
    return find_plan(item, Cluster.logical(3), config, fixed)


def device_of(plan: Outcome, op: str) -> str:
    return plan.placement.device_names[op].rpartition("device:")[2]


def test_ops_are_where_they_ask_to_be_and_one_warning_tells_of_the_others(item, tmp_path):
    with pytest.warns(UserWarning) as told:
        plan = plan_of(item, tmp_path)
    assert device_of(plan, "PartitionedCall/there") == "CPU:0"
    assert device_of(plan, "PartitionedCall/beside") == "CPU:2"
    assert [str(one.message) for one in told] == [
        "auto_place of 'step' cannot keep all that it asks for with tf.device: op 'nowhere' asks for /device:GPU:0, "
        "which cluster 'logical3' lacks; that is placed freely"
    ]


def test_it_can_be_told_to_place_everything_anew(item, tmp_path):
    pins = {".*": "/CPU:1"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = plan_of(item, tmp_path, respect_devices=False, pins=pins)
        assert set(plan.placement.device_names.values()) == {"/job:localhost/replica:0/task:0/device:CPU:1"}
        plan = plan_of(item, tmp_path, respect_devices=False)
    assert plan.placement.problem.allowed.all()


def test_pins_come_first(item, tmp_path):
    with pytest.warns(UserWarning, match="'nowhere' asks"):
        plan = plan_of(item, tmp_path, pins={".*beside": "/CPU:1"})
    assert device_of(plan, "PartitionedCall/beside") == "CPU:1"
    assert device_of(plan, "PartitionedCall/there") == "CPU:0"


def test_what_is_fixed_stays_and_is_told(item, tmp_path):
    # As the ops of a variable that stays where it is.
    with pytest.warns(
        UserWarning, match="'PartitionedCall/there' asks for /device:CPU:0, where it or an op beside it"
    ):
        plan = plan_of(item, tmp_path, fixed={item.index.id_of_name["PartitionedCall/there"]: 1})
    assert device_of(plan, "PartitionedCall/there") == "CPU:1"


def test_a_function_that_asks_for_nothing_is_not_warned_of(tmp_path):
    silent = Item.from_function(tf.function(lambda x: tf.exp(x)), tf.constant([1.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_of(silent, tmp_path)
