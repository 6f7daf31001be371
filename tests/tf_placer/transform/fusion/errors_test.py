"""Whatever an op raises is raised by a fused plan, too: what can raise where XLA is silent is not fused.

Op types are called with numbers that they are not defined for, fused and not, in three ways: with constants for all but
what has the batch, with inputs for everything, and with whole numbers that the cluster itself makes.
"""

import functools
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import having
from colocation.tensorflow_internals import registered_op
from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import item_of, subject_of
from tests.oracles.split_equality import differences, run_lifted
from tests.tf_placer.transform.split.op_cases import (
    NEEDS_STATISTICS,
    Arguments,
    arguments_of,
    examples,
    has_batch,
    op_types,
)
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.rewrite import rewrite
from tf_placer.rewrite.placed_function import placed_function
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.transform.fusion import PREFIX, RULES, convex_clusters, fused_graph
from tf_placer.transform.order import ordered_pairs

OP_TYPES = sorted(having("xla"))
RAISING = (
    "GatherNd", "FloorMod", "ReverseSequence", "SparseSoftmaxCrossEntropyWithLogits", "TensorScatterMax",
)  # fmt: skip
AT_ONCE = 20  # op types in a process
CLOSE = 1e-3
CONSTANT, FED, MADE = "constant", "fed", "made"
# Tensors that are made of each other, and shapes of tensors that are there: no program has bad ones.
_NEVER_BAD = {"orig_input", "orig_output", ("ConcatOffset", "shape")}
_MOST_SIZE = 100  # what is said to be a size makes tensors of it


