"""What holds a variable and cannot follow is found; what can follow does."""

import concurrent.futures
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.rewrite.variables import Storages, move_to_devices, why_variables_stay


def why(variable: tf.Variable) -> str:
    return why_variables_stay({"w": variable.handle}).get("w", "")


def a_dataset(variable: tf.Variable) -> Any:
    return tf.data.Dataset.range(3).map(lambda i: variable + tf.cast(i, tf.float32))


def an_iterator_alone(variable: tf.Variable) -> Any:
    return iter(a_dataset(variable).filter(lambda x: x >= 0.0).batch(2))


def a_dataset_that_reads_through_a_function(variable: tf.Variable) -> Any:
    inner = tf.function(lambda x: variable * x)
    return tf.data.Dataset.range(3).map(lambda i: inner(tf.cast(i, tf.float32)))


def an_open_tape(variable: tf.Variable) -> Any:
    tape = tf.GradientTape()
    tape.__enter__()
    tf.square(variable)
    tape.__exit__(None, None, None)
    return tape


def a_tape_that_was_told_to_watch(variable: tf.Variable) -> Any:
    tape = tf.GradientTape(watch_accessed_variables=False)
    with tape:
        tape.watch(variable)
    return tape


def a_persistent_tape_that_was_asked(variable: tf.Variable) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        result = tf.square(variable)
    tape.gradient(result, variable)
    return tape


@pytest.mark.parametrize(
    ("hold", "reason"),
    [
        (a_dataset, "a tf.data dataset reads it"),
        (an_iterator_alone, "a tf.data dataset reads it"),
        (a_dataset_that_reads_through_a_function, "a tf.data dataset reads it"),
        (an_open_tape, "a tf.GradientTape"),
        (a_tape_that_was_told_to_watch, "a tf.GradientTape"),
        (a_persistent_tape_that_was_asked, "a tf.GradientTape"),
        (lambda variable: {"kept": [variable.handle]}, "an object of type list holds its handle"),
    ],
)
def test_a_holder_is_named_and_gone_when_it_is_gone(hold, reason):
    variable = tf.Variable(2.0)
    holder = hold(variable)
    assert reason in why(variable)
    del holder
    assert why(variable) == ""


def test_a_handle_in_a_local_name_is_found():
    variable = tf.Variable(2.0)
    storages = Storages([variable.handle])
    assert id(variable.handle) not in storages.reasons
    del storages
    handle = variable.handle
    assert "a local name" in why(variable)
    del handle
    assert why(variable) == ""


def test_an_accumulator_that_records_holds_all():
    variable = tf.Variable(2.0)
    with tf.autodiff.ForwardAccumulator(variable, tf.constant(1.0)):
        assert "a tf.autodiff.ForwardAccumulator" in why(variable)
    assert why(variable) == ""


def test_what_follows_is_no_holder():
    variable = tf.Variable(2.0)
    function = tf.function(lambda x: variable * x)
    outer = tf.function(lambda x: function(x) + function(x))
    outer(tf.constant(1.0))
    with tf.GradientTape() as tape:
        result = outer(tf.constant(1.0))
    tape.gradient(result, variable)
    checkpoint = tf.train.Checkpoint(variable=variable)
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build([variable])
    late = variable.assign_add(1.0)  # a variable object of its own, on the same storage
    assert why(variable) == ""
    assert len(Storages([variable.handle]).variables[id(variable.handle)]) == 2
    del checkpoint, late


def test_nothing_moves_where_one_is_held():
    held, free = tf.Variable(1.0), tf.Variable(2.0)
    before = id(held.handle), id(free.handle)
    dataset = a_dataset(held)
    with pytest.raises(InputError, match=r"cannot move now: a tf\.data dataset reads it; place first"):
        move_to_devices([(free, "/device:CPU:7"), (held, "/device:CPU:7")])
    assert (id(held.handle), id(free.handle)) == before
    del dataset


@contextlib.contextmanager
def threads_that_use(*variables: tf.Variable) -> Iterator[None]:
    stop = threading.Event()

    def use(variable: tf.Variable) -> None:
        while not stop.is_set():
            variable.assign_add(1.0)

    with concurrent.futures.ThreadPoolExecutor(len(variables)) as threads:
        for variable in variables:
            threads.submit(use, variable)
        try:
            yield
        finally:
            stop.set()


def test_a_thread_that_uses_it_is_seen():
    variable = tf.Variable(0.0)
    with threads_that_use(variable, tf.Variable(0.0)):
        storages = Storages([variable.handle])
        storages.look_at_threads(for_a_while=True)
        assert "is using it" in storages.reasons[id(variable.handle)]
        del storages
    assert why(variable) == ""


def test_a_thread_that_uses_others_is_none_of_its_holders():
    with threads_that_use(tf.Variable(0.0)):
        assert why(tf.Variable(0.0)) == ""


def test_the_same_device_moves_nothing():
    variable = tf.Variable([1.0, 2.0])
    handle = variable.handle
    with tf.GradientTape() as tape:
        result = tf.reduce_sum(variable * variable)
        move_to_devices([(variable, variable.device)])
    assert variable.handle is handle
    np.testing.assert_array_equal(tape.gradient(result, variable), [2.0, 4.0])
