"""Layers of programs, rows of tables of layers, and plans of layers: written, edited and read, one placement."""

import dataclasses
import json
import re
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.layers import (
    NO_LAYER,
    ROOT,
    Layers,
    below,
    layer_names,
    layer_of_neighbours,
    layer_of_unit,
    layer_rows,
    layers_of,
    scopes_of,
    variable_scopes,
    without_count,
)
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.problem.problem import Problem


def layers_of_function(function, *arguments) -> tuple[Problem, Layers]:
    item = Item.from_function(tf.function(function), *arguments)
    problem = analytic_problem(item, small_cluster())
    return problem, layers_of(problem)


def ops_in(problem: Problem, layers: Layers, name: str) -> list[str]:
    inside = layers.is_inside(layers.names.index(name))[layers.layer_of_op]
    return [op for op, here in zip(problem.op_names, inside, strict=True) if here]


def named(names, edges=(), types=None) -> Layers:
    problem = problem_of([1] * len(names), edges, names=names)
    if types is not None:
        problem = dataclasses.replace(problem, op_types=tuple(types))
    return layers_of(problem)


def test_keras_train_step_has_the_layers_of_its_model():
    model = keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(4, name="first", activation="relu"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dropout(0.5, name="drop"),
            keras.layers.Dense(2, name="last"),
        ],
        name="model",
    )
    model.compile("adam", "mse")
    x, y = tf.ones([4, 8]), tf.ones([4, 2])
    model.train_on_batch(x, y)
    problem, layers = layers_of_function(lambda x, y: model.train_step((x, y)), x, y)
    inside = [layers.names[one] for one in layers.children[layers.names.index("model")]]
    assert inside == [f"model/{name}" for name in ("first", "norm", "drop", "last")]
    of_last = ops_in(problem, layers, "model/last")
    for kind in ("last_1/MatMul", "gradient_tape", "last/kernel", "/model_last_kernel_momentum"):
        assert any(kind in op for op in of_last), kind
    # Every update of the optimizer is in the layer of its variable: none is left to it.
    updates = {"AssignSubVariableOp", "AssignAddVariableOp"}
    of_model = set(ops_in(problem, layers, "model"))
    is_update = [kind in updates for kind in problem.op_types]
    left = {op for op, is_one in zip(problem.op_names, is_update, strict=True) if is_one} - of_model
    steps = re.compile(r"adam(_\d+)?/AssignAddVariableOp")  # counted, where the process has made another Adam
    assert not [op for op in left if "adam" in op and not steps.fullmatch(op)]


def test_variables_in_modules_and_loops():
    class Encoder(tf.Module):
        def __init__(self, name: str) -> None:
            super().__init__(name=name)
            with self.name_scope:
                self.w = tf.Variable(tf.ones([4, 4]), name="w")

        @tf.Module.with_name_scope
        def __call__(self, x):
            body = lambda i, x: (i + 1, tf.nn.relu(x @ self.w))  # noqa: E731
            return tf.while_loop(lambda i, _: i < 3, body, [tf.constant(0), x])[1]

    towers = [Encoder("left"), Encoder("right")]

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(towers[1](towers[0](x)))
        for tower, gradient in zip(towers, tape.gradient(loss, [t.w for t in towers]), strict=True):
            tower.w.assign_sub(gradient)
        return loss

    problem, layers = layers_of_function(step, tf.ones([4, 4]))
    assert {"left", "right"} <= set(layers.names)
    for name in ("left", "right"):
        inside = ops_in(problem, layers, name)
        assert f"{name}/w" in inside
        kinds = {problem.op_types[problem.op_names.index(op)] for op in inside}
        assert {"VarHandleOp", "AssignSubVariableOp"} <= kinds and any("While" in kind for kind in kinds)


def test_no_scopes_at_all_are_one_layer():
    layers = named(["x", "y", "z"], [(0, 1), (1, 2)])
    assert layers.names == (NO_LAYER,)
    assert layers.parent.tolist() == [ROOT] and layers.layer_of_op.tolist() == [0, 0, 0]