def _integers(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def _scatter(rng: np.random.Generator, batch: int) -> Arguments:
    indices = rng.integers(0, 4, (batch, 1)).astype(np.int32)
    return {"tensor": examples(rng, 4, 3), "indices": indices, "updates": examples(rng, batch, 3)}


CASES: dict[str, Callable[[np.random.Generator, int], Arguments]] = {
    "Bitcast": lambda r, b: {"input": examples(r, b, 2), "type": tf.int32},
    "BroadcastArgs": lambda r, b: {"s0": _integers(b, 1), "s1": _integers(1, 3)},
    "BroadcastGradientArgs": lambda r, b: {"s0": _integers(b, 1), "s1": _integers(1, 3)},
    "ConcatOffset": lambda r, b: {"concat_dim": _integers(0)[0], "shape": [_integers(b, 2), _integers(1, 2)]},
    "Fill": lambda r, b: {"dims": _integers(b, 2), "value": np.float32(1)},
    "InvertPermutation": lambda r, b: {"x": _integers(2, 0, 1)},
    "MatrixSetDiagV3": lambda r, b: {
        "input": examples(r, b, 3, 3),
        "diagonal": examples(r, b, 3),
        "k": _integers(0)[0],
    },
    "Range": lambda r, b: {"start": _integers(0)[0], "limit": _integers(b)[0], "delta": _integers(1)[0]},
    **dict.fromkeys(("Rank", "Shape", "Size"), lambda r, b: {"input": examples(r, b, 2)}),
    "ShapeN": lambda r, b: {"input": [examples(r, b, 2), examples(r, b)]},
    "Reverse": lambda r, b: {"tensor": examples(r, b, 2), "dims": np.array([True, False])},
    **{f"TensorScatter{how}": _scatter for how in ("Add", "Max", "Sub", "Update")},
}
"""Of op types without a rule for the batch."""


_NAMES = {"reduction_indices": "axis", "split_dim": "axis"}  # of raw_ops


def call_of(op_type: str, seed: int, whole: bool) -> tuple[int, Arguments, list[str]]:
    """Examples in the batch, the arguments of a call, and the names of those that are tensors."""
    if op_type in CASES:
        batch = 5
        arguments = CASES[op_type](np.random.default_rng(seed), batch)
    else:
        batch, arguments = arguments_of(op_type, seed)
    called = {one.name: _NAMES.get(one.name, one.name) for one in registered_op(op_type).input_arg}
    names = [called[one.name] for one in registered_op(op_type).input_arg]
    names = [name for name in names if arguments.get(name) is not None]
    many = {one.name for one in registered_op(op_type).input_arg if one.number_attr or one.type_list_attr}
    for name in names:
        given = arguments[name] if name in many else [arguments[name]]
        given = [_as_array(one, whole and op_type in WHOLE) for one in given]
        arguments[name] = given if name in many else given[0]
    return batch, arguments, names


WHOLE = {
    "Abs", "AddV2", "Cumprod", "Cumsum", "Div", "FloorDiv", "FloorMod", "Less", "Max", "Maximum", "Min",
    "Minimum",
}  # fmt: skip
WHOLE |= {"Mod", "Mul", "Neg", "Pow", "Prod", "Sign", "Square", "SquaredDifference", "Sub", "Sum"}
WHOLE |= {"TruncateDiv", "TruncateMod"}
"""Of these the numbers are whole in some calls."""


def _as_array(value: Any, whole: bool) -> np.ndarray:
    array = np.asarray(value)
    narrow = {"int64": np.int32, "float64": np.float32}.get(array.dtype.name)
    if narrow and not isinstance(value, np.ndarray):
        return array.astype(narrow)
    return (array * 10).astype(np.int32) if whole and array.dtype == np.float32 else array


def bad_values(array: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The array with one bad number, or with bad ones alone."""
    bad: list[float] = []
    if array.dtype.kind in "iu":
        bad = [-1, -3, 0, 5, _MOST_SIZE]
        yield np.zeros_like(array)
        yield np.full_like(array, -1)
    elif array.dtype.kind == "f":
        bad = [-1.0, 0.0, 1e30, np.inf, np.nan]
    for number in bad if array.size else ():
        copy = array.copy()
        copy.flat[rng.integers(array.size)] = number
        yield copy


class Call:
    """One op as a program, fused where it may be."""

    def __init__(self, op_type: str, seed: int, way: str, whole: bool) -> None:
        self.batch, self.arguments, names = call_of(op_type, seed, whole)
        self.fed = [
            (name, position)
            for name in names
            for position, one in enumerate(self._list(name))
            if way != CONSTANT or has_batch(one, self.batch)
        ]
        made = way == MADE

        def step(*given):
            call = {
                name: list(self._list(name)) if name in names else self.arguments[name]
                for name in self.arguments
            }
            for (name, position), one in zip(self.fed, given, strict=True):
                call[name][position] = (
                    one - tf.abs(one) + tf.abs(one) if made and one.dtype == tf.int32 else one
                )
            for name in names:
                call[name] = call[name] if isinstance(self.arguments[name], list) else call[name][0]
            if op_type == "IdentityN":
                return tf.custom_gradient(lambda *these: (list(these), lambda *up: up))(*call["input"])
            result = getattr(tf.raw_ops, op_type)(**call)
            return [one for one in tf.nest.flatten(result) if isinstance(one, tf.Tensor)]

        self.values = [self._list(name)[position] for name, position in self.fed]
        self.plain = tf.function(step, autograph=False).get_concrete_function(*map(tf.constant, self.values))
        item = Item.from_function(self.plain, *map(tf.constant, self.values))
        problem = analytic_problem(item, Cluster.logical(1))
        devices = Placement(problem, problem.everything_on(0))
        clusters = convex_clusters(item, [0] * item.index.num_ops, devices.device_names, least=0)
        at = [op for op, kind in enumerate(item.index.op_types) if kind == op_type]
        self.is_fused = any(clusters[op] >= 0 for op in at)
        plan = Placement(problem, problem.everything_on(0), None, clusters)
        self.fused = placed_function(self.plain, plan, *map(tf.constant, self.values))

    def _list(self, name: str) -> list[Any]:
        value = self.arguments[name]
        return value if isinstance(value, list) else [value]


def outcome(function: Callable[..., Any], values: list[np.ndarray]) -> list[np.ndarray] | None:
    """What it gives; None where it raises."""
    try:
        return [one.numpy() for one in tf.nest.flatten(function(*map(tf.constant, values)))]
    except (tf.errors.OpError, ValueError):
        return None


def check(op_type: str) -> dict[str, Any]:
    """Number of programs that stayed unfused, and the calls that differed."""
    outside, wrong = 0, []
    for way in (CONSTANT, FED, MADE):
        for seed, whole in ((0, False), (1, False), (2, True)):
            if op_type in NEEDS_STATISTICS or (whole and op_type not in WHOLE):
                continue
            try:
                call = Call(op_type, seed, way, whole)
            except InputError:  # no kernel for numbers of this kind, or of sizes that are not known
                outside += 1
                continue
            if not call.is_fused or outcome(call.fused, call.values) is None:  # XLA says that it cannot
                outside += 1
                continue
            rng = np.random.default_rng(seed)
            for position, value in enumerate(call.values):
                if not _NEVER_BAD.isdisjoint([call.fed[position][0], (op_type, call.fed[position][0])]):
                    continue
                for bad in bad_values(value, rng):
                    values = [*call.values[:position], bad, *call.values[position + 1 :]]
                    expected, given = outcome(call.plain, values), outcome(call.fused, values)
                    if not _same(expected, given, bad):
                        wrong.append(
                            [way, seed, call.fed[position][0], str(bad.tolist()), str(expected), str(given)]
                        )
    return {"outside": outside, "wrong": wrong}


def _same(expected: list[np.ndarray] | None, given: list[np.ndarray] | None, bad: np.ndarray) -> bool:
    if expected is None or given is None:
        return expected is given
    if not all(np.isfinite(one).all() for one in (bad, *expected)):  # of these the error alone
        return True
    return all(
        a.shape == b.shape and np.allclose(a, b, CLOSE, CLOSE, equal_nan=True)
        for a, b in zip(expected, given, strict=True)
    )


def in_process(name: object) -> pytest.MarkDecorator:
    return pytest.mark.own_process(name, exact="soft", timeout_s=900)


def test_every_op_type_that_xla_is_given_has_a_case():
    assert set(OP_TYPES) - set(op_types()) - set(CASES) == set()


@pytest.mark.medium
@in_process("raising")
@pytest.mark.parametrize("op_type", RAISING)
def test_what_may_raise_stays_outside(op_type):
    found = check(op_type)
    assert found["wrong"] == []
    assert found["outside"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "op_type",
    [pytest.param(op_type, marks=in_process(place // AT_ONCE)) for place, op_type in enumerate(OP_TYPES)],
)
def test_bad_numbers_are_errors_both_ways_or_give_the_same(op_type):
    assert check(op_type)["wrong"] == []


DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def ordered(seed: int, clusters_of, item: Item) -> tf.compat.v1.GraphDef:
    """The graph with clusters, and a random order beside them."""
    problem = analytic_problem(item, Cluster.logical(1))
    devices = dict.fromkeys(item.index.names, DEVICE)
    order = np.random.default_rng(seed).permutation(problem.num_ops)
    plan = Placement(problem, np.zeros(problem.num_units), order, clusters_of(item, devices))
    # Each pair is written, also those that the simulated step does not need.
    with unittest.mock.patch.object(rewrite, "order_edges", ordered_pairs):
        return rewrite.rewrite(item, plan, devices)


def fused(clusters_of, item: Item) -> tf.compat.v1.GraphDef:
    devices = dict.fromkeys(item.index.names, DEVICE)
    clusters = clusters_of(item, devices)
    written = fused_graph(item, place_graph(item.graph_def, devices), clusters)
    calls = sum("_XlaMustCompile" in node.attr for node in written.node)
    assert calls == len(set(clusters.tolist()) - {NO_CLUSTER})
    return written


def at_random(seed: int, item: Item, devices: dict[str, str]) -> np.ndarray:
    labels = np.random.default_rng(seed).integers(1 + seed % 3, size=item.index.num_ops)
    return convex_clusters(item, labels.tolist(), devices, least=1)


def check_random_program(seed: int) -> int:
    """Compares one; returns how many clusters it had."""
    item = item_of(subject_of(program_of_seed(seed), gradients=False))
    if not item.index.num_ops or not item.runs_standalone:
        return 0
    clusters_of = functools.partial(at_random, seed)
    graph_defs = []

    def rewritten(lifted: Item) -> tf.compat.v1.GraphDef:
        graph_defs.append(fused(clusters_of, lifted))
        return graph_defs[-1]

    plain = run_lifted(item)
    assert differences(plain, run_lifted(item, rewritten=rewritten)) == [], seed
    with_order = functools.partial(ordered, seed, clusters_of)
    assert differences(plain, run_lifted(item, rewritten=with_order)) == [], seed
    return sum(node.name.startswith(PREFIX) for node in graph_defs[0].node)


@pytest.mark.medium
def test_random_programs_with_random_clusters_compute_the_same():
    assert sum(check_random_program(seed) for seed in range(4)) > 3


@pytest.mark.slow
def test_many_random_programs_with_random_clusters_compute_the_same():
    assert sum(check_random_program(seed) for seed in range(4, 60)) > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm_lm_small", "two_towers", "transformer_small"])
def test_training_steps_compute_the_same_by_every_rule(name):
    item = workloads.build(name)
    expected = run_lifted(item)
    for rule in RULES.values():
        assert (
            differences(expected, run_lifted(item, rewritten=functools.partial(fused, rule.clusters))) == []
        )


def test_results_keep_their_names_and_effects_their_order():
    total = tf.Variable(0.0)

    @tf.function
    def f(x):
        mean, variance = tf.nn.moments(x, [0])
        total.assign_add(tf.reduce_sum(mean))
        low, high = tf.split(tf.tanh(x) * 2.0, 2)
        return high, variance, total.read_value(), low

    item = Item.from_function(f, tf.reshape(tf.range(8.0), [4, 2]))
    found = run_lifted(item, rewritten=functools.partial(fused, RULES["everything"].clusters))
    assert differences(run_lifted(item), found) == []
    assert float(found.outputs[2]) == pytest.approx(7.0)
