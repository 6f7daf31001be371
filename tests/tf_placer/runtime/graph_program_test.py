"""A placed graph becomes a program that needs no feeding; two steps that give the same bits."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.program import Program
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.runtime import graph_program
from tf_placer.runtime.audit import Audit, AuditError, Difference, SameValues, difference, step_values
from tf_placer.runtime.graph_program import (
    Assignment,
    batches,
    build_program,
    open_program,
    process_session_config,
    session_config,
)

CPU = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]


@pytest.fixture(scope="module")
def item() -> Item:
    """Adds its input to a variable and returns the sum."""
    total = tf.Variable([1.0, 2.0], name="total")

    @tf.function
    def add(x):
        return tf.reduce_sum(total.assign_add(x))

    return Item.from_function(add, tf.constant([10.0, 20.0]), name="add")


def run_of(item: Item, program: graph_program.GraphProgram) -> list[np.ndarray]:
    """Outputs of a second step, on two devices of this process."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(program.graph_def, name="")
    config = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        for assignment in program.assignments:
            session.run(assignment.op, {assignment.placeholder: assignment.value})
        session.run(list(program.step_ops))
        return session.run(list(item.fetches))


def _alternating(item: Item) -> tf.compat.v1.GraphDef:
    handles = {variable.node for variable in item.variables}
    touching = {node.name for node in item.graph_def.node if handles & set(node.input)} | handles
    return place_graph(
        item.graph_def, {node.name: CPU[node.name in touching] for node in item.graph_def.node}
    )


def test_it_runs_by_itself_from_the_given_values(item):
    (total,) = run_of(item, build_program(item, _alternating(item)))
    # [1, 2] + [10, 20] once by the step and once by the fetch: [21, 42].
    assert total == 63.0


def test_every_added_op_lives_with_what_it_serves(item):
    placed = _alternating(item)
    snapshot = placed.SerializeToString(deterministic=True)
    program = build_program(item, placed)
    assert placed.SerializeToString(deterministic=True) == snapshot
    device = {node.name: node.device for node in program.graph_def.node}
    assert all(device.values())
    for node in program.graph_def.node:
        if node.op in ("AssignVariableOp", "ReadVariableOp"):
            assert device[node.name] == device[node.input[0]]


@pytest.mark.parametrize("is_call", [False, True])
def test_grappler_leaves_what_only_outputs_need(is_call):
    """With its rewriting on, as in the race with the program as it is."""
    weights = tf.Variable(tf.ones([4, 4]), name="weights")
    item = Item.from_function(tf.function(lambda x: tf.tanh(x @ weights)), tf.ones([2, 4]), name="forward")
    program = build_program(item, item.graph_def, is_call=is_call)
    with open_program("", program, 60.0, process_session_config) as loaded:
        loaded.step()
        graphs = loaded.traced_step().partition_graphs
    assert any(
        "MatMul" in node.op for graph in graphs for node in graph.node
    )  # also under a processor's own name


def test_a_call_sends_its_inputs_and_gives_back_what_can_be_sent():
    total = tf.Variable([1.0, 2.0], name="total")

    @tf.function
    def add(x, y):
        total.assign_add(x)
        return {"sum": total + y, "where": total.handle}

    item = Item.from_function(add, tf.constant([10.0, 20.0]), tf.constant(1.0), name="add")
    program = build_program(item, item.graph_def, is_call=True)
    assert [value.tolist() for _, value in program.feeds] == [[10.0, 20.0], 1.0]
    assert len(program.fetches) == 1, "a handle means nothing elsewhere"
    assert not {name.partition(":")[0] for name, _ in program.feeds} & set(program.step_ops)
    with open_program("", program, 60.0, process_session_config) as loaded:
        for _ in range(2):
            loaded.step()


def test_an_iterator_gives_zeros():
    rows = iter(tf.data.Dataset.from_tensor_slices((tf.ones([8, 3]), tf.ones([8], tf.int64))).batch(4, True))
    total = tf.Variable([[1.0, 2.0, 3.0]], name="total")

    @tf.function
    def f():
        (x, y), (again, _) = next(rows), next(rows)
        return tf.reduce_sum(total + x + again), y + 5

    item = Item.from_function(f)
    assert item.runs_standalone
    program = build_program(item, _alternating(item))
    device = {node.name: node.device for node in program.graph_def.node}
    reads = [node for node in program.graph_def.node if node.op == "IdentityN"]
    assert [len(node.input) for node in reads] == [2, 3]  # the second waits for the first
    assert all(
        device[text.removeprefix("^").partition(":")[0]] == node.device
        for node in reads
        for text in node.input
    )
    found = run_of(item, program)
    assert found[0] == 24.0  # 4 rows of 1 + 2 + 3, and nothing from the iterator
    assert found[1].tolist() == [5, 5, 5, 5]


def test_what_needs_this_process_does_not_run_by_itself():
    rows = iter(tf.data.Dataset.from_tensor_slices(["a"]))  # strings of zeros might be anything
    item = Item.from_function(tf.function(lambda: next(rows)))
    with pytest.raises(
        InputError, match=r"cannot run by itself: .*\(read by IteratorGetNext\) is an iterator"
    ):
        build_program(item, _alternating(item))


def test_nothing_to_run_is_bad_input():
    nothing = Program(tf.compat.v1.GraphDef(), (), (), (), ())
    with pytest.raises(InputError, match="nothing to run"):
        build_program(Item.from_program("nothing", nothing), tf.compat.v1.GraphDef())