def test_a_program_without_variables_has_a_layer_for_each_scope():
    layers = named(["a/b/x", "a/c/x", "a/y", "d/x"], [(0, 1), (1, 2), (2, 3)])
    assert layers.names == ("a", "a/b", "a/c", "d")
    assert layers.parent.tolist() == [ROOT, 0, 0, ROOT]
    assert layers.layer_of_op.tolist() == [1, 2, 0, 3]
    assert layers.is_inside(0).tolist() == [True, True, True, False]
    assert layers.sums(np.array([1, 2, 4, 8])).tolist() == [7, 1, 2, 8]
    assert layers.children == [[1, 2], [], [], [], [0, 3]]


def test_a_scope_without_variables_inside_is_whole():
    layers = named(
        ["a/v", "a/x/read", "a/moments/mean", "b/moments/mean"],
        [(0, 1), (1, 2), (2, 3)],
        ["VarHandleOp", "ReadVariableOp", "Mean", "Mean"],
    )
    assert layers.names == ("a", "b")


@pytest.mark.alone
def test_eighty_thousand_ops_take_seconds():
    count = 80_000
    names = [f"model/layer_{op // 100}/{'gradient/' if op % 2 else ''}op_{op}" for op in range(count)]
    edges = np.stack([np.arange(count - 1), np.arange(1, count)], axis=1)
    problem = problem_of(np.ones(count), edges, names=names)
    problem.op_graph.producer.sum()
    began = time.process_time()
    layers = layers_of(problem)
    assert time.process_time() - began < 4  # one on an idle core
    assert len(layers) == 1 + 2 * count // 100


def test_layers_stand_before_what_is_inside_them():
    rng = np.random.default_rng(0)
    for _ in range(50):
        names = {"/".join(rng.choice(list("abc"), rng.integers(1, 5))) + f"/op{i}" for i in range(30)}
        layers = named(sorted(names))
        assert all(parent < layer for layer, parent in enumerate(layers.parent.tolist()))
        assert len(set(layers.names)) == len(layers)
        for op, layer in zip(sorted(names), layers.layer_of_op.tolist(), strict=True):
            assert op.rpartition("/")[0] == layers.names[layer]


NAMES = ["a/x/1", "a/x/2", "a/y/1", "b.c+[d]/1", "b.c+[d]/2", "alone"]
GPU = [f"/job:localhost/replica:0/task:0/device:GPU:{d}" for d in range(3)]


def a_problem(num_devices: int = 2, **more) -> Problem:
    chain = [(op, op + 1) for op in range(len(NAMES) - 2)]  # the last op feeds nothing and reads nothing
    return problem_of([1] * len(NAMES), chain, names=NAMES, cluster=small_cluster(num_devices), **more)


def written(problem: Problem, row) -> dict:
    return json.loads(Placement(problem, np.array(row, np.int32)).to_json(by_layer=True))


def read(problem: Problem, plan: dict) -> Placement:
    return Placement.from_json(json.dumps(plan), problem, "plan.json")


def test_whole_layers_are_a_line_each_and_what_is_around_them_stands_for_all():
    plan = written(a_problem(), [0, 0, 0, 1, 1, 0])
    assert plan["layers"] == {"a": GPU[0], "b.c+[d]": GPU[1], NO_LAYER: GPU[0]}
    assert plan["devices"] == {}
    assert plan["schema_version"] == 3
    assert written(a_problem(), [1, 1, 0, 1, 1, 0])["layers"]["a/x"] == GPU[1]


def test_a_layer_that_is_split_lists_the_ops_that_are_elsewhere():
    plan = written(a_problem(), [0, 0, 0, 0, 1, 0])
    assert plan["layers"] == {"a": GPU[0], "b.c+[d]": GPU[0], NO_LAYER: GPU[0]}
    assert plan["devices"] == {"b.c+[d]/2": GPU[1]}


def test_an_edited_line_moves_all_its_ops():
    problem = a_problem()
    plan = written(problem, [0, 0, 0, 1, 1, 0])
    plan["layers"]["a"] = GPU[1]
    assert read(problem, plan).device_of_unit.tolist() == [1, 1, 1, 1, 1, 0]
    plan["layers"]["a/x"] = GPU[0]
    assert read(problem, plan).device_of_unit.tolist() == [0, 0, 1, 1, 1, 0]
    plan["devices"] = {"a/x/2": GPU[1]}
    assert read(problem, plan).device_of_unit.tolist() == [0, 1, 1, 1, 1, 0]


