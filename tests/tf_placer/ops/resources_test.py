"""Resources that are older than the connection to other processes."""

import pytest
import tensorflow as tf

from tests.logical_devices import outcomes_of
from tests.tf_placer.ops.resources_process import ALWAYS, KEPT
from tf_placer.ops.library import library

_PROCESS = "tests.tf_placer.ops.resources_process"


def table() -> tf.lookup.StaticHashTable:
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)


def test_all_that_is_older_than_a_connection_is_kept():
    assert outcomes_of(_PROCESS, "kept") == {check.__name__: "ok" for check in (*ALWAYS, *KEPT)}


def test_tensorflow_by_itself_loses_it():
    """If this fails, TensorFlow has mended what ``resources_kept`` is for."""
    kept = [name for name, outcome in outcomes_of(_PROCESS, "lost").items() if outcome == "ok"]
    assert kept == [check.__name__ for check in ALWAYS]


def test_a_table_that_was_deleted_is_listed_again():
    given = table()
    handle = given.resource_handle
    held = library().tf_placer_hold_resource(handle=handle)
    tf.raw_ops.DestroyResourceOp(resource=handle)
    with pytest.raises(tf.errors.NotFoundError):
        given.lookup(tf.constant(["a"]))
    for _ in range(2):  # the same once more is no conflict
        library().tf_placer_list_resource(handle=handle, held=held)
    assert given.lookup(tf.constant(["a", "b"])).numpy().tolist() == [1, -1]


def test_of_other_types_and_of_what_is_gone_nothing_is_held_and_nothing_printed(capfd):
    iterator, gone = iter(tf.data.Dataset.range(3)), table()
    tf.raw_ops.DestroyResourceOp(resource=gone.resource_handle)
    for handle in (iterator._iterator_resource, gone.resource_handle):
        held = library().tf_placer_hold_resource(handle=handle)
        library().tf_placer_list_resource(handle=handle, held=held)
    with pytest.raises(tf.errors.NotFoundError):
        gone.lookup(tf.constant(["a"]))
    assert next(iterator) == 0
    assert "resource_kernel" not in capfd.readouterr().err


def test_what_cannot_be_listed_is_an_error():
    variable = tf.Variable(1.0)
    with pytest.raises(tf.errors.AlreadyExistsError, match="there is another resource"):
        library().tf_placer_list_resource(handle=variable.handle, held=tf.Variable(2.0).handle)
    with pytest.raises(tf.errors.InvalidArgumentError, match="wrong type"):
        held = library().tf_placer_hold_resource(handle=table().resource_handle)
        library().tf_placer_list_resource(handle=variable.handle, held=held)
    with pytest.raises(tf.errors.InvalidArgumentError, match="it holds no resource"):
        library().tf_placer_list_resource(handle=table().resource_handle, held=table().resource_handle)
