"""Good inputs, small so that a damaged one takes little time, and a damaged one from its kind and its seed."""

import dataclasses
import pathlib
import random
import shutil
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.fuzz.graph_mutations import damage_graph
from tests.fuzz.saved_model_mutations import damage_saved_model
from tests.fuzz.text_mutations import damage_cluster, damage_plan, damaged
from tests.tf_placer.rewrite.saved_models import from_tensorflow_1
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import preset_path
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem

CLUSTER = "k40x2"
SIGNATURE = "serving_default"
SAVED_MODELS = ("dense", "layers", "loop", "table", "v1")
META_GRAPH = "step.pb"
FETCHES = ("loss", "gradient", "counted")
PLAN = "placement.json"
CLUSTER_FILE = "cluster.toml"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is run, and how the input was damaged."""

    # of the command; for a plan, which a command reads only where it can be measured, its path
    argv: tuple[str, ...]
    what: str  # in words


def make_case(kind: str, seed: int, good: pathlib.Path, folder: pathlib.Path) -> Case:
    """Writes a damaged input."""
    return KINDS[kind](random.Random(f"{kind} {seed}"), good, folder)


def _saved_model(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    name, model = rng.choice(SAVED_MODELS), folder / "model"
    shutil.copytree(good / name, model)
    what = damage_saved_model(model, rng)
    return Case(_place(folder, f"--saved_model={model}"), f"{name}: {what}")


def _meta_graph(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    content = (good / META_GRAPH).read_bytes()
    fetches = ",".join(FETCHES)
    how = rng.random()
    if how < 0.2:
        content, what = damaged(content, rng)
    elif how < 0.3:
        fetches = rng.choice(
            ("", "nowhere", "loss:1", "loss:x", ":", "^loss", "x", "loss,loss", "ü", "loss:99999999999")
        )
        what = f"--fetches={fetches}"
    else:
        meta_graph = tf.compat.v1.MetaGraphDef.FromString(content)
        what = damage_graph(meta_graph.graph_def, rng)
        content = meta_graph.SerializeToString(deterministic=True)
    file = folder / "step.pb"
    file.write_bytes(content)
    return Case(_place(folder, f"--meta_graph={file}", f"--fetches={fetches}"), what)


def _plan(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    text = (good / PLAN).read_text(encoding="utf8")
    file = folder / PLAN
    if rng.random() < 0.4:
        content, what = damaged(text.encode(), rng)
    else:
        text, what = damage_plan(text, rng)
        content = text.encode()
    file.write_bytes(content)
    return Case((str(file),), what)


def _cluster(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    text = (good / CLUSTER_FILE).read_text(encoding="utf8")
    if rng.random() < 0.25:
        content, what = damaged(text.encode(), rng)
    else:
        text, what = damage_cluster(text, rng)
        content = text.encode()
    file = folder / CLUSTER_FILE
    file.write_bytes(content)
    program = (f"--meta_graph={good / META_GRAPH}", "--fetches=loss")
    return Case(_place(folder, *program, cluster=str(file)), what)


def _place(folder: pathlib.Path, *program: str, cluster: str = CLUSTER) -> tuple[str, ...]:
    search = ("--method=single", "--budget_evaluations=2")
    return ("place", *program, f"--cluster={cluster}", *search, f"--out={folder / 'out'}")


KINDS: dict[str, Callable[[random.Random, pathlib.Path, pathlib.Path], Case]] = {
    kind.__name__.removeprefix("_"): kind for kind in (_saved_model, _meta_graph, _plan, _cluster)
}


def make_originals(folder: pathlib.Path) -> None:
    """Writes all of them into a folder."""
    (folder / "words.txt").write_text("apple\nbanana\ncherry\n")
    for name, module in zip(SAVED_MODELS, (Dense(), Layers(), Loop(), Table(folder)), strict=False):
        tf.saved_model.save(module, str(folder / name), signatures={SIGNATURE: module.serve})
    from_tensorflow_1(folder)
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=step.get_concrete_function().graph.as_graph_def())
    (folder / META_GRAPH).write_bytes(meta_graph.SerializeToString(deterministic=True))
    problem = plan_problem(folder)
    ops = np.arange(problem.num_ops)
    Placement(problem, problem.everything_on(0), ops[::-1], ops // 2 - 1).save(folder / PLAN)
    (folder / CLUSTER_FILE).write_bytes(preset_path(CLUSTER).read_bytes())


def plan_problem(folder: pathlib.Path) -> Problem:
    """What the plan is for."""
    return analytic_problem(Item.from_saved_model(folder / "dense"), Cluster.preset(CLUSTER))


class Dense(tf.Module):
    """Two variables, a call in a call, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.ones([4, 3]))
        self.bias = tf.Variable(tf.zeros([3]))
        self.calls = tf.Variable(0)

    @tf.function
    def activated(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ self.weights + self.bias)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        self.calls.assign_add(1)
        return {"y": self.activated(x), "calls": self.calls.read_value()}


class Layers(tf.Module):
    """Ops whose shape functions have much to check."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = tf.Variable(tf.ones([3, 3, 3, 4]))
        self.mean = tf.Variable(tf.zeros([4]))
        self.scale = tf.Variable(tf.ones([4]))

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.float32, name="image")])
    def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        x = tf.nn.conv2d(image, self.filters, 2, "SAME")
        x, _, _ = tf.compat.v1.nn.fused_batch_norm(
            x, self.scale, self.mean, mean=self.mean, variance=self.scale, is_training=False
        )
        x = tf.nn.max_pool2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), 2, 2, "VALID")
        left, right = tf.split(x, 2, axis=3)
        x = tf.concat([tf.transpose(left, [0, 2, 1, 3]), right], axis=3)
        x = tf.reshape(x, [tf.shape(x)[0], -1])[:, 1:9]
        x = tf.einsum("bi,ij->bj", x, tf.ones([8, 5])) + tf.cast(tf.range(5), tf.float32)
        rows = tf.gather(tf.stack([x, tf.tile(x[:, :1], [1, 5])]), [1, 0])
        return {"top": tf.math.top_k(tf.nn.softmax(tf.reduce_mean(rows, axis=0)), 2)[0]}


class Loop(tf.Module):
    """A loop and a branch that share a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([6, 2], tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        y = tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y @ self.weights), [0, x], maximum_iterations=3
        )[1]
        return {"y": tf.cond(tf.reduce_sum(y) > 0, lambda: y * self.weights[0], lambda: -y)}


class Table(tf.Module):
    """A hash table whose content is an asset, and strings."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__()
        initializer = tf.lookup.TextFileInitializer(
            str(folder / "words.txt"), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, -1
        )
        self.table = tf.lookup.StaticHashTable(initializer, -1)
        self.embedding = tf.Variable(tf.reshape(tf.range(8.0), [4, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def serve(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedded": tf.gather(self.embedding, self.table.lookup(tf.strings.lower(words)) + 1)}


@tf.function(input_signature=[tf.TensorSpec([16, 8], tf.float32, name="x")])
def step(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """A loss and its gradient, and a loop, without variables."""
    weights = tf.linspace(tf.zeros([8]), tf.ones([8]), 4, axis=1)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = tf.reduce_sum(tf.nn.softmax(tf.tanh(x @ weights)) ** 2)
    counted = tf.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)])[0]
    gradient = tape.gradient(loss, weights)
    return tf.identity(loss, "loss"), tf.identity(gradient, "gradient"), tf.identity(counted, "counted")
