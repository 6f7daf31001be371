"""What stays on the host for the calling process, and what a program asks for with ``tf.device``."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.graph.program import all_nodes
from tf_placer.problem.analytic_problem import analytic_problem

ONE, X = tf.constant(1, tf.int64), tf.constant([1.0, 2.0])


def table():
    entries = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    found = tf.lookup.StaticHashTable(entries, -1)
    return tf.function(lambda x: tf.sin(tf.cast(found.lookup(x), tf.float32))), (tf.constant("a"),)


def iterator():
    rows = iter(tf.data.Dataset.range(3))
    return tf.function(lambda x: tf.abs(x + next(rows))), (ONE,)


def iterator_passed():
    return tf.function(lambda rows, x: tf.abs(x + next(rows))), (iter(tf.data.Dataset.range(3)), ONE)


def queue():
    found = tf.queue.FIFOQueue(3, [tf.float32], shapes=[[]])
    return tf.function(lambda x: tf.sin(x + found.dequeue())), (tf.constant(1.0),)


def dataset():
    data = tf.data.Dataset.range(3)
    return tf.function(lambda x: tf.abs(x + data.reduce(tf.constant(0, tf.int64), tf.add))), (ONE,)


def dataset_passed():
    function = tf.function(lambda data, x: tf.abs(x + data.reduce(tf.constant(0, tf.int64), tf.add)))
    return function, (tf.data.Dataset.range(3), ONE)


def variable_of_a_list():
    empty = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=3, element_dtype=tf.float32)
    kept = tf.Variable(empty, dtype=tf.variant, name="kept")
    function = tf.function(lambda x: tf.abs(x + tf.raw_ops.TensorListLength(input_handle=kept)))
    return function, (tf.constant(1),)


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
    reads = item.index.names[item.index.op_types.index(reader)]
    for op in (capture.node, reads):
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
    units = problem.unit_of_op[[item.index.id_of_name[name] for name in item.host_ops]]
    assert problem.allowed[units].tolist() == [[True, False, False]] * len(units)


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
    with refused(r"must stay on the host \(it is an iterator .* 'gpus' has no CPU"):
        analytic_problem(Item.from_function(function, *args), without)


def test_what_needs_this_process_is_not_timed_on_workers():
    function, args = table()
    item = Item.from_function(function, *args)
    cluster = dataclasses.replace(Cluster.logical(2), kind="local")  # live: nothing is started here
    problem = build_problem(item, cluster)  # with estimated costs
    assert problem.guessed_op_types
    with refused(r"cannot be profiled: .*\(read by LookupTableFindV2\) is a table"):
        build_problem(item, cluster, costs="profiled")
    with refused(r"cannot be timed: .*\(read by LookupTableFindV2\) is a table"):
        RuntimeEvaluator(item, problem)


def test_an_iterator_is_needed_where_more_is_asked_of_it():
    rows = iter(tf.data.Dataset.range(3))
    looped = tf.function(lambda x: tf.while_loop(lambda y: y < 5, lambda y: (y + next(rows) + 1,), [x])[0])
    optional = tf.function(lambda x: tf.cast(rows.get_next_as_optional().has_value(), tf.int64) + x)
    strings = iter(tf.data.Dataset.from_tensor_slices(["a"]))
    lengths = tf.function(lambda x: tf.strings.length(next(strings)) + tf.cast(x, tf.int32))
    for function in (looped, optional, lengths):
        item = Item.from_function(function, ONE)
        assert "is an iterator of this process" in item.why_not_standalone


def item_of(function: Callable, *args) -> Item:
    return Item.from_function(tf.function(function), *(args or (X,)))


def on(device: str, op: Callable, *inputs, **named):
    """An op that asks for a device."""
    with tf.device(device):
        return op(*inputs, **named)


innermost = tf.function(lambda x: tf.sin(x, name="innermost"))


@tf.function
def inner(x):
    x = on("/CPU:0", tf.exp, x, name="asks")
    x = on("/device:CPU:*", tf.math.log1p, x, name="any_cpu")
    x = on("/job:worker", tf.cos, x, name="any_of_a_job")
    return innermost(tf.tanh(x, name="does_not"))


def with_branches(x):
    return tf.cond(x[0] > 0.0, lambda: on("/CPU:1", tf.exp, x), lambda: on("/CPU:2", tf.tanh, x))


called = tf.function(lambda x: on("/CPU:3", tf.exp, x))
compiled = tf.function(lambda x: on("/CPU:0", tf.exp, x), jit_compile=True)


def with_a_loop(x):
    return on("/CPU:9", tf.while_loop, lambda x: x[0] < 9.0, lambda x: (called(x) + 1.0,), [x])[0]


def with_parts_and_copies(x):
    one = on("/GPU:1", tf.constant, 1.0, name="one")
    y, z = on("/GPU:1", tf.identity_n, [x, x * 2.0], name="both")
    return y + one, z * one


VARIABLE = on("/CPU:0", tf.Variable, [1.0, 2.0])


def with_a_variable(x):
    y = on("/GPU:0", tf.multiply, x, VARIABLE, name="asks")
    on("/GPU:0", VARIABLE.assign_add, y)
    return y


FIRST, SECOND = "PartitionedCall", "PartitionedCall_1"
OF_CALLS = {
    f"{FIRST}/asks": "/device:CPU:0",
    f"{FIRST}/any_cpu": "/device:CPU:1",  # what it leaves open, the call says
    f"{FIRST}/any_of_a_job": "/job:worker/device:GPU:1",
    **dict.fromkeys([f"{FIRST}/does_not", f"{FIRST}/Identity"], "/device:GPU:1"),
    **dict.fromkeys([f"{FIRST}/{FIRST}/innermost", f"{FIRST}/{FIRST}/Identity"], "/device:GPU:1"),
    f"{SECOND}/asks": "/device:CPU:0",
    f"{SECOND}/any_cpu": "/device:CPU:*",
    f"{SECOND}/any_of_a_job": "/job:worker",
}
OF_A_LOOP = {
    **dict.fromkeys(["while/maximum_iterations", "while/loop_counter"], "/device:CPU:9"),
    "while": "/device:CPU:3 /device:CPU:9",
}
OF_PARTS = dict.fromkeys(["one", "one/copy", "both/0", "both/1"], "/device:GPU:1")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: tf.exp(x), {}, id="nothing"),
        pytest.param(lambda x: tf.tanh(on("/GPU:1", tf.exp, x)), {"Exp": "/device:GPU:1"}, id="an op"),
        pytest.param(lambda x: inner(on("/GPU:1", inner, x)), OF_CALLS, id="calls"),
        pytest.param(with_branches, {"cond": "/device:CPU:1 /device:CPU:2"}, id="branches"),
        pytest.param(with_a_loop, OF_A_LOOP, id="a loop"),
        pytest.param(lambda x: compiled(on("/GPU:0", compiled, x)), {FIRST: "/device:GPU:0"}, id="XLA"),
        pytest.param(with_parts_and_copies, OF_PARTS, id="parts and copies"),
        pytest.param(with_a_variable, {"asks": "/device:GPU:0"}, id="where a variable is"),
    ],
)
def test_ops_keep_what_they_ask_for_and_the_graph_has_no_device(function, expected):
    item = item_of(function)
    requested = {name: " ".join(sorted(devices)) for name, devices in item.requested_devices.items()}
    assert requested == expected
    assert {node.device for node in all_nodes(item.graph_def)} == {""}


def test_a_loop_asks_for_its_own_device_first():
    assert item_of(with_a_loop).requested_devices["while"] == ("/device:CPU:9", "/device:CPU:3")


def test_what_is_asked_for_does_not_change_the_fingerprint():
    def silent(x):
        return tf.while_loop(lambda x: x[0] < 9.0, lambda x: (tf.exp(x),), [x])[0]

    asking = item_of(lambda x: on("/GPU:1", silent, x))
    assert asking.requested_devices and asking.fingerprint == item_of(silent).fingerprint


def test_the_device_of_the_caller_is_no_request():
    function = tf.function(lambda x: tf.exp(x))
    with tf.device("/CPU:0"):
        assert Item.from_function(function, X).requested_devices == {}


def test_a_graph_from_a_file_asks_too():
    with tf.Graph().as_default() as graph:
        with tf.device("/GPU:1"):
            x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
        with tf.device("/CPU:0"):
            y = tf.add(x, tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read"), name="y")
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=graph.as_graph_def())
    item = Item.from_meta_graph(meta_graph, [y.name])
    gpu, cpu = ("/device:GPU:1",), ("/device:CPU:0",)
    assert item.requested_devices == {"x": gpu, "v": gpu, "y": cpu}


@pytest.mark.parametrize("text", ["/device:GPU:x", "nowhere"])
def test_what_is_no_device_is_handed_on_as_it_is(text):
    inner = tf.function(lambda x: tf.exp(x, name="exp"))
    graph_def = tf.function(lambda x: inner(x)).get_concrete_function(X).graph.as_graph_def()
    for node in [*graph_def.node, *graph_def.library.function[0].node_def]:
        if node.op == "PartitionedCall":
            node.device = "/CPU:0"
        elif node.op == "Exp":
            node.device = text
    item = Item.from_meta_graph(tf.compat.v1.MetaGraphDef(graph_def=graph_def), ["Identity:0"])
    assert item.requested_devices["PartitionedCall/exp"] == (text,)
