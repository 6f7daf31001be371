"""A function with clusters is the same callable: results, gradients, variables, other sizes, saved and loaded."""

import dataclasses
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_function import traced
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.placed_function import placed_function
from tf_placer.rewrite.saved_model import export_saved_model
from tf_placer.transform.fusion import PREFIX, RULES, convex_clusters

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact="soft")]

CLOSE = 1e-5


def plan_of(item: Item, rule: str = "everything", least: int = 4) -> Placement:
    problem = analytic_problem(item, Cluster.logical(1))
    plain = Placement(problem, problem.everything_on(0))
    clusters = convex_clusters(item, RULES[rule].labels(item), plain.device_names, least)
    assert clusters.max() >= 0, "there is something to fuse"
    return Placement(problem, plain.device_of_unit, None, clusters)


def fuse(function, *example_args, rule: str = "everything"):
    concrete = traced(function, example_args)
    plan = plan_of(Item.from_function(concrete, *example_args), rule)
    return placed_function(concrete, plan, *example_args)


def close(one, other) -> bool:
    return all(
        np.allclose(a, b, CLOSE, CLOSE) for a, b in zip(*map(tf.nest.flatten, (one, other)), strict=True)
    )


def test_training():
    weights = [tf.Variable(tf.random.stateless_normal([8, 8], [n, 0]) / 3.0) for n in range(3)]
    start = [weight.numpy() for weight in weights]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            hidden = x
            for weight in weights:
                hidden = tf.tanh(hidden @ weight) * 0.5 + hidden
            loss = tf.reduce_mean(hidden**2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    def losses(function):
        for weight, value in zip(weights, start, strict=True):
            weight.assign(value)
        return [function(tf.ones([4, 8])) for _ in range(3)], [weight.numpy() for weight in weights]

    expected = losses(step)
    found = fuse(step, tf.ones([4, 8]))
    calls = [op for op in found.graph.get_operations() if op.name.startswith(PREFIX)]
    assert close(losses(found), expected)
    assert calls


def test_other_sizes():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def f(x):
        return tf.reduce_sum(tf.nn.softmax(x * 2.0 + 1.0) ** 2, axis=1)

    found = fuse(f, tf.ones([4, 3]))
    same = [close(found(x), f(x)) for x in (tf.random.normal([4, 3]), tf.random.normal([7, 3]))]
    assert all(same)
    assert found.structured_outputs.shape.as_list() == [None]


def test_gradient_from_outside():
    weights = tf.Variable(tf.random.stateless_normal([3, 3], [1, 2]))
    f = tf.function(lambda x: tf.reduce_sum(tf.sin(tf.exp(x @ weights) * 0.5) + x, axis=0))

    def gradients(function):
        x = tf.constant([[0.1, -0.2, 0.3]])
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = function(x)
            first = tape.gradient(y, [x, weights])
        return first, outer.gradient(first[0], x)

    assert close(gradients(fuse(f, tf.ones([1, 3]))), gradients(f))


def test_nested_and_saved():
    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0, 3.0])
    f = tf.function(lambda x: tf.tanh(x * module.weight) * 2.0 + tf.exp(x))
    x = tf.constant([0.1, 0.2, 0.3])
    found = fuse(f, x)
    module.serve = tf.function(lambda y: found(y) + 1.0, input_signature=[tf.TensorSpec([3])])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        again = tf.saved_model.load(folder)
        assert close(again.serve(x), f(x) + 1.0)


def test_exported_saved_model():
    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([3], name="x")])
    def serve(x):
        return {"y": tf.tanh(x * module.weight) * 2.0 + tf.exp(x)}

    x = tf.constant([0.1, 0.2, 0.3])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, f"{folder}/plain", signatures={"serving_default": serve})
        item = Item.from_saved_model(f"{folder}/plain")
        plan = dataclasses.replace(plan_of(item), priority_of_op=np.arange(len(item.index.names))[::-1])
        export_saved_model(f"{folder}/plain", f"{folder}/fused", plan)
        kept = Placement.load(f"{folder}/fused/assets.extra/placement/serving_default.json", plan.problem)
        assert np.array_equal(kept.priority_of_op, plan.priority_of_op)
        assert np.array_equal(kept.cluster_of_op, plan.cluster_of_op)
        calls = [name for name in Item.from_saved_model(f"{folder}/fused").index.names if PREFIX in name]
        loaded = load_saved_model(f"{folder}/fused")
        assert close(loaded.signatures["serving_default"](x)["y"], serve(x)["y"])
        assert calls


