"""Each soft rule on a graph of a few ops; contraction against the obvious loop."""

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import index_graph
from colocation.units import (
    attach_constants,
    attach_pools,
    default_groups,
    form_units,
    name_scope,
    single_consumer,
)
from tests.colocation.graph_texts import graph, groups, sets

tf1 = tf.compat.v1


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
