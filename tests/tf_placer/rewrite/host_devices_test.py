"""Where a plan is for other processes, what needs this one stays in it."""

import pytest
import tensorflow as tf

from tests.logical_devices import outcomes_of
from tf_placer.graph.item import Item
from tf_placer.rewrite.placed_function import with_host_ops_here

HERE = "/job:localhost/replica:0/task:0/device:CPU:0"
WORKER = "/job:worker/replica:0/task:0/device:CPU:0"


def test_units_of_what_needs_this_process_come_here():
    rows = iter(tf.data.Dataset.range(3))
    item = Item.from_function(tf.function(lambda x: tf.abs(next(rows) + x)), tf.constant(1, tf.int64))
    planned = dict.fromkeys(item.index.names, WORKER)
    found = with_host_ops_here(item, planned)
    here = {
        op_type
        for name, op_type in zip(item.index.names, item.index.op_types, strict=True)
        if found[name] == HERE
    }
    assert here == {"Placeholder", "IteratorGetNext"}  # the iterator and what reads it
    assert set(planned.values()) == {WORKER}


def test_a_plan_for_this_process_stays():
    item = Item.from_function(
        tf.function(lambda x: tf.py_function(lambda y: y, [x], tf.float32)), tf.constant(1.0)
    )
    planned = dict.fromkeys(item.index.names, HERE.replace("CPU:0", "CPU:1"))
    assert with_host_ops_here(item, planned) == planned


def test_a_program_of_tensors_stays():
    item = Item.from_function(tf.function(lambda x: x + 1.0), tf.constant(1.0))
    planned = dict.fromkeys(item.index.names, WORKER)
    assert with_host_ops_here(item, planned) is planned


@pytest.mark.slow
def test_on_real_workers():
    outcomes = outcomes_of("tests.tf_placer.rewrite.host_devices_process")
    assert len(outcomes) == 3
    assert set(outcomes.values()) == {"ok"}