def test_ops_that_share_a_device_go_with_the_layer_that_most_of_them_are_of():
    # a/x/1, a/x/2 and b/1 are one unit, and of the two in another the first one's layer has it.
    problem = a_problem(unit_of_op=np.array([0, 0, 1, 0, 1, 2]))
    layers = layers_of(problem)
    assert [layers.names[one] for one in layer_of_unit(problem, layers)] == ["a/x", "a/y", NO_LAYER]
    plan = written(problem, [1, 0, 0])
    plan["layers"] = {"a": GPU[0], "a/x": GPU[1], "b.c+[d]": GPU[0], NO_LAYER: GPU[0]}
    assert read(problem, plan).device_of_op.tolist() == [1, 1, 0, 1, 0, 0]
    plan["devices"] = {"b.c+[d]/1": GPU[0]}  # an op that is listed takes its unit with it
    assert read(problem, plan).device_of_op.tolist() == [0] * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan["layers"].update({"a/z": GPU[0]}), r"plan.json has a line of layer 'a/z'.*; did you mean"),
        (lambda plan: plan["layers"].update({"a": "GPU:7"}), r"plan.json: layer 'a' is on 'GPU:7'.*; it has"),
        (lambda plan: plan["layers"].pop("a"), r"plan.json: no device for op 'a/x/1'"),
        (lambda plan: plan["devices"].update({"c": GPU[0]}), r"plan.json names op 'c', which the graph lacks"),
        (lambda plan: plan.update(fingerprint="00"), r"plan.json was made for another graph"),
        (lambda plan: plan.update(schema_version=1), r"does not fit the schema"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_told_by_its_name(change, message):
    problem = a_problem()
    plan = written(problem, [0, 0, 0, 1, 1, 0])
    change(plan)
    with refused(message):
        read(problem, plan)


def test_a_layer_cannot_be_where_one_of_its_ops_has_no_kernel():
    allowed = np.ones((6, 2), bool)
    allowed[1] = True, False
    problem = a_problem(allowed=allowed)
    plan = written(problem, [1, 0, 1, 1, 1, 1])
    assert plan["layers"]["a"] == GPU[1] and plan["devices"] == {"a/x/2": GPU[0]}
    assert read(problem, plan).device_of_unit.tolist() == [1, 0, 1, 1, 1, 1]
    plan["devices"] = {}
    with refused(r"layer 'a/x' is on '.*GPU:1', where its op 'a/x/2' cannot be; .*GPU:0"):
        read(problem, plan)


def test_listed_ops_of_one_unit_on_two_devices_are_refused():
    problem = a_problem(unit_of_op=np.array([0, 0, 1, 2, 3, 4]))
    plan = written(problem, [0, 0, 0, 0, 0])
    plan["devices"] = {"a/x/1": GPU[0], "a/x/2": GPU[1]}
    with refused("must share its device"):
        read(problem, plan)


def test_a_part_of_a_plan_leaves_out_what_is_not_there():
    problem = a_problem()
    text = json.dumps(written(problem, [0, 0, 0, 1, 1, 0]) | {"layers": {"b.c+[d]": GPU[1], "z": GPU[0]}})
    plan = PlanFile.parse(text, "plan.json").op_by_op(problem, is_part=True)
    assert plan.device_of_op(problem) == {3: 1, 4: 1}


def test_schedules_stay():
    problem = a_problem()
    placement = Placement(problem, np.zeros(6, np.int32), np.arange(6), np.zeros(6, np.int32))
    found = Placement.from_json(placement.to_json(by_layer=True), problem)
    assert found.decisions.digest(0, problem) == placement.decisions.digest(0, problem)


@pytest.mark.parametrize("seed", range(40))
def test_any_placement_is_read_as_it_was_written(seed):
    rng = np.random.default_rng(seed)
    ops, devices = int(rng.integers(1, 40)), int(rng.integers(1, 4))
    names = ["/".join([*rng.choice(list("ab+"), rng.integers(0, 4)), f"op{op}"]) for op in range(ops)]
    units = np.unique(rng.integers(0, ops, ops), return_inverse=True)[1]
    allowed = np.ones((ops, devices), bool)
    allowed[rng.random(ops) < 0.2, 0] = devices == 1
    problem = problem_of(
        [1] * ops, [(a, a + 1) for a in range(ops - 1)], names=names, cluster=small_cluster(devices),
        unit_of_op=units, allowed=allowed,
    )  # fmt: skip
    types = rng.choice(["VarHandleOp", "MatMul", ""], ops)
    problem = dataclasses.replace(problem, op_types=tuple(types.tolist()))
    row = problem.legalized(rng.integers(0, devices, problem.num_units))
    if rng.random() < 0.5:  # most of it on one device, as plans are
        row = problem.legalized(np.where(rng.random(problem.num_units) < 0.9, 0, row))
    text = Placement(problem, row).to_json(by_layer=True)
    assert Placement.from_json(text, problem).device_of_unit.tolist() == row.tolist()
    assert len(json.loads(text)["devices"]) <= problem.num_units


ROW_NAMES = ["a/x/1", "a/x/2", "a/y/1", "b/1", "b/2", "alone"]


def rows_of(row, most=30, **more):
    chain = [(op, op + 1) for op in range(4)]
    problem = problem_of([1, 2, 4, 8, 16, 0], chain, 10, None, [1, 2, 4, 8, 16, 32], names=ROW_NAMES, **more)
    return problem, layer_rows(problem, layers_of(problem), np.array(row, np.int32), most)


def test_a_row_has_all_that_is_inside_it():
    problem, rows = rows_of([0, 1, 0, 1, 1, 0])
    found = {
        row.name: (row.num_ops, row.compute_ns.tolist(), row.resident_bytes, row.output_bytes) for row in rows
    }
    assert found == {
        "a": (3, [5, 2], 7, 30),
        "a/x": (2, [1, 2], 3, 20),
        "a/y": (1, [4, 0], 4, 10),
        "b": (2, [0, 24], 24, 10),
        "(no layer)": (1, [0, 0], 32, 0),
    }
    assert [row.depth for row in rows] == [0, 1, 1, 0, 0]
    labels = problem.cluster.labels
    parted = ["GPU:0 71.4%, GPU:1 28.6%", "GPU:1 66.7%, GPU:0 33.3%"]
    assert [row.on(labels) for row in rows] == [*parted, "GPU:0", "GPU:1", "GPU:0"]


def test_ops_that_cost_nothing_are_counted_where_they_are():
    _, rows = rows_of([0, 0, 0, 1, 1, 0])
    names = ["g", "h"]
    assert [row.on(names) for row in rows] == ["g", "g", "g", "h", "g"]
    free = problem_of([1, 0], [(0, 1)], names=["a/1", "a/2"])
    assert layer_rows(free, layers_of(free), np.array([0, 1], np.int32))[0].on(names) == "g, 1 ops on h"


@pytest.mark.parametrize("most", range(1, 7))
def test_there_are_no_more_rows_than_there_is_room_for_and_the_tree_adds_up(most):
    _, rows = rows_of([0, 1, 0, 1, 1, 0], most)
    assert 1 <= len(rows) <= most
    assert sum(row.num_ops for row in rows if row.depth == 0) == 6


def test_what_takes_least_is_one_row():
    _, rows = rows_of([0] * 6, most=2)
    assert [(row.name, row.num_ops) for row in rows] == [("b", 2), ("(2 more)", 4)]


FORWARD = ["a/dense/MatMul", "a/dense/kernel", "a/dense/MatMul/ReadVariableOp", "top"]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("a/dense/MatMul", ("a", "dense")),
        ("a/dense/kernel/read/Read/ReadVariableOp", ("a", "dense")),
        ("gradient_tape/a/dense/MatMul/MatMul_1", ("a", "dense")),
        ("gradients/a/dense/MatMul_grad/Shape", ("a", "dense")),
        ("gradients_1/gradient_tape/a/dense/MatMul_grad/Shape", ("a", "dense")),
        ("StatefulPartitionedCall_2/PartitionedCall/a/dense/Shape", ("a", "dense")),
        ("a/dense/IdentityN/3", ("a", "dense")),
        ("gradients/AddN_4", ()),
        ("grad_ys_0/Const", ()),
        ("top", ()),
        ("top/copy", ()),
        ("a/while_2/body/x", ("a", "while_2", "body")),
        ("a.b+c/[x]/y", ("a.b+c", "[x]")),
    ],
)
def test_scope_is_what_the_program_named(name, scope):
    names = [*FORWARD, name]
    assert scopes_of(names, ["MatMul", "VarHandleOp", "ReadVariableOp", "NoOp", "IdentityN"])[-1] == scope


