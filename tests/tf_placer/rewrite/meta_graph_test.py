"""GraphDefs and MetaGraphDefs with a placement of their own graph: their devices change, and nothing else."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite import rewrite
from tf_placer.rewrite.rewrite import apply_placement, place_graph, place_meta_graph
from tf_placer.runtime.audit import written_order
from tf_placer.transform.order import order_edges, ordered_pairs


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
    twice = tf.function(lambda x: tf.tanh(tf.exp(x, name="exp"), name="tanh"))

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
    placed = place_meta_graph(meta_graph, placement_of(meta_graph, fetches))
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


def products(where: str):
    """Products that are ready at once: in the main graph, in a function that is called once, or in both."""

    def add(x):
        return tf.add_n([tf.tanh(x @ tf.fill([64, 64], float(i))) for i in range(4)])

    def build() -> None:
        x = tf.compat.v1.placeholder(tf.float32, [64, 64], name="x")
        found = add(x) if where != "inside" else x
        tf.identity(found if where == "outside" else found + tf.function(add)(x), name="y")

    return build


@pytest.mark.parametrize("where", ["outside", "inside", "both"])
def test_an_order_is_written_as_control_inputs_where_the_ops_are(where, monkeypatch):
    """With every pair that the order is about, and not only those that change the simulated step."""
    monkeypatch.setattr(rewrite, "order_edges", ordered_pairs)
    meta_graph = exported(products(where))
    item = Item.from_meta_graph(meta_graph, ["y:0"])
    problem = analytic_problem(item, Cluster.logical(2))
    order = np.random.default_rng(0).permutation(problem.num_ops)
    plan = Placement(problem, np.zeros(problem.num_units, np.int32), order)
    edges = {tuple(problem.op_names[op] for op in edge) for edge in ordered_pairs(plan, item).tolist()}
    assert edges
    if where == "both":
        with pytest.raises(InputError, match="with --order=none it has no order"):
            place_meta_graph(meta_graph, plan, item)
        return
    placed = place_meta_graph(meta_graph, plan, item)
    nodes, path = placed.graph_def.node, ""
    if where == "inside":
        nodes = placed.graph_def.library.function[0].node_def
        path = next(node.name for node in placed.graph_def.node if node.op.endswith("PartitionedCall")) + "/"
    assert {
        (path + text[1:], path + node.name) for node in nodes for text in node.input if text.startswith("^")
    } == edges
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(placed.graph_def, name="")
        session.run("y:0", {"x:0": np.zeros([64, 64])})


CPU0 = "/job:localhost/replica:0/task:0/device:CPU:0"
CPU1 = "/job:localhost/replica:0/task:0/device:CPU:1"


def test_missing_and_strange_nodes_are_named():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="NoOp")
    with pytest.raises(InputError, match="no device for node 'a'"):
        place_graph(graph_def, {"b": CPU0})
    with pytest.raises(InputError, match="'b', which the graph lacks"):
        place_graph(graph_def, {"a": CPU0, "b": CPU0})


@pytest.mark.parametrize("device", ["", "CPU:0", "/device:CPU:0", "/job:a/task:0/device:CPU:0", "nonsense"])
def test_a_device_string_that_is_not_full_is_refused(device):
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="NoOp")
    with pytest.raises(InputError, match="not a full device string"):
        place_graph(graph_def, {"a": device})


@pytest.mark.parametrize("target", ["a", "pruned"])
def test_a_colocation_group_must_stay_together(target):
    graph_def = tf.compat.v1.GraphDef()
    for name in ("a", "b"):
        graph_def.node.add(name=name, op="NoOp").attr["_class"].list.s.append(f"loc:@{target}".encode())
    assert place_graph(graph_def, {"a": CPU1, "b": CPU1}).node[1].device == CPU1
    with pytest.raises(InputError, match="'b' and 'a' are colocated"):
        place_graph(graph_def, {"a": CPU0, "b": CPU1})


@pytest.fixture(scope="module")
def item() -> Item:
    return workloads.build("dense_small")


@pytest.fixture
def placement(item: Item) -> Placement:
    problem = analytic_problem(item, Cluster.logical(3))
    return Placement(problem, np.random.default_rng(0).integers(3, size=problem.num_units))


def test_every_op_gets_its_units_device(item, placement):
    placed = apply_placement(item, placement)
    names = [device.name for device in placement.problem.cluster.devices]
    wanted = [names[placement.device_of_unit[unit]] for unit in placement.problem.unit_of_op]
    assert [node.device for node in placed.node] == wanted
    assert len(set(wanted)) == 3  # else the comparison says little


def test_an_order_becomes_control_inputs_after_the_others(item, placement):
    placement = Placement(placement.problem, np.zeros(placement.problem.num_units))
    order = np.random.default_rng(0).permutation(placement.problem.num_ops)
    ordered = dataclasses.replace(placement, priority_of_op=order)
    # On one device any order takes as long; this one is of what ends late, so peaks are higher without it.
    edges = order_edges(ordered, item)
    placed, plain = apply_placement(item, ordered), apply_placement(item, placement)
    names = item.index.names
    assert sorted(written_order(plain, placed)) == sorted((names[a], names[b]) for a, b in edges.tolist())
    for one, other in zip(placed.node, plain.node, strict=True):
        added = [text for text in one.input if text not in other.input]
        assert list(one.input) == [*other.input, *added] and all(text.startswith("^") for text in added)
        del one.input[len(other.input) :]
    assert placed == plain
    nothing = dataclasses.replace(placement, priority_of_op=np.zeros(placement.problem.num_ops))
    assert apply_placement(item, nothing) == plain
