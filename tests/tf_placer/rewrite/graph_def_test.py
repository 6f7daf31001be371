"""place_graph writes devices, nothing else."""

import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.rewrite.rewrite import place_graph

CPU0 = "/job:localhost/replica:0/task:0/device:CPU:0"
CPU1 = "/job:localhost/replica:0/task:0/device:CPU:1"


def _graph_with_a_loop() -> tf.compat.v1.GraphDef:
    graph = tf.Graph()
    with graph.as_default():
        start = tf.compat.v1.placeholder(tf.float32, [2], name="start")
        loop = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), [0, start])
        tf.identity(loop[1], name="end")
    return graph.as_graph_def()


def test_every_node_gets_its_device_and_nothing_else_changes():
    graph_def = _graph_with_a_loop()
    before = graph_def.SerializeToString(deterministic=True)
    assert graph_def.library.function  # the loop's body: must survive unchanged
    devices = [(CPU0, CPU1)[i % 2] for i in range(len(graph_def.node))]

    placed = place_graph(graph_def, devices)

    assert [node.device for node in placed.node] == devices
    assert graph_def.SerializeToString(deterministic=True) == before
    for node in placed.node:
        node.device = ""
    assert placed.SerializeToString(deterministic=True) == before


def test_mapping_and_sequence_agree():
    graph_def = _graph_with_a_loop()
    devices = [(CPU0, CPU1)[i % 2] for i in range(len(graph_def.node))]
    by_name = dict(zip([node.name for node in graph_def.node], devices, strict=True))
    assert place_graph(graph_def, by_name) == place_graph(graph_def, devices)


def test_empty_graph():
    assert place_graph(tf.compat.v1.GraphDef(), {}) == tf.compat.v1.GraphDef()


def test_missing_and_strange_nodes_are_named():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="NoOp")
    with pytest.raises(InputError, match="no device for node 'a'"):
        place_graph(graph_def, {"b": CPU0})
    with pytest.raises(InputError, match="'b', which the graph lacks"):
        place_graph(graph_def, {"a": CPU0, "b": CPU0})
    with pytest.raises(InputError, match="2 devices, but the graph has 1 nodes"):
        place_graph(graph_def, [CPU0, CPU0])


@pytest.mark.parametrize("device", ["", "CPU:0", "/device:CPU:0", "/job:a/task:0/device:CPU:0", "nonsense"])
def test_a_device_string_that_is_not_full_is_refused(device):
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="NoOp")
    with pytest.raises(InputError, match="not a full device string"):
        place_graph(graph_def, [device])


@pytest.mark.parametrize("target", ["a", "pruned"])
def test_a_colocation_group_must_stay_together(target):
    graph_def = tf.compat.v1.GraphDef()
    for name in ("a", "b"):
        node = graph_def.node.add(name=name, op="NoOp")
        node.attr["_class"].list.s.append(f"loc:@{target}".encode())
    assert place_graph(graph_def, [CPU1, CPU1]).node[1].device == CPU1
    with pytest.raises(InputError, match="'b' and 'a' are colocated"):
        place_graph(graph_def, [CPU0, CPU1])


def test_the_body_of_a_loop_runs_where_the_loop_was_put():
    graph_def = _graph_with_a_loop()
    loop = next(node.name for node in graph_def.node if node.op in ("While", "StatelessWhile"))
    placed = place_graph(graph_def, {n.name: CPU1 if n.name == loop else CPU0 for n in graph_def.node})
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(placed, name="")
    config = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    metadata = tf.compat.v1.RunMetadata()
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        result = session.run("end:0", {"start:0": [1.0, 3.0]}, options=options, run_metadata=metadata)
    assert result.tolist() == [8.0, 24.0]  # three doublings
    multiplied_on = [n.device for part in metadata.partition_graphs for n in part.node if n.op == "Mul"]
    assert multiplied_on == [CPU1]
