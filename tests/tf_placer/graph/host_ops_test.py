"""What needs the calling process is kept as it is, named, and stays on the host."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem


def table():
    entries = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    found = tf.lookup.StaticHashTable(entries, -1)
    return tf.function(lambda x: tf.sin(tf.cast(found.lookup(x), tf.float32))), (tf.constant("a"),)


def iterator():
    rows = iter(tf.data.Dataset.range(3))
    return tf.function(lambda x: tf.abs(x + next(rows))), (tf.constant(1, tf.int64),)


def iterator_passed():
    return tf.function(lambda rows, x: tf.abs(x + next(rows))), (
        iter(tf.data.Dataset.range(3)),
        tf.constant(1, tf.int64),
    )


def queue():
    found = tf.queue.FIFOQueue(3, [tf.float32], shapes=[[]])
    return tf.function(lambda x: tf.sin(x + found.dequeue())), (tf.constant(1.0),)


def dataset():
    data = tf.data.Dataset.range(3)
    return tf.function(lambda x: tf.abs(x + data.reduce(tf.constant(0, tf.int64), tf.add))), (
        tf.constant(1, tf.int64),
    )


def dataset_passed():
    function = tf.function(lambda data, x: tf.abs(x + data.reduce(tf.constant(0, tf.int64), tf.add)))
    return function, (tf.data.Dataset.range(3), tf.constant(1, tf.int64))


def variable_of_a_list():
    empty = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=3, element_dtype=tf.float32)
    kept = tf.Variable(empty, dtype=tf.variant, name="kept")
    return tf.function(lambda x: tf.abs(x + tf.raw_ops.TensorListLength(input_handle=kept))), (
        tf.constant(1),
    )


@pytest.mark.parametrize(
    ("case", "kind", "reader", "is_anonymous"),
    [
        (table, "a table", "LookupTableFindV2", False),
        (iterator, "an iterator", "IteratorGetNext", True),
        (iterator_passed, "an iterator", "IteratorGetNext", True),
        (queue, "a queue", "QueueDequeueV2", False),
        (dataset, "a dataset", "ReduceDataset", True),
        (dataset_passed, "a dataset", "ReduceDataset", True),
        (variable_of_a_list, "a variable that holds no numbers", "ReadVariableOp", True),
    ],
)
def test_it_stays_on_the_host_with_what_reads_it(case, kind, reader, is_anonymous):
    function, args = case()
    item = Item.from_function(function, *args)
    (capture,) = item.host_captures
    assert capture.kind.startswith(kind)
    assert capture.is_anonymous == is_anonymous
    assert capture.device.endswith("CPU:0")
    assert list(item.host_ops) == [capture.node]

    problem = analytic_problem(item, Cluster.preset("p100x2"))  # GPUs first
    host = problem.cluster.host
    assert problem.cluster.devices[host].type == "CPU"
    for op in (
        capture.node,
        next(n for n, t in zip(item.index.names, item.index.op_types, strict=True) if t == reader),
    ):
        allowed = problem.allowed[problem.unit_of_op[item.index.id_of_name[op]]]
        assert np.flatnonzero(allowed).tolist() == [host]
    result = problem.unit_of_op[item.index.op_types.index("Abs" if "Abs" in item.index.op_types else "Sin")]
    assert problem.allowed[result].all()  # and the rest anywhere

    if kind == "an iterator":  # of numbers: others stand in
        assert item.runs_standalone
    else:
        assert not item.runs_standalone
        assert f"read by {reader}) is {kind}" in item.why_not_standalone


@pytest.mark.parametrize("make", [tf.py_function, tf.numpy_function])
def test_functions_of_python_stay_on_the_host_wherever_they_are_called(make):
    def called(x):
        return tf.ensure_shape(make(lambda y: y, [x], tf.float32), [])

    @tf.function
    def f(x):
        looped = tf.while_loop(lambda y: y < 3.0, lambda y: (called(y) + 1.0,), [x])[0]
        chosen = tf.cond(x > 0.0, lambda: tf.cond(x > 1.0, lambda: called(x), lambda: x), lambda: x)
        return tf.sin(called(looped) + chosen)

    item = Item.from_function(f, tf.constant(1.0))
    types = dict(zip(item.index.names, item.index.op_types, strict=True))
    kinds = {types[name] for name in item.host_ops}
    assert {"EagerPyFunc" if make is tf.py_function else "PyFunc", "While", "If"} <= kinds
    assert "runs a Python function of this process" in item.why_not_standalone
    problem = analytic_problem(item, Cluster.logical(3))
    for name in item.host_ops:
        assert problem.allowed[problem.unit_of_op[item.index.id_of_name[name]]].tolist() == [
            True,
            False,
            False,
        ]


def test_prints_are_on_the_host_and_run_anywhere():
    @tf.function
    def f(x):
        tf.print("x is", x)
        return x + 1.0

    item = Item.from_function(f, tf.constant(1.0))
    assert list(item.host_ops.values()) == ["it prints where this process does (PrintV2)"]
    assert item.runs_standalone and item.why_not_standalone == ""


def test_a_table_that_somebody_else_fills(tmp_path):
    module = tf.Module()
    entries = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    module.table = tf.lookup.StaticHashTable(entries, -1)
    signature = [tf.TensorSpec([None], tf.string, name="words")]
    module.find = tf.function(lambda words: {"ids": module.table.lookup(words)}, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.find)
    item = Item.from_saved_model(tmp_path / "model")
    assert item.host_ops == {}  # it can be on any device with a kernel
    assert "HashTableV2) is a table that the program reads but does not fill" in item.why_not_standalone

    filled = tf.compat.v1.GraphDef()
    filled.CopyFrom(item.graph_def)
    table = next(node.name for node in filled.node if node.op == "HashTableV2")
    filled.node.add(name="fill", op="LookupTableImportV2", input=[table, "keys", "values"])
    assert dataclasses.replace(item, graph_def=filled).why_not_standalone == ""


def test_a_program_of_tensors_needs_no_host():
    item = Item.from_function(tf.function(lambda x: x + 1.0), tf.constant(1.0))
    assert item.host_ops == {} and item.host_captures == () and item.runs_standalone


def test_a_cluster_without_a_cpu_is_refused():
    cluster = Cluster.preset("p100x2")
    gpus = [d for d, device in enumerate(cluster.devices) if device.type == "GPU"]
    assert gpus == [0, 1]  # so the links between them keep their numbers
    links = tuple(link for link in cluster.links if {link.source, link.target} <= set(gpus))
    without = dataclasses.replace(cluster, name="gpus", devices=cluster.devices[:2], links=links)
    assert without.host is None
    function, args = iterator()
    with pytest.raises(
        InputError, match=r"must stay on the host \(it is an iterator .* 'gpus' has no CPU"
    ) as error:
        analytic_problem(Item.from_function(function, *args), without)
    assert "\n" not in str(error.value)


def test_what_needs_this_process_is_not_timed_on_workers():
    function, args = table()
    item = Item.from_function(function, *args)
    cluster = dataclasses.replace(Cluster.logical(2), kind="local")  # live: nothing is started here
    problem = build_problem(item, cluster)  # with estimated costs
    assert problem.guessed_op_types
    with pytest.raises(InputError, match=r"cannot be profiled: .*\(read by LookupTableFindV2\) is a table"):
        build_problem(item, cluster, costs="profiled")
    with pytest.raises(InputError, match=r"cannot be timed: .*\(read by LookupTableFindV2\) is a table"):
        RuntimeEvaluator(item, problem)


def test_an_iterator_is_needed_where_more_is_asked_of_it():
    rows = iter(tf.data.Dataset.range(3))
    looped = tf.function(lambda x: tf.while_loop(lambda y: y < 5, lambda y: (y + next(rows) + 1,), [x])[0])
    optional = tf.function(lambda x: tf.cast(rows.get_next_as_optional().has_value(), tf.int64) + x)
    strings = iter(tf.data.Dataset.from_tensor_slices(["a"]))
    for function in (
        looped,
        optional,
        tf.function(lambda x: tf.strings.length(next(strings)) + tf.cast(x, tf.int32)),
    ):
        item = Item.from_function(function, tf.constant(1, tf.int64))
        assert "is an iterator of this process" in item.why_not_standalone
