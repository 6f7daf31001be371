"""Connects a process to a server and looks at what is older than the connection; prints what differs, as JSON.

A process of its own, because it stays connected. Its argument: "kept", or "lost" to connect it as TensorFlow does.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import keras
import tensorflow as tf

from tests.logical_devices import report
from tf_placer.ops.library import resources_kept
from tf_placer.workers.fork_server import own_listeners_confined


class Old:
    """Resources that are made before the process is connected, and functions that were traced then."""

    def __init__(self) -> None:
        self.numbers = tf.Variable([1.0, 2.0])
        self.others = [
            tf.Variable(value)
            for value in (1, True, "a", tf.constant([1.0, 2.0], tf.bfloat16), [[1.0]] * 300)
        ]
        self.assign = tf.function(lambda value: self.numbers.assign(value))
        self.assign_compiled = tf.function(lambda value: self.numbers.assign(value), jit_compile=True)
        for function in (self.assign, self.assign_compiled):
            function(tf.constant([1.0, 2.0]))
        self.generator = tf.random.Generator.from_seed(1)
        self.drawn = self.generator.normal([2])
        self.metric = keras.metrics.Mean()
        self.metric.update_state([2.0, 4.0])
        self.iterator = iter(tf.data.Dataset.range(99).map(lambda _: self.numbers[0]).prefetch(0))
        entries = tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64))
        self.tables = [
            tf.lookup.StaticHashTable(entries, -1),
            tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1),
            tf.lookup.experimental.DenseHashTable(tf.string, tf.int64, -1, "none", "deleted"),
        ]
        for table in self.tables[1:]:
            table.insert(["a"], tf.constant([1], tf.int64))
        self.words = tf.data.Dataset.from_tensor_slices(["a", "b"]).map(self.tables[0].lookup)
        self.queue = tf.queue.FIFOQueue(3, [tf.float32])
        self.queue.enqueue(5.0)
        self.folder = tempfile.mkdtemp()
        self.writer = tf.summary.create_file_writer(self.folder)


OLD: list[Old] = []


def the_process_is_connected() -> bool:
    OLD.append(Old())
    server = tf.distribute.Server.create_local_server()
    address = server.target.removeprefix("grpc://")
    keeping = resources_kept() if sys.argv[1] == "kept" else contextlib.nullcontext()
    with own_listeners_confined(), keeping:
        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": [address]}))
        tf.config.list_logical_devices()
    return any("/job:worker/" in device.name for device in tf.config.list_logical_devices())


def what_is_assigned_is_read() -> bool:
    old = OLD[0]
    old.numbers.assign([5.0, 6.0])
    new = [2, False, "b", tf.constant([3.0, 4.0], tf.bfloat16), [[2.0]] * 300]
    for variable, value in zip(old.others, new, strict=True):
        variable.assign(value)
    read = [
        bool(tf.reduce_all(variable == tf.constant(value, variable.dtype)))
        for variable, value in zip(old.others, new, strict=True)
    ]
    return old.numbers.numpy().tolist() == [5.0, 6.0] and all(read)


def functions_that_were_traced_assign() -> bool:
    found = []
    for i, function in enumerate((OLD[0].assign, OLD[0].assign_compiled)):
        function(tf.constant([7.0 + i, 8.0]))
        found.append(OLD[0].numbers.numpy().tolist())
    return found == [[7.0, 8.0], [8.0, 8.0]]


def a_generator_starts_again() -> bool:
    OLD[0].generator.reset_from_seed(1)
    return bool(tf.reduce_all(OLD[0].generator.normal([2]) == OLD[0].drawn))


def a_metric_starts_again() -> bool:
    OLD[0].metric.reset_state()
    OLD[0].metric.update_state([1.0])
    return float(OLD[0].metric.result()) == 1.0


def a_dataset_reads_what_is_assigned() -> bool:
    OLD[0].numbers.assign([9.0, 9.0])
    return float(next(OLD[0].iterator)) == 9.0


def a_function_over_both_processes_assigns() -> bool:
    numbers = OLD[0].numbers

    @tf.function
    def assigned(value: tf.Tensor) -> tf.Tensor:
        numbers.assign(value)
        with tf.device("/job:worker/task:0/device:CPU:0"):
            return numbers.read_value() * 2.0

    doubled = assigned(tf.constant([3.0, 4.0]))
    return doubled.numpy().tolist() == [6.0, 8.0] and numbers.numpy().tolist() == [3.0, 4.0]


def tables_have_their_entries() -> bool:
    keys = tf.constant(["a", "b"])
    found = [table.lookup(keys).numpy().tolist() for table in OLD[0].tables]
    OLD[0].tables[1].insert(["b"], tf.constant([2], tf.int64))
    return found == [[1, -1]] * 3 and OLD[0].tables[1].lookup(keys).numpy().tolist() == [1, 2]


def a_dataset_looks_words_up() -> bool:
    return [int(number) for number in OLD[0].words] == [1, -1]


def a_queue_has_its_elements() -> bool:
    return float(OLD[0].queue.dequeue()) == 5.0


def a_summary_is_written() -> bool:
    with OLD[0].writer.as_default():
        tf.summary.scalar("loss", 1.0, step=1)
    (file,) = Path(OLD[0].folder).iterdir()
    return b"loss" in file.read_bytes()


def a_new_variable_is_another() -> bool:
    new = tf.Variable([1.0, 2.0])
    new.assign([3.0, 3.0])
    OLD[0].numbers.assign([4.0, 4.0])
    return new.numpy().tolist() == [3.0, 3.0] and OLD[0].numbers.numpy().tolist() == [4.0, 4.0]


ALWAYS = (the_process_is_connected,)
KEPT = (
    what_is_assigned_is_read,
    functions_that_were_traced_assign,
    a_generator_starts_again,
    a_metric_starts_again,
    a_dataset_reads_what_is_assigned,
    a_function_over_both_processes_assigns,
    tables_have_their_entries,
    a_dataset_looks_words_up,
    a_queue_has_its_elements,
    a_summary_is_written,
    a_new_variable_is_another,
)


if __name__ == "__main__":
    report(ALWAYS + KEPT)
