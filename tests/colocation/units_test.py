"""Units: partition, numbering, explanations; and the indices, frames and calls that they rest on."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from colocation.constraints import RULES, Merge, outermost_loops
from colocation.op_facts import GraphIndex, index_graph, topological_order
from colocation.units import (
    Heuristic,
    attach_constants,
    attach_pools,
    default_groups,
    extend_units,
    form_units,
    name_scope,
    single_consumer,
    unrolled_calls,
)
from tests.colocation.random_graphs import control_flow, random_graph

tf1 = tf.compat.v1


def graph(*ops: str) -> GraphIndex:
    """Each op is "name:Type input input..."; the type may be left out (NoOp, which takes anything)."""
    graph_def = tf1.GraphDef()
    for text in ops:
        head, *inputs = text.split()
        name, _, op_type = head.partition(":")
        node = graph_def.node.add(name=name, op=op_type or "NoOp", input=inputs)
        for attribute in ("T", "dtype"):
            node.attr[attribute].type = tf.float32.as_datatype_enum
    return index_graph(graph_def)


def chain_of_variables(num_variables: int) -> GraphIndex:
    """For each variable: handle, read, constant, update; 4 ops, of which 3 share a unit."""
    of_one = ("v{i}:VarHandleOp", "read{i}:ReadVariableOp v{i}", "c{i}:Const")
    of_one += ("update{i}:AssignAddVariableOp v{i} c{i}",)
    return graph(*(text.format(i=i) for i in range(num_variables) for text in of_one))


def test_units_are_numbered_by_their_smallest_op():
    units = form_units(chain_of_variables(2))
    # ops v0 read0 c0 update0 v1 read1 c1 update1
    np.testing.assert_array_equal(units.unit_of_op, [0, 0, 1, 0, 2, 2, 3, 2])
    assert units.unit_of_op.dtype == np.int32
    assert units.num_units == 4
    np.testing.assert_array_equal(units.members(0), [0, 1, 3])
    np.testing.assert_array_equal(np.bincount(units.unit_of_op), [3, 1, 3, 1])


def test_empty_graph_and_one_op():
    assert form_units(tf1.GraphDef()).num_units == 0
    one = tf1.GraphDef()
    one.node.add(name="a", op="NoOp")
    assert form_units(one).num_units == 1


@pytest.mark.parametrize("seed", range(30))
def test_partition_is_the_closure_of_all_merges(seed):
    """Against flooding: spread the smallest op id over all merges until nothing changes."""
    index = index_graph(random_graph(seed).graph_def)
    units = form_units(index)
    smallest = list(range(index.num_ops))
    merges = [(m.op_a, m.op_b) for rule in RULES for m in rule(index)]
    for _ in range(index.num_ops):
        for a, b in merges:
            smallest[a] = smallest[b] = min(smallest[a], smallest[b])
    expected = np.unique(smallest, return_inverse=True)[1]
    np.testing.assert_array_equal(units.unit_of_op, expected, err_msg=f"seed {seed}")
    # The kept merges are a spanning forest: one less than ops in each unit.
    assert len(units.merges) == index.num_ops - units.num_units


def test_deterministic():
    first, second = (form_units(random_graph(7).graph_def) for _ in range(2))
    np.testing.assert_array_equal(first.unit_of_op, second.unit_of_op)
    assert first.merges == second.merges


def test_why_gives_the_chain():
    units = form_units(chain_of_variables(1))
    chain = units.why(1, 3)  # read0 - v0 - update0
    assert [(m.op_a, m.op_b) for m in chain] == [(0, 1), (0, 3)]
    assert chain[1].reason == "update0 takes a resource handle from v0"
    assert units.why(1, 1) == ()
    with pytest.raises(ValueError, match="different units"):
        units.why(0, 2)


@pytest.mark.parametrize("seed", range(10))
def test_why_is_a_path_for_every_pair_of_the_largest_unit(seed):
    units = form_units(random_graph(seed).graph_def)
    members = units.members(int(np.argmax(np.bincount(units.unit_of_op)))).tolist()
    for target in members:
        at = members[0]
        for merge in units.why(at, target):
            assert at in (merge.op_a, merge.op_b), f"seed {seed}"
            at = merge.op_b if at == merge.op_a else merge.op_a
        assert at == target, f"seed {seed}"


def test_input_is_left_alone():
    graph_def = random_graph(3).graph_def
    before = graph_def.SerializeToString(deterministic=True)
    form_units(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_units_that_are_there_are_extended_and_never_split():
    index = chain_of_variables(3)  # v0 read0 c0 update0 v1 ...
    given = np.array([9, 9, 4, 4, *range(10, 18)])
    units = extend_units(index, given, [name_scope(r"^(c)")])
    # c0, c1 and c2 are ops 2, 6 and 10; update0 is given as one unit with c0. No hard rule is asked.
    np.testing.assert_array_equal(units.unit_of_op, [0, 0, 1, 1, 2, 3, 1, 4, 5, 6, 1, 7])
    assert [merge.rule for merge in units.why(3, 10)] == ["given", "name_scope"]
    np.testing.assert_array_equal(extend_units(index, given, []).unit_of_op[:5], [0, 0, 1, 1, 2])
    with pytest.raises(
        ValueError, match="unit_of_op has 11 entries, but the graph has 12 ops; give one for each"
    ):
        extend_units(index, given[1:], [])


SIZE = 100


def crowd(size: int) -> tf1.GraphDef:
    """Many ops around a few: ``size`` of each kind that a rule ties, all to the same op, frame or name.

    A rule that paired the ops which meet there would yield about size * size / 2 merges.
    """
    graph_def = tf1.GraphDef()

    def add(name: str, op: str, *inputs: str, **types: int) -> None:
        node = graph_def.node.add(name=name, op=op, input=inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype

    add("one", "Const", dtype=types_pb2.DT_FLOAT)
    add("common", "Const", dtype=types_pb2.DT_FLOAT)
    add("yes", "Const", dtype=types_pb2.DT_BOOL)
    add("number", "Const", dtype=types_pb2.DT_INT64)
    add("anchor", "NoOp")
    add("handle", "VarHandleOp", dtype=types_pb2.DT_FLOAT)
    add("buffer", "VariableV2", dtype=types_pb2.DT_FLOAT)
    add("dataset", "RangeDataset", "number", "number", "number")
    for i in range(size):
        add(f"constant{i}", "Const", dtype=types_pb2.DT_FLOAT)
        add(f"tied{i}", "AddV2", f"constant{i}", "common", T=types_pb2.DT_FLOAT)
        # One name of an op that is there and one of an op that is not.
        graph_def.node[-1].attr["_class"].list.s.extend([b"loc:@anchor", b"loc:@gone"])
        add(f"read{i}", "ReadVariableOp", "handle", dtype=types_pb2.DT_FLOAT)
        add(f"pass{i}", "IdentityN", "handle", "handle")
        graph_def.node[-1].attr["T"].list.type.extend([types_pb2.DT_RESOURCE] * 2)
        add(f"assign{i}", "Assign", "buffer", "one", T=types_pb2.DT_FLOAT)
        add(f"value{i}", "Identity", "buffer", T=types_pb2.DT_FLOAT)
        add(f"both{i}", "ConcatenateDataset", "dataset", "dataset")
        add(f"switch{i}", "Switch", "one", "yes", T=types_pb2.DT_FLOAT)
        for name, source, frame in ((f"enter{i}", "one", b"loop"), (f"inner{i}", f"enter{i}", b"inner")):
            add(name, "Enter", source, T=types_pb2.DT_FLOAT)
            graph_def.node[-1].attr["frame_name"].s = frame
        add(f"leave{i}", "Exit", f"inner{i}", T=types_pb2.DT_FLOAT)
        add(f"exit{i}", "Exit", f"leave{i}", T=types_pb2.DT_FLOAT)
    return graph_def


def attached_constants(index: GraphIndex) -> Iterator[Merge]:
    yield from attach_constants(index, form_units(index))


def pairs_of_one_class(index: GraphIndex) -> Iterator[Merge]:
    """What no rule may do."""
    tied = [op for op, name in enumerate(index.names) if name.startswith("tied")]
    for position, a in enumerate(tied):
        for b in tied[:position]:
            yield Merge(a, b, "pairs_of_one_class", "")


def check_linear(rule: Callable[[GraphIndex], Iterator[Merge]]) -> None:
    counts = []
    for size in (SIZE, 2 * SIZE, 3 * SIZE):
        index = index_graph(crowd(size))
        counts.append(sum(1 for _ in rule(index)))
        limit = index.num_ops + len(index.data_edges) + len(index.control_edges)
        assert counts[-1] <= limit, f"{counts[-1]} merges of {limit} ops and edges"
    assert counts[0] >= SIZE, "the graph gives this rule nothing to say"
    # As many more for the third hundred as for the second.
    assert counts[2] - counts[1] == counts[1] - counts[0], counts


@pytest.mark.parametrize("rule", [*RULES, attached_constants], ids=lambda rule: rule.__name__)
def test_a_rule_yields_no_more_merges_than_there_are_ops_and_edges(rule):
    check_linear(rule)


def test_a_rule_that_pairs_what_meets_in_a_name_would_be_found():
    with pytest.raises(AssertionError, match="4950 merges of"):
        check_linear(pairs_of_one_class)


def test_all_that_meets_is_one_unit():
    units = form_units(crowd(SIZE))
    index = index_graph(crowd(SIZE))
    unit_of = {name: int(units.unit_of_op[op]) for op, name in enumerate(index.names)}
    meets = (
        "tied-anchor read-handle pass-handle assign-buffer value-buffer both-dataset switch-one inner-enter0"
    )
    for kind, centre in (pair.split("-") for pair in meets.split()):
        assert {unit_of[f"{kind}{i}"] for i in range(SIZE)} == {unit_of[centre]}, kind


def test_a_topological_numbering_is_kept():
    assert topological_order(4, np.array([[0, 2], [1, 2], [0, 3]])).tolist() == [0, 1, 2, 3]


def test_ties_go_to_the_smaller_number():
    # 3 must come before 0; 1 and 2 are free from the start, and smaller than 3.
    assert topological_order(4, np.array([[3, 0]])).tolist() == [1, 2, 3, 0]


def test_nodes_on_and_after_a_cycle_are_missing():
    assert topological_order(4, np.array([[0, 1], [1, 2], [2, 1], [2, 3]])).tolist() == [0]
    assert topological_order(0, np.zeros((0, 2), int)).tolist() == []


@pytest.mark.parametrize("seed", range(10))
def test_every_edge_points_forward(seed):
    generator = np.random.default_rng(seed)
    name = generator.permutation(30)
    edges = np.array(
        [(name[a], name[b]) for a in range(30) for b in range(a + 1, 30) if generator.random() < 0.2]
    )
    order = topological_order(30, np.concatenate([edges, edges[:3]]))  # a repeated edge counts once
    assert sorted(order) == list(range(30)), f"seed {seed}"
    position = np.argsort(order)
    assert (position[edges[:, 0]] < position[edges[:, 1]]).all(), f"seed {seed}"


def groups(index: GraphIndex, *heuristics: Heuristic) -> set[frozenset[str]]:
    units = form_units(index, heuristics)
    return {frozenset(index.names[op] for op in units.members(u)) for u in range(units.num_units)}


def sets(*texts: str) -> set[frozenset[str]]:
    return {frozenset(text.split()) for text in texts}


def test_each_step_is_a_group():
    # Four mul and two add in two steps: mul, mul_1 and add of the first, mul_2, mul_3 and add_1 of the second.
    index = graph(
        "l/step/mul", "l/step/mul_1", "l/step/mul_2", "l/step/mul_3", "l/step/add", "l/step/add_1", "z"
    )
    first, second = "l/step/mul l/step/mul_1 l/step/add", "l/step/mul_2 l/step/mul_3 l/step/add_1"
    assert groups(index, unrolled_calls(r"/step/")) == sets(first, second, "z")


def test_numbers_are_numbers():
    # Twelve in four steps of three; as text, x_10 and x_11 would come before x_2.
    names = ["l/step/x", *(f"l/step/x_{k}" for k in range(1, 12))]
    names += ["l/step/y", *(f"l/step/y_{k}" for k in (1, 2, 3))]
    of = {name: group for group in groups(graph(*names), unrolled_calls(r"/step/")) for name in group}
    assert of["l/step/x_9"] == {"l/step/x_9", "l/step/x_10", "l/step/x_11", "l/step/y_3"}


def test_scopes_are_apart_and_what_is_below_an_op_is_with_it():
    index = graph("a/step/x", "a/step/x/read", "a/step/x_1", "b/step/x", "b/step/x_1")
    assert groups(index, unrolled_calls(r"/step/")) == sets(
        "a/step/x a/step/x/read", "a/step/x_1", "b/step/x", "b/step/x_1"
    )


def test_gradients_follow_what_they_differentiate():
    forward = ["l/step/x", "l/step/x_1"]
    index = graph(
        *forward, "gradients/l/step/x_grad/g", "gradients/l/step/x_1_grad/g", "gradients/l/step/x_1_grad/h"
    )
    assert groups(index, unrolled_calls(r"(?:^|/)step/")) == {frozenset([name]) for name in index.names}
    assert groups(index, default_groups, unrolled_calls(r"/step/")) == sets(
        "l/step/x gradients/l/step/x_grad/g",
        "l/step/x_1 gradients/l/step/x_1_grad/g gradients/l/step/x_1_grad/h",
    )


def test_a_scope_that_was_unrolled_by_tensorflow():
    with tf.Graph().as_default() as traced:
        state = tf1.placeholder(tf.float32, (2, 2), name="x")
        for _ in range(3):
            with tf.name_scope("cell/step/"):
                state = tf.tanh(tf.matmul(state, state) + tf.matmul(state, state))
    index = traced.as_graph_def()
    units = form_units(index, [unrolled_calls(r"/step/")])
    assert sorted(np.bincount(units.unit_of_op)) == [1, 4, 4, 4]  # two products, their sum and its tanh


def test_no_expression_is_refused():
    with pytest.raises(ValueError, match=r"^step pattern '\(' is not a regular expression: "):
        unrolled_calls("(")


def test_nested_loops_belong_to_the_outermost():
    def body(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inner = tf1.while_loop(lambda j: j < 2, lambda j: j + 1, [i], name="inner")
        return inner, tf.negative(x, name="work")

    with control_flow(functional=False), tf.Graph().as_default() as graph:
        start = tf.constant(0, name="start")
        out = tf1.while_loop(lambda i, x: i < 9, body, [start, tf.constant(1.0, name="x")], name="outer")
        tf.negative(out[1], name="after")
        tf1.while_loop(lambda i: i < 9, lambda i: i + 1, [start], name="second")
    index = index_graph(graph.as_graph_def())
    loop_of = dict(zip(index.names, outermost_loops(index), strict=True))
    outside = {name for name, loop in loop_of.items() if loop < 0}
    # All that a while_loop adds is under its name, and all of it is in its frame.
    assert outside == {"start", "x", "after"}
    assert {"outer/work", "outer/inner/Less", "outer/inner/Exit", "outer/Exit_1"} <= loop_of.keys()
    outer = {loop for name, loop in loop_of.items() if name.startswith("outer")}
    second = {loop for name, loop in loop_of.items() if name.startswith("second")}
    assert len(outer) == len(second) == 1
    assert outer != second
    assert {index.op_types[loop] for loop in outer | second} == {"Enter"}


def test_no_loop_and_no_op():
    assert outermost_loops(index_graph(tf1.GraphDef())) == []
    graph_def = tf1.GraphDef()
    graph_def.node.add(name="a", op="NoOp")
    assert outermost_loops(index_graph(graph_def)) == [-1]


def test_a_cycle_that_nothing_enters_is_in_no_loop():
    graph_def = tf1.GraphDef()
    for name, op, source in (("c", "Const", ""), ("e", "Enter", "c"), ("a", "NoOp", "b"), ("b", "NoOp", "a")):
        graph_def.node.add(name=name, op=op, input=source)
    assert outermost_loops(index_graph(graph_def)) == [-1, 1, -1, -1]


def test_single_consumer_stops_where_an_output_fans_out_to_sinks():
    index = graph("a", "b a", "s1 b", "s2 b", "c", "s3 c")
    assert groups(index, single_consumer()) == sets("a b", "s1", "s2", "c s3")


def test_single_consumer_treats_groups_as_ops():
    # b and c have d alone, then a has the group of d alone.
    index = graph("a", "b a", "c a", "d b c")
    assert groups(index, single_consumer()) == sets("a b c d")


def test_single_consumer_and_control_edges():
    index = graph("a", "b a", "c ^a")
    assert groups(index, single_consumer()) == sets("a b", "c")


def naive_contraction(num_ops: int, edges: list[tuple[int, int]]) -> np.ndarray:
    group = list(range(num_ops))
    while True:
        successors: dict[int, set[int]] = {}
        for a, b in edges:
            if group[a] != group[b]:
                successors.setdefault(group[a], set()).add(group[b])
        single = next(((g, *s) for g, s in sorted(successors.items()) if len(s) == 1), None)
        if single is None:
            return np.unique(group, return_inverse=True)[1]
        low, high = sorted(single)
        group = [low if g == high else g for g in group]


@pytest.mark.parametrize("seed", range(40))
def test_contraction_equals_the_naive_loop(seed):
    rng = np.random.default_rng(seed)
    num_ops = int(rng.integers(2, 30))
    edges = [tuple(sorted(e)) for e in rng.integers(num_ops, size=(num_ops, 2)).tolist() if e[0] != e[1]]
    index = graph(*(" ".join([f"n{b}", *(f"n{a}" for a, c in edges if c == b)]) for b in range(num_ops)))
    units = form_units(index, [single_consumer()])
    np.testing.assert_array_equal(units.unit_of_op, naive_contraction(num_ops, edges), err_msg=f"seed {seed}")


def test_groups_that_are_too_heavy_stay_apart():
    # By number of ops, chains of a's: 2 + 1 is not more than 3, 3 + 1 is.
    index = graph("a", "b a", "c b", "d c", "e d")
    assert groups(index, single_consumer(most=5)) == sets("a b c d e")
    assert all(len(group) <= 3 for group in groups(index, single_consumer(most=3)))
    assert len(groups(index, single_consumer(most=3))) == 2
    # By weight: b and c together weigh 6.
    weight = np.array([1.0, 4.0, 2.0, 1.0, 1.0])
    assert groups(index, single_consumer(weight_of_op=weight, most=5.0)) == sets("a b", "c d e")


def test_contraction_survives_cycles_between_groups():
    # The groups {a, d} and {b, c} feed each other: one successor each.
    index = graph("p/a", "q/b p/a", "q/c", "p/d q/c")
    scopes = name_scope(r"^(\w)/")
    assert groups(index, scopes) == sets("p/a p/d", "q/b q/c")
    assert groups(index, scopes, single_consumer()) == sets("p/a p/d q/b q/c")


def test_name_scope_groups_by_what_is_captured():
    index = graph("lstm_0/step_0/x", "lstm_0/step_1/x", "lstm_0/step_0/y", "lstm_1/step_0/x", "z")
    assert groups(index, name_scope(r"lstm_(\d+)/step_(\d+)/")) == sets(
        "lstm_0/step_0/x lstm_0/step_0/y", "lstm_0/step_1/x", "lstm_1/step_0/x", "z"
    )
    assert len(groups(index, name_scope(r"lstm_\d+/"))) == 3
    with pytest.raises(ValueError, match="not a regular expression"):
        name_scope("(")


def test_default_groups_of_tf_gradients():
    with tf.Graph().as_default() as g:
        x = tf1.placeholder(tf.float32, (2, 2), name="x")
        y = tf.tanh(tf.matmul(x, x, name="product"), name="squash")
        tf1.gradients(y, x)
    index = index_graph(g.as_graph_def())
    result = groups(index, default_groups)
    of = {name: group for group in result for name in group}
    assert of["gradients/squash_grad/TanhGrad"] is of["squash"]
    assert of["gradients/product_grad/MatMul"] is of["gradients/product_grad/MatMul_1"] is of["product"]
    assert of["product"] is not of["squash"]
    assert of["x"] == {"x"}


def test_default_groups_of_a_tape():
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.name_scope("layer"):
                y = tf.tanh(tf.matmul(x, x, name="product"), name="squash")
        return tape.gradient(y, x)

    index = index_graph(step.get_concrete_function(tf.TensorSpec((2, 2))).graph.as_graph_def())
    units = form_units(index, [default_groups])
    gradients = [
        name for name in index.names if "gradient_tape" in name and name.split("/")[-1][:6] == "MatMul"
    ]
    assert gradients
    for name in gradients:
        forward = index.id_of_name["layer/product"]
        assert units.unit_of_op[index.id_of_name[name]] == units.unit_of_op[forward], name


def test_default_groups_fall_back_to_the_scope_and_leave_strangers():
    index = graph(
        "m/d/MatMul", "m/d/Add", "gradient_tape/m/d/BiasGrad", "gradient_tape/other/x", "gradient_tape"
    )
    assert groups(index, default_groups) == sets(
        "m/d/MatMul gradient_tape/m/d/BiasGrad", "m/d/Add", "gradient_tape/other/x", "gradient_tape"
    )


def test_a_constant_that_must_be_elsewhere_is_not_attached():
    index = graph("v:Const", "tied:Const", "near v", "also v", "far tied")
    index.graph_def.node[1].attr["_class"].list.s.append(b"loc:@v")
    assert groups(index, attach_constants) == sets("v tied", "near", "also", "far")


def test_attach_constants():
    index = graph("one:Const", "two:Const", "a one two", "b two", "none:Const")
    assert groups(index, attach_constants) == sets("one a", "two", "b", "none")
    # Two readers in one unit are one reader.
    tied = graph("two:Const", "p/a two", "p/b two")
    assert groups(tied, name_scope("p/"), attach_constants) == sets("two p/a p/b")


def test_heuristics_only_add_to_the_hard_units():
    index = graph("v:VarHandleOp", "r:ReadVariableOp v", "c:Const", "a:AddV2 r c")
    hard = groups(index)
    assert hard == sets("v r", "c", "a")
    assert groups(index, attach_constants) == sets("v r", "c a")
    merges = form_units(index, [attach_constants]).merges
    assert [m.rule for m in merges] == ["resource_edges", "attach_constants"]


@pytest.mark.parametrize(("layout", "tied"), [("NCHW", True), ("NHWC", False)])
def test_the_gradient_of_a_channels_first_pool_is_tied_to_it(layout, tied):
    with tf.Graph().as_default() as made:
        x = tf1.placeholder(tf.float32, [2, 8, 8, 8], name="x")
        y = tf.nn.max_pool2d(x, 2, 2, "SAME", data_format=layout, name="pool")
        tf1.gradients(y, x)
    index = index_graph(made.as_graph_def())
    merges = list(attach_pools(index, form_units(index)))
    names = {(index.op_types[merge.op_a], index.op_types[merge.op_b]) for merge in merges}
    assert names == ({("MaxPool", "MaxPoolGrad")} if tied else set())
