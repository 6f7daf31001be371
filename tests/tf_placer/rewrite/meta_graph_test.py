"""MetaGraphDefs with a placement: their devices change, and nothing else."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import place_meta_graph


def exported(build) -> tf.compat.v1.MetaGraphDef:
    with tf.Graph().as_default():
        build()
        return tf.compat.v1.train.export_meta_graph()


def training_step() -> None:
    x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
    weights = tf.compat.v1.get_variable("weights", [3, 2], use_resource=True)
    loss = tf.reduce_sum(tf.tanh(x @ weights), name="loss")
    tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")


def calls(times: int):
    @tf.function
    def twice(x):
        return tf.tanh(tf.exp(x, name="exp"), name="tanh")

    def build() -> None:
        x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
        for _ in range(times):
            x = twice(x)
        tf.identity(x, name="y")

    return build


def placement_of(meta_graph: tf.compat.v1.MetaGraphDef, fetches: list[str], seed: int = 0) -> Placement:
    problem = analytic_problem(Item.from_meta_graph(meta_graph, fetches), Cluster.logical(4))
    return Placement(problem, np.random.default_rng(seed).integers(4, size=problem.num_units))


def without_devices(meta_graph: tf.compat.v1.MetaGraphDef) -> bytes:
    bare = tf.compat.v1.MetaGraphDef()
    bare.CopyFrom(meta_graph)
    for node in [*bare.graph_def.node, *(n for f in bare.graph_def.library.function for n in f.node_def)]:
        node.device = ""
    return bare.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("build", "fetches"),
    [(training_step, ["loss:0", "train"]), (calls(1), ["y:0"])],
    ids=["training", "a call"],
)
def test_only_devices_change(build, fetches):
    meta_graph = exported(build)
    before = meta_graph.SerializeToString(deterministic=True)
    placement = placement_of(meta_graph, fetches)
    placed = place_meta_graph(meta_graph, placement)
    assert meta_graph.SerializeToString(deterministic=True) == before, "the argument is left alone"
    assert without_devices(placed) == without_devices(meta_graph)
    assert placed != meta_graph


def test_every_op_of_the_plan_that_the_graph_has_is_where_it_says():
    meta_graph = exported(training_step)
    placement = placement_of(meta_graph, ["loss:0", "train"])
    placed = place_meta_graph(meta_graph, placement)
    devices = placement.device_names
    found = {node.name: node.device for node in placed.graph_def.node}
    planned = found.keys() & devices.keys()
    assert {"x", "weights", "matmul", "Tanh", "loss"} <= planned
    assert all(found[name] == devices[name] for name in planned)
    # What only saving or initializing needs was not planned.
    assert all(device == "" for name, device in found.items() if name not in devices)


def test_ops_in_the_body_of_a_function_are_placed_there():
    meta_graph = exported(calls(1))
    placement = placement_of(meta_graph, ["y:0"], seed=3)
    placed = place_meta_graph(meta_graph, placement)
    (call,) = [node.name for node in placed.graph_def.node if node.op == "PartitionedCall"]
    (body,) = placed.graph_def.library.function
    found = {node.name: node.device for node in body.node_def}
    assert {found["exp"], found["tanh"]} - {""}
    assert found["exp"] == placement.device_names[f"{call}/exp"]
    assert found["tanh"] == placement.device_names[f"{call}/tanh"]


def test_one_body_cannot_be_in_two_places():
    meta_graph = exported(calls(2))
    placement = placement_of(meta_graph, ["y:0"])
    columns = {device.name: d for d, device in enumerate(placement.problem.cluster.devices)}
    apart = [columns[device] for name, device in placement.device_names.items() if name.endswith("/exp")]
    assert len(set(apart)) == 2, "the seed does not part them"
    with pytest.raises(InputError, match="called several times, and the plan has its op 'exp' on"):
        place_meta_graph(meta_graph, placement)
    together = Placement(placement.problem, np.zeros(placement.problem.num_units, np.int32))
    assert without_devices(place_meta_graph(meta_graph, together)) == without_devices(meta_graph)


def test_a_schedule_is_refused_rather_than_left_out():
    meta_graph = exported(calls(1))
    placement = placement_of(meta_graph, ["y"])
    scheduled = dataclasses.replace(placement, priority_of_op=np.arange(placement.problem.num_ops))
    with pytest.raises(InputError, match="the plan is of an order, and devices alone cannot say that"):
        place_meta_graph(meta_graph, scheduled)