def test_an_op_of_the_gradient_alone_is_no_scope():
    names = ["gradient_tape/a/concat", "gradient_tape/a/concat/axis", "a/MatMul"]
    assert scopes_of(names, ["", "", ""]) == [("a",), ("a",), ("a",)]


def test_below():
    assert below([("a", "b", "c"), ("d",)]) == {("a",), ("a", "b")}


def test_count():
    names = ("dense", "dense_1", "dense_1_2", "dense_x", "conv2d")
    assert [*map(without_count, names)] == ["dense", "dense", "dense_1", "dense_x", "conv2d"]


def found(*ops: tuple[str, str]):
    """Of (name, scope) of a variable and its readers, one after the other."""
    scopes = [tuple(scope.split("/")) if scope else () for _, scope in ops]
    return variable_scopes({0: list(range(1, len(ops)))}, scopes, [name for name, _ in ops])


def test_the_layer_of_a_variable_is_called_as_its_scope():
    result = found(("m/norm/gamma", "m/norm"), ("r", "adam"), ("r", "m_1/norm_1/inner"))
    assert result == ({0: ("m_1", "norm_1")}, {("m_1", "norm_1"): ("m", "norm")})


@pytest.mark.parametrize(
    ("ops", "home"),
    [
        ([("w", ""), ("r", ""), ("r", "tower"), ("r", "adam")], ("tower",)),  # where it is read first
        ([("loss/total", "loss"), ("r", "")], ("loss",)),  # nothing with a scope reads it
        ([("w", "")], ()),
    ],
)
def test_a_variable_whose_scope_no_reader_has(ops, home):
    assert found(*ops)[0] == {0: home}


