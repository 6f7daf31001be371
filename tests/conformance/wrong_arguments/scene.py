"""What the good calls need, made once."""

import dataclasses
import itertools
import pathlib

import numpy as np
import tensorflow as tf

import tf_placer
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.cluster.device import Link


@tf.function
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, y) + 1.0


class Scene:
    """Small programs on small clusters, none of which runs a worker process."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._new = itertools.count()
        self.examples = (tf.ones((2, 3)), tf.ones((3, 2)))
        self.specs = tuple(tf.TensorSpec(one.shape) for one in self.examples)
        self.item = tf_placer.Item.from_function(step, *self.examples)
        self.other_item = tf_placer.Item.from_function(tf.function(lambda x: x * 2.0), tf.ones(3))
        self.cluster = tf_placer.Cluster.logical(1)
        self.problem = tf_placer.build_problem(self.item, self.cluster)
        self.placement = _all_on_the_first(self.problem)
        self.result = tf_placer.search(self.problem, "single", budget_evaluations=1)
        self.two = problem_of([10, 20], [(0, 1)], 4)
        self.plan = tf_placer.Placement(self.two, np.array([0, 1]))
        workers = tuple(dataclasses.replace(self.cluster.devices[0], name=_worker(i)) for i in range(2))
        links = tuple(Link(a, 1 - a, 10, 1e9, f"{a}") for a in range(2))
        live = tf_placer.Cluster("two", workers, links, kind="local")
        self.live_problem = tf_placer.build_problem(self.item, live, costs="analytic")
        self.runtime = tf_placer.RuntimeEvaluator(self.item, self.live_problem)
        self.model = folder / "model"
        self.model_placement = self._of_a_saved_model()

    def _of_a_saved_model(self) -> tf_placer.Placement:
        module = tf.Module()
        module.v = tf.Variable([1.0, 2.0])
        module.f = tf.function(lambda x: {"y": x * module.v}, [tf.TensorSpec([None, 2], name="x")])
        tf.saved_model.save(module, str(self.model), signatures=module.f)
        item = tf_placer.Item.from_saved_model(self.model)
        return _all_on_the_first(tf_placer.build_problem(item, self.cluster))

    def new(self, suffix: str = "") -> pathlib.Path:
        """A path that nothing is at."""
        return self.folder / f"new{next(self._new)}{suffix}"

    def file(self, content: str, suffix: str = ".txt") -> pathlib.Path:
        path = self.new(suffix)
        path.write_text(content)
        return path


def _all_on_the_first(problem: tf_placer.Problem) -> tf_placer.Placement:
    return tf_placer.Placement(problem, np.zeros(problem.num_units, int))


def _worker(task: int) -> str:
    return f"/job:worker/replica:0/task:{task}/device:CPU:0"