@pytest.mark.parametrize("dtype", [tf.variant, tf.resource])
def test_what_cannot_be_restored_is_named(dtype):
    with tf.Graph().as_default():
        handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=[], shared_name="list", name="list")
        tf.raw_ops.Identity(input=tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype), name="result")
        meta_graph = tf.compat.v1.train.export_meta_graph()
    item = Item.from_meta_graph(meta_graph, ["result:0"])
    with pytest.raises(InputError, match=r"'list' holds a .*cannot be restored; keep its content"):
        build_program(item, item.graph_def)


def test_values_are_sent_in_messages_of_bounded_size(monkeypatch):
    monkeypatch.setattr(graph_program, "_MAX_MESSAGE_BYTES", 100)
    sizes = [60, 40, 1, 200, 99, 1]  # 60 + 40 fill a message, 200 is one alone, 99 + 1 fill one
    values = tuple(Assignment(f"p{i}:0", f"a{i}", np.zeros(size, np.int8)) for i, size in enumerate(sizes))
    assert [[a.value.nbytes for a in batch] for batch in batches(values)] == [[60, 40], [1], [200], [99, 1]]
    assert list(batches(())) == []


def test_a_value_that_fits_in_no_message_is_named(item, monkeypatch):
    monkeypatch.setattr(graph_program, "_MAX_VALUE_BYTES", 7)
    with pytest.raises(InputError, match=r"holds 8 bytes.*split it"):
        build_program(item, _alternating(item))


SAME = Difference()


@pytest.mark.parametrize("config_of", [session_config, process_session_config])
def test_values_are_those_of_outputs_and_of_variables_after_one_step(config_of):
    total = tf.Variable([1.0, 2.0], name="total")

    @tf.function
    def add(x, text):
        return total.assign_add(x) * 2.0, tf.strings.upper(text)

    item = Item.from_function(add, tf.constant([10.0, 20.0]), tf.constant(["a"]), name="add")
    found = step_values("", item, item.graph_def, 60.0, config_of)
    first, second, variable = found.values()
    assert first.tolist() == [22.0, 44.0] and second.tolist() == [b"A"] and variable.tolist() == [11.0, 22.0]
    assert list(found)[2] == f"variable {item.variables[0].node!r}"
    assert difference(found, step_values("", item, item.graph_def, 60.0, config_of)) == SAME


def test_a_step_that_gives_nothing_cannot_be_compared():
    @tf.function
    def prints(x):
        tf.print("seen", x, output_stream="file:///dev/null")

    item = Item.from_function(prints, tf.constant(1.0), name="prints")
    with pytest.raises(InputError, match="gives back nothing and has no variable"):
        step_values("", item, item.graph_def, 60.0, session_config)


@pytest.mark.parametrize(
    ("one", "other", "relative"),
    [
        ([1.0, 4.0], [1.0, 4.0], 0.0),
        ([1.0, 4.0], [1.5, 4.0], 0.125),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [2.0, 1.0], math.inf),
        ([0.0], [1.0], 1.0),
        ([1, 4], [1, 2], 0.5),
        ([1 + 1j, 0], [1 + 1j, 0], 0.0),
        ([4j], [2j], 0.5),
        ([True], [False], math.inf),
        (np.array([b"a"], object), np.array([b"b"], object), math.inf),
        (np.array([b"a"], object), np.array([b"a"], object), 0.0),
        ([1.0], [1.0, 1.0], math.inf),
    ],
)
def test_a_difference_is_relative_to_the_largest_number(one, other, relative):
    found = difference({"y": np.asarray(one)}, {"y": np.asarray(other)})
    assert found == (Difference(relative, "y") if relative else SAME)


def test_other_bits_are_never_the_same_and_the_largest_difference_is_told():
    zeros = [{"x": np.array([1.0]), "y": np.array([zero])} for zero in (0.0, -0.0)]
    found = difference(*zeros)
    assert found.value == "y" and 0 < found.relative < 1e-300
    one, other = {"a": np.array([1.0]), "b": np.array([1.0])}, {"a": np.array([1.1]), "b": np.array([2.0])}
    assert difference(one, other).value == "b"


def test_an_audit_tells_which_kind_a_difference_is_of():
    apart = Difference(3.7e-4, "output 'Identity:0'")

    def audit(**found):
        return Audit(3, {}, {}, {}, SameValues(**{"repeated": SAME, "exact": SAME, "as_run": SAME} | found))

    audit(as_run=apart).check()
    assert audit(as_run=apart).summary() == (
        "3 ops where they were put; the same bits with Grappler and oneDNN off; as this process has them, 3.7e-04 of "
        "the largest number in output 'Identity:0' apart"
    )
    audit(exact=apart, repeated=apart).check()  # random numbers
    audit(exact=apart, apart=1e-3).check()  # the batch in parts
    assert (
        "3.7e-04 of the largest number in output 'Identity:0' apart with Grappler and oneDNN off: sums are in another "
        in (audit(exact=apart, apart=1e-3).summary())
    )
    assert "batch statistics are those of each part" in audit(exact=apart, apart=math.inf).summary()
    with pytest.raises(AuditError, match="DIFFERENT VALUES, more than the order of sums makes"):
        audit(exact=apart, apart=1e-4).check()
    with pytest.raises(AuditError, match=r"DIFFERENT VALUES with Grappler and oneDNN off: 3\.7e-04 of"):
        audit(exact=apart).check()
