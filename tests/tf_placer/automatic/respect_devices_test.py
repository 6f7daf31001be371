"""auto_place keeps ops where the function asks for them, warns of what it cannot keep, and can be told not to."""

import warnings

import pytest
import tensorflow as tf

from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.plan import find_plan
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.planning.outcome import Outcome


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
