"""Calls functions whole and by plans of their batch in parts over logical devices, and prints what differs, as JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs.
"""

from __future__ import annotations

import pathlib
import tempfile
import warnings
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES, report
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.placed_function import placed_function
from tf_placer.rewrite.rewrite import apply_placement, place_meta_graph
from tf_placer.rewrite.saved_model import export_saved_model
from tf_placer.transform.split.split_batch import split

CLOSE = 1e-5  # of the largest number: the order of sums, in float32


def plan_of(item: Item, parts: int, batch_statistics: str = "whole") -> Placement:
    """A random legal plan of a program with its batch in parts."""
    problem = analytic_problem(split(item, parts, batch_statistics), Cluster.logical(NUM_DEVICES))
    row = np.random.default_rng(parts).integers(NUM_DEVICES, size=problem.num_units)
    return Placement(problem, problem.legalized(row[np.newaxis])[0])


def are_close(expected: object, found: object) -> bool:
    pairs = zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True)
    return all(
        np.abs(np.asarray(a) - np.asarray(b)).max() <= CLOSE * max(np.abs(np.asarray(a)).max(), 1e-3)
        for a, b in pairs
    )


def refusal(run: Callable[[], object]) -> str:
    """The one line with which something is refused; empty where it is not."""
    try:
        run()
    except InputError as error:
        return str(error)
    return ""


class Step(tf.Module):
    """A training step of two layers, with outputs for each example and a loss."""

    def __init__(self) -> None:
        super().__init__()
        tf.random.set_seed(0)
        self.first = tf.Variable(tf.random.stateless_normal([6, 8], [1, 2]))
        self.second = tf.Variable(tf.random.stateless_normal([8, 3], [3, 4]))

    @tf.function
    def __call__(self, x, y):
        with tf.GradientTape() as tape:
            logits = tf.nn.relu(x @ self.first) @ self.second
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        weights = [self.first, self.second]
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss, "logits": logits}


def examples(count: int) -> tuple[tf.Tensor, tf.Tensor]:
    numbers = np.random.default_rng(count)
    return (
        tf.constant(numbers.normal(size=[count, 6]), tf.float32),
        tf.constant(numbers.integers(3, size=[count])),
    )


def outputs_and_updates() -> bool:
    """Also of a batch that the parts do not divide."""
    found = []
    for parts, count in ((2, 8), (3, 8), (4, 4)):
        one, other, given = Step(), Step(), examples(count)
        plan = plan_of(Item.from_function(other.__call__, *given), parts)
        placed = placed_function(other.__call__, plan, *given)
        for _ in range(3):
            found.append(are_close(one(*given), placed(*given)))
        found.append(are_close([one.first, one.second], [other.first, other.second]))
        found.append(len({op.device for op in placed.graph.get_operations() if op.device}) > 1)
    return all(found)


def gradients_from_outside() -> bool:
    weight, x = (
        tf.Variable(tf.random.stateless_normal([5, 4], [1, 2])),
        tf.random.stateless_normal([6, 5], [3, 4]),
    )

    @tf.function
    def forward(x):
        return tf.reduce_mean(tf.tanh(x @ weight), axis=1)

    def gradients(function) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(loss, [x, weight])

    expected = gradients(forward)
    return are_close(
        expected, gradients(placed_function(forward, plan_of(Item.from_function(forward, x), 2), x))
    )


