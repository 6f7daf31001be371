"""Tests the layers of programs: of Keras models, of programs with scopes of their own, and of graphs without any."""

import dataclasses
import re
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.layers import NO_LAYER, ROOT, Layers, layers_of
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
            return tf.while_loop(
                lambda i, _: i < 3, lambda i, x: (i + 1, tf.nn.relu(x @ self.w)), [tf.constant(0), x]
            )[1]

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
