"""Inside other functions a placed function keeps the order of reads, writes and other side effects.

Most such programs are in tests/corpus/order.py and order_of_effects.py; here is what those do not have. Every function
has a read or a side effect that comes late, behind products that take a while, so that what does not wait for it comes
first nearly always.
"""

import collections
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from colocation.tensorflow_internals import FuncGraph
from tests.logical_devices import NUM_DEVICES
from tests.tf_placer.rewrite.placing import place
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.saved_model import export_saved_model

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact=True)]

CALLS = 20


@pytest.fixture(
    autouse=True,
    params=[
        CALLS,
        pytest.param(
            300, marks=[pytest.mark.slow, pytest.mark.own_process("many", exact=True, timeout_s=600)]
        ),
    ],
)
def calls(request: pytest.FixtureRequest) -> None:
    """Compares a few calls, or many."""
    global CALLS
    CALLS = request.param


def slow(x: tf.Tensor) -> tf.Tensor:
    """A zero that takes some ten microseconds to milliseconds."""
    product = tf.fill([64, 64], x)
    for _ in range(6):
        product = product @ product * 0.0
    return tf.reduce_sum(product)


CASES: dict[str, Callable[[bool], Callable[[tf.Tensor], object]]] = {}


def case(make: Callable[[bool], Callable[[tf.Tensor], object]]) -> Callable:
    """Adds what makes an outer function of new variables, which calls a placed function or the unplaced one."""
    CASES[make.__name__] = make
    return make


def _maybe(placed: bool, function):
    return place(function, tf.constant(0.0)) if placed else function


@case
def read_in_a_nested_function_before_a_write(placed: bool):
    weights, table = tf.Variable(tf.zeros([100])), tf.Variable(tf.zeros([50, 4]))

    @tf.function
    def inner(x):
        with tf.control_dependencies([slow(x)]):
            return tf.reduce_sum(weights) + tf.reduce_sum(tf.gather(table, [1, 2]))

    late = tf.function(lambda x: tf.cond(x >= 0.0, lambda: inner(x), lambda: x) + inner(x))
    called = _maybe(placed, late)

    @tf.function
    def outer(x):
        before = called(x)
        weights.assign_add(tf.ones([100]))
        table.scatter_add(tf.IndexedSlices(tf.ones([2, 4]), [1, 2]))
        return before

    return outer


@case
def called_under_control_dependencies(placed: bool):
    weights, seen = tf.Variable(tf.zeros([100])), []

    @tf.function
    def notes(x):
        tf.numpy_function(lambda: seen.append("inside"), [], [])
        return tf.reduce_sum(weights) + x

    called = _maybe(placed, notes)

    @tf.function
    def outer(x):
        with tf.control_dependencies([slow(x)]):
            first = tf.numpy_function(lambda: seen.append("before"), [], [])
        with tf.control_dependencies([first]):  # nothing else orders the two
            return called(x), weights.assign_add(tf.ones([100]))[0]

    def run(x):
        return *outer(x), seen[-2:]

    return run


@case
def waits_for_an_op_of_the_outer_function(placed: bool):
    weights, seen = tf.Variable(0.0), []  # a call that takes a variable is not ordered as one without

    @tf.function
    def outer(x):
        with tf.control_dependencies([slow(x)]):
            first = tf.numpy_function(lambda: seen.append("before"), [], [])

        @tf.function
        def inner(x):
            with tf.control_dependencies([first]):
                return tf.numpy_function(lambda: np.float32(len(seen)), [], tf.float32) + weights

        concrete = inner.get_concrete_function(tf.TensorSpec([], tf.float32))
        with tf.init_scope():
            called = tf.autograph.experimental.do_not_convert(_maybe)(placed, concrete)
        return called(x)

    return outer


class Model(tf.Module):
    """A sum that is late, to be saved."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.zeros([1000]))

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def late(self, x):
        with tf.control_dependencies([slow(x)]):
            return {"sum": tf.reduce_sum(self.weights)}


@case
def signature_of_a_saved_model(placed: bool):
    folder, model = Path(tempfile.mkdtemp()), Model()
    tf.saved_model.save(model, str(folder / "model"), signatures=model.late)
    if placed:
        problem = analytic_problem(Item.from_saved_model(folder / "model"), Cluster.logical(NUM_DEVICES))
        row = np.arange(problem.num_units) % NUM_DEVICES
        export_saved_model(folder / "model", folder / "placed", Placement(problem, row))
    loaded = load_saved_model(folder / ("placed" if placed else "model"))
    called = loaded.signatures["serving_default"]

    @tf.function
    def outer(x):
        before = called(x)
        loaded.weights.assign_add(tf.ones([1000]))
        return before

    return outer


@pytest.mark.parametrize("name", CASES)
def test_the_outer_function_gives_what_it_gives_unplaced(name):
    outcomes = []
    for placed in (False, True):
        outer = CASES[name](placed)
        results = [outer(tf.constant(0.0)) for _ in range(CALLS)]
        outcomes.append(
            tf.nest.map_structure(lambda v: v.numpy().tolist() if tf.is_tensor(v) else v, results)
        )
    assert outcomes[0] == outcomes[1]
    assert len(set(map(repr, outcomes[0]))) > 1


@pytest.mark.filterwarnings("ignore:variables move to other devices. numbers that:UserWarning")
def test_as_the_traced_function():
    """The call that others see: its op, what it only reads, and what it answers for as done."""
    weights, embeddings = tf.Variable(tf.zeros([10])), tf.Variable(tf.zeros([10, 2]))
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)

    @tf.function
    def nested(x):
        tf.print(x)
        return tf.reduce_sum(weights) + tf.reduce_sum(tf.gather(embeddings, [1]))

    reads = tf.function(lambda x: nested(x) + tf.cast(tf.shape(embeddings)[0], tf.float32))

    @tf.function
    def writes(x):
        weights.assign_add(tf.ones([10]) * nested(x))
        return table.lookup(tf.constant(1, tf.int64)) + tf.random.uniform([])

    @tf.function
    def reads_in_loops(x):
        for _ in tf.range(2):
            x += tf.reduce_sum(weights)
        return tf.cond(x > 0.0, lambda: x + embeddings[0, 0], lambda: x)

    for function in (reads, writes, reads_in_loops, tf.function(lambda x: x * 2.0)):
        traced = function.get_concrete_function(tf.constant(0.0))
        placed = place(function, tf.constant(0.0))
        assert _seen_from_outside(traced) == _seen_from_outside(placed), function


def _seen_from_outside(concrete) -> tuple[str, object, dict[str, int]]:
    outer = tf.function(lambda x: concrete(x))
    graph = outer.get_concrete_function(tf.constant(0.0)).graph
    call = next(op for op in graph.get_operations() if "PartitionedCall" in op.type)
    return call.type, list(call.get_attr("_read_only_resource_inputs")), dict(_done(concrete.graph))


def _done(graph: FuncGraph) -> collections.Counter:
    """Op types of the control outputs of a function and of those that it calls."""
    found: collections.Counter = collections.Counter()
    functions = {
        name.decode() if isinstance(name, bytes) else name: f for name, f in graph._functions.items()
    }
    for op in graph.control_outputs:
        if "PartitionedCall" in op.type:
            found += _done(functions[op.get_attr("f").name].graph)
        else:
            found[op.type] += 1
    return found