def a_plan_file() -> bool:
    step, given = Step(), examples(8)
    item = Item.from_function(step.__call__, *given)
    plan = plan_of(item, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "placement.json"
        plan.save(path)
        again = Placement.load(path, plan.problem)
        of_whole = refusal(lambda: Placement.load(path, analytic_problem(item, plan.problem.cluster)))
    expected = Step()(*given)
    graph = apply_placement(item, again)
    return (
        "is for this graph with a batch of 8 in 2 parts; build the problem of tf_placer.split(item, 2"
        in of_whole
        and {node.name: node.device for node in graph.node} == plan.device_names
        and are_close(expected, placed_function(step.__call__, again, *given)(*given))
    )


def another_batch_or_graph_is_refused_and_nothing_moves() -> bool:
    step, given = Step(), examples(8)
    plan = plan_of(Item.from_function(step.__call__, *given), 2)
    before = step.first.device
    of_batch = refusal(lambda: placed_function(step.__call__, plan, *examples(6)))
    of_graph = refusal(lambda: placed_function(tf.function(lambda x: x @ step.first), plan, given[0]))
    says = "with a batch of 8 in 2 parts"
    return all(says in one and "another graph or batch" in one for one in (of_batch, of_graph)) and (
        step.first.device == before
    )


def examples_of_any_number() -> bool:
    """Traced for any batch, a plan of parts runs with its own alone."""
    weight = tf.Variable(tf.ones([3, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def forward(x):
        return tf.nn.relu(x @ weight)

    x = tf.random.stateless_normal([4, 3], [1, 2])
    placed = placed_function(forward, plan_of(Item.from_function(forward, x), 2), x)
    try:
        placed(tf.ones([6, 3]))
    except tf.errors.InvalidArgumentError as error:
        text = str(error)
        says = "[6,3] is not compatible with expected shape [4,3]" in text and "parts_are_of_4" in text
        return are_close(forward(x), placed(x)) and says
    return False


def statistics_of_parts() -> bool:
    """Of each part, where the plan was made so, in a Keras model."""
    x = tf.random.stateless_normal([8, 4], [1, 2])
    layer = keras.layers.BatchNormalization()
    layer.build([None, 4])
    step = tf.function(lambda x: layer(x, training=True))
    item = Item.from_function(step, x)
    expected = step(x)
    of_parts = tf.concat([step(x[:4]), step(x[4:])], 0)
    own = placed_function(step, plan_of(item, 2, "part"), x)(x)
    whole = placed_function(step, plan_of(item, 2), x)(x)
    return are_close(expected, whole) and are_close(of_parts, own) and not are_close(expected, own)


def a_saved_model() -> bool:
    """A signature with its batch in parts answers as before; what reads its variables is named."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
    model.build([None, 5])
    x = np.random.default_rng(0).normal(size=[6, 5]).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder) / "model", pathlib.Path(folder) / "placed"
        model.export(source, verbose=False)
        plan = plan_of(Item.from_saved_model(source, "serving_default", 6), 2)
        of_batch = refusal(lambda: export_saved_model(source, target, plan, batch_size=4))
        was_written = target.exists()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            export_saved_model(source, target, plan, batch_size=6)
        loaded = load_saved_model(target)
        found = next(iter(loaded.signatures["serving_default"](tf.constant(x)).values()))
        by_object = loaded.serve(tf.constant(x))
        try:
            loaded.signatures["serving_default"](tf.constant(x[:4]))
            of_others = ""
        except tf.errors.InvalidArgumentError as error:
            of_others = str(error)
    return (
        are_close(model(x), found)
        and are_close(model(x), by_object)
        and "[4,5] is not compatible with expected shape [6,5]" in of_others
        and "parts_are_of_6" in of_others
        and "with a batch of 6 in 2 parts" in of_batch
        and not was_written
        and any("serve run unplaced" in str(one.message) for one in told)
    )


def a_meta_graph_is_refused() -> bool:
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, 3], "x")
        tf.nn.relu(x, "y")
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=graph.as_graph_def())
    plan = plan_of(Item.from_meta_graph(meta_graph, ["y:0"]), 2)
    return "devices alone cannot say that" in refusal(lambda: place_meta_graph(meta_graph, plan))


CHECKS: tuple[Callable[[], bool], ...] = (
    outputs_and_updates,
    gradients_from_outside,
    a_plan_file,
    another_batch_or_graph_is_refused_and_nothing_moves,
    examples_of_any_number,
    statistics_of_parts,
    a_saved_model,
    a_meta_graph_is_refused,
)


def main() -> None:
    report(CHECKS)


if __name__ == "__main__":
    main()