def test_several_variables_of_one_name_are_of_the_layers_that_read_them():
    names = ["net/kernel", "net/kernel_1", "r", "r"]
    scopes = [("net",), ("net",), ("net_1", "dense_1"), ("net_1", "dense_1_2")]
    home, named_by = variable_scopes({0: [2], 1: [3]}, scopes, names)
    assert home == {0: ("net_1", "dense_1"), 1: ("net_1", "dense_1_2")}
    assert layer_names([("net_1",), *home.values()], named_by) == {
        (): (),
        ("net_1",): ("net",),
        ("net_1", "dense_1"): ("net", "dense"),
        ("net_1", "dense_1_2"): ("net", "dense_1"),
    }


def paths(text: str) -> list[tuple[str, ...]]:
    return [tuple(path.split("/")) for path in text.split()]


@pytest.mark.parametrize(
    ("layers", "variables", "names"),
    [
        # A layer that is called twice is one; what nothing counted and siblings that would be equal keep their names.
        ("f f/dense_1 f/dense_3", "f/dense_1=dense f/dense_3=dense", "f f/dense f/dense"),
        ("block_1 block_2 block_1/d_1", "block_1/d_1=block_1/d_1", "block_1 block_2 block_1/d_1"),
        ("f f/dense_1 f/einsum f/einsum_1 f/add_1", "f/dense_1=dense", "f f/dense f/einsum f/einsum_1 f/add"),
        # Scopes around a counted layer keep the name that its variables say.
        ("tower_1 tower_1/dense_1", "tower_1/dense_1=tower_1/dense", "tower_1 tower_1/dense"),
    ],
)
def test_layers_are_called_as_the_scopes_of_their_variables(layers, variables, names):
    named_by = dict(paths(line.replace("=", " ")) for line in variables.split())
    assert layer_names(paths(layers), named_by) == {(): ()} | dict(
        zip(paths(layers), paths(names), strict=True)
    )


A, B, NONE = ("a",), ("b",), ()


@pytest.mark.parametrize(
    ("given", "edges", "expected"),
    [
        ([A, NONE, NONE, B], [(0, 1), (1, 2), (2, 3)], [A, A, A, B]),  # of all that it reads
        ([A, B, NONE, NONE, A], [(0, 2), (1, 2), (2, 3), (3, 4)], [A, B, A, A, A]),  # else of what it feeds
        ([NONE, A, NONE], [(0, 2), (1, 2)], [A, A, A]),  # a constant disagrees with nothing
        ([A, B, NONE, A, B], [(0, 2), (1, 2), (2, 3), (2, 4)], [A, B, NONE, A, B]),  # all disagree
        ([NONE], [], [NONE]),
    ],
)
def test_layers_of_neighbours(given, edges, expected):
    pairs = np.array(edges, np.int32).reshape(-1, 2)
    assert layer_of_neighbours(given, pairs[:, 0], pairs[:, 1]) == expected
