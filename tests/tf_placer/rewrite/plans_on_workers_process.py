"""Runs plans for worker processes in a process that has not met any, and prints what differs, as JSON.

Its arguments: ``local`` or ``remote``, and a folder to write in. A process can be attached to one cluster.
"""

from __future__ import annotations

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tf_placer
from tests.logical_devices import report
from tests.tf_placer.rewrite.saved_models import answers, several_signatures
from tests.tf_placer.workers.remote_workers_test import TWO_SERVERS
from tf_placer.workers.local_workers import LocalWorkers

FOLDER = pathlib.Path(sys.argv[2])
LOCAL = tf_placer.Cluster.local(2)


def cluster_of_servers() -> tf_placer.Cluster:
    """Workers of a process that this one is not attached to, as somebody else's servers."""
    servers = LocalWorkers(LOCAL)
    servers.start()
    path = FOLDER / "servers.toml"
    path.write_text(TWO_SERVERS.format(*servers.addresses))
    return tf_placer.Cluster.from_file(path)


CLUSTER = cluster_of_servers() if sys.argv[1] == "remote" else LOCAL


def alternating(item: tf_placer.Item, cluster: tf_placer.Cluster) -> tf_placer.Placement:
    """A plan with every second unit on the other worker."""
    problem = tf_placer.build_problem(item, cluster, costs="analytic")
    return tf_placer.Placement(problem, np.arange(problem.num_units) % problem.num_devices)


def a_saved_model() -> bool:
    """Its own loader starts the workers, or says that somebody has to join the servers."""
    example = several_signatures(FOLDER)
    target = FOLDER / "placed"
    placement = alternating(tf_placer.Item.from_saved_model(example.path, "scaled"), CLUSTER)
    tf_placer.export_saved_model(example.path, target, placement, "scaled")
    before = answers(tf.saved_model.load(str(example.path)), "scaled", example.questions["scaled"])
    moved = tf_placer.load_saved_model(target, {device.name: "CPU:0" for device in CLUSTER.devices})
    is_here = answers(moved, "scaled", example.questions["scaled"]) == before and not is_attached()
    if CLUSTER.kind == "remote":
        try:
            tf_placer.load_saved_model(target)
        except tf_placer.InputError as error:
            is_here &= "join its servers before with tf_placer.attach(" in str(error)
        tf_placer.attach(CLUSTER)
    loaded = tf_placer.load_saved_model(target)
    ran_on = {op.device for op in loaded.signatures["scaled"].graph.get_operations() if op.device}
    on_workers = {device.name for device in CLUSTER.devices} <= ran_on
    return is_here and on_workers and answers(loaded, "scaled", example.questions["scaled"]) == before


def is_attached() -> bool:
    return any("/job:worker/" in device.name for device in tf.config.list_logical_devices())


def a_session() -> bool:
    """A graph with the plan in it runs in a session on the workers."""
    function = tf.function(lambda x: {"y": tf.nn.relu(x @ tf.ones([3, 2])) - 1.0})
    item = tf_placer.Item.from_function(function, tf.TensorSpec([2, 3]))
    graph_def = tf_placer.apply_placement(item, alternating(item, CLUSTER))
    with tf.Graph().as_default():
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(tf_placer.session_target(CLUSTER)) as session:
            found = session.run(item.fetches[0], {f"{item.feeds[0].node}:0": np.ones([2, 3])})
    return found.tolist() == [[2.0, 2.0]] * 2


def a_function() -> bool:
    """Values and updates are those of the function as it is, and the ops are on the workers."""
    keras.utils.set_random_seed(1)
    weights, count = tf.Variable(tf.random.normal([4, 4])), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ weights) ** 2)
        weights.assign_sub(tape.gradient(loss, weights))
        return loss, count.assign_add(1)

    x, start = tf.random.normal([8, 4]), weights.numpy()
    expected = [[value.numpy() for value in step(x)] for _ in range(3)]
    weights.assign(start)
    count.assign(0)
    placed = tf_placer.placed_function(step, alternating(tf_placer.Item.from_function(step, x), CLUSTER), x)
    found = [[value.numpy() for value in placed(x)] for _ in range(3)]
    on = {op.device for op in placed.graph.get_operations() if op.type in ("MatMul", "Tanh", "Mean", "Mul")}
    return np.allclose(found, expected, rtol=1e-5) and len(on) == 2 and "/job:worker/" in weights.device


def fewer_workers() -> bool:
    """A plan for one of them uses the ones that are there; there is no need to start a process."""
    one = CLUSTER if CLUSTER.kind == "remote" else tf_placer.Cluster.local(1)
    function = tf.function(lambda x: tf.reduce_sum(x * 2.0))
    placed = tf_placer.placed_function(
        function, alternating(tf_placer.Item.from_function(function, tf.ones([3])), one), tf.ones([3])
    )
    return placed(tf.ones([3])).numpy() == 6.0


def servers_that_do_not_answer() -> bool:
    """One line says which, and so does one that a process is attached elsewhere."""
    path = FOLDER / "silent.toml"
    path.write_text(TWO_SERVERS.format("127.0.0.1:9", "127.0.0.1:9"))
    try:
        tf_placer.session_target(tf_placer.Cluster.from_file(path))
    except tf_placer.InputError as error:
        silent = str(error)
    try:
        tf_placer.attach(tf_placer.Cluster.from_file(path))
    except tf_placer.InputError as error:
        elsewhere = str(error)
    return "no server answers at 127.0.0.1:9" in silent and "is attached to other workers" in elsewhere


CHECKS = (a_saved_model, a_session, a_function, fewer_workers, servers_that_do_not_answer)

if __name__ == "__main__":
    report(CHECKS)