def test_keras_training():
    def fitted(is_fused: bool):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        x, y = np.ones([16, 4], np.float32), np.ones([16, 1], np.float32)
        model.build([None, 4])
        if is_fused:
            model.make_train_function()
            step = tf.function(lambda iterator: model.train_step(next(iterator)))

            def examples():
                return iter(tf.data.Dataset.from_tensors((tf.constant(x), tf.constant(y))).repeat())

            concrete = step.get_concrete_function(examples())
            item = Item.from_function(concrete, examples())
            placed = placed_function(concrete, plan_of(item, "regions"), examples())
            iterator = examples()
            for _ in range(3):
                placed(iterator)
        else:
            model.fit(x, y, batch_size=16, epochs=3, verbose=0, shuffle=False)
        return [weight.numpy() for weight in model.trainable_variables]

    assert close(fitted(True), fitted(False))


def test_built_again():
    """A plan, fused or not, in memory or as a file, of a Keras model whose second copy has other names."""

    def step():
        model = keras.Sequential(
            [keras.layers.Dense(8, "tanh"), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
        )
        model.build([4, 3])
        return model, tf.function(lambda x: tf.reduce_mean(model(x) ** 2))

    x = tf.ones([4, 3])
    (_, before), (model, after) = step(), step()
    plan = plan_of(Item.from_function(before, x))
    item = Item.from_function(after, x)
    assert set(plan.problem.op_names) != set(item.index.names)
    from_file = Placement.from_json(plan.to_json(), analytic_problem(item, Cluster.logical(1)))
    assert np.array_equal(from_file.cluster_of_op, plan.cluster_of_op)
    plans = [plan, from_file, dataclasses.replace(plan, cluster_of_op=None)]
    renamed = tf.function(lambda x: tf.reduce_mean(model(x, training=False) ** 2, name="average"))
    for one in plans[::2]:
        with pytest.raises(InputError, match="is for a program with op"):
            placed_function(renamed, one, x)
    assert all(close(placed_function(after, one, x)(x), after(x)) for one in plans)


def test_errors_are_raised():
    """By functions that are fused as far as they may be: each is given what raises an error without clusters."""
    table = tf.Variable(tf.random.stateless_normal([5, 4], [1, 2]))

    def classes(x, n):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(n, tf.tanh(x * 2.0) + 1.0) * 2.0

    def gathered(x, n):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.tanh(tf.gather(table, n) * 2.0)) + tf.reduce_sum(tf.exp(x) * 0.5)
        return y, tf.convert_to_tensor(tape.gradient(y, table)) * 2.0

    def cut(x, n):  # in range only as long as the largest number is not in the last place
        at = tf.argmax(tf.exp(x[0]) * 2.0, output_type=tf.int32) + tf.reduce_max(n)
        return tf.exp(x)[:, at] * 2.0 + 1.0

    def remainder(x, n):
        return tf.exp(x) * tf.cast(7 // n[:, tf.newaxis] % 5, tf.float32) + 1.0

    good, bad = (tf.constant([[0.9, 0.1, 0.2, 0.3]] * 3), tf.constant([0, 1, 2])), tf.constant([1, 9, 0])
    for function, number in (
        (classes, good[1]),
        (gathered, good[1]),
        (cut, good[1]),
        (remainder, good[1] + 1),
    ):
        plain = tf.function(function)
        plan = plan_of(Item.from_function(plain, good[0], number), least=1)
        fused = placed_function(plain, plan, good[0], number)
        assert any(op.name.startswith(PREFIX) for op in fused.graph.get_operations())
        assert close(fused(good[0], number), plain(good[0], number))
        for one in (plain, fused):
            with pytest.raises(tf.errors.InvalidArgumentError):
                one(good[0], bad)


def test_cycle_is_refused():
    @tf.function
    def f(x):
        y = tf.exp(x, name="first") + 1.0
        return tf.tanh(tf.linalg.matmul(y, y) + y, name="last")

    x = tf.ones([2, 2])
    item = Item.from_function(f, x)
    problem = analytic_problem(item, Cluster.logical(1))
    clusters = [0 if name in ("first", "last") else -1 for name in item.index.names]
    with pytest.raises(InputError, match="cluster 0 makes a cycle"):
        placed_function(f, Placement(problem, problem.everything_on(0), None, clusters), x)
