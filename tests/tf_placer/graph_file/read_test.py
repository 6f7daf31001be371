"""Small graphs of each format: times, bytes and classes, and what is refused."""

import json
import re

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import altered, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.graph_file.read import read_graph_file


@pytest.fixture(scope="module")
def cluster():
    """A CPU and a GPU whose model is "toy"."""
    return altered(small_cluster(2), {"type": ["CPU", "GPU"], "model": ["xeon", "toy"]})


OURS = {
    "name": "three",
    "nodes": [
        {"name": "w", "time_ns": {"CPU": 0, "GPU": 0}, "resident_bytes": 40, "colocation": "layer"},
        {"name": "p", "time_ns": {"CPU": 90, "toy": 8, "GPU": 5}, "output_bytes": 6, "colocation": "layer",
         "op": "MatMul"},
        {"name": "l", "time_ns": {"GPU": 10}},
    ],
    "edges": [
        {"source": "w", "target": "p", "bytes": 40, "tensor": "0"},
        {"source": "w", "target": "l", "bytes": 40, "tensor": "0"},
        {"source": "p", "target": "l", "bytes": 6},
    ],
}  # fmt: skip
FORWARD = {"id": 0, "supportedOnFpga": 1, "cpuLatency": 2, "fpgaLatency": 0.5, "size": 30, "colorClass": 7}
BACKWARD = {"id": 1, "supportedOnFpga": 1, "cpuLatency": 4, "fpgaLatency": 1, "size": 20, "colorClass": 7}
ON_CPU = {"id": 2, "supportedOnFpga": 0, "cpuLatency": 3, "fpgaLatency": 0, "size": 0, "isBackwardNode": 1}
OPERATORS = {
    "maxFPGAs": 2,
    "maxSizePerFPGA": 100,
    "nodes": [FORWARD | {"isBackwardNode": 0}, BACKWARD | {"isBackwardNode": 1}, ON_CPU],
    "edges": [{"sourceId": 0, "destId": 1, "cost": 0.25}, {"sourceId": 0, "destId": 2, "cost": 0.25}],
}
PIPEDREAM = (
    "node1 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=1.5, backward_compute_time=2.000, "
    "activation_size=100.0, parameter_size=8.000\n"
    "node2 -- ReLU() -- forward_compute_time=0.25, backward_compute_time=0.5, activation_size=[30.0; 20.0], "
    "parameter_size=0.000\n"
    "\tnode1 -- node2\n"
)


@pytest.fixture
def read(tmp_path, cluster):
    def problem(content, name="small.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_graph_file(path).problem(cluster)

    return problem


def test_ours(read):
    problem = read(OURS)
    assert problem.name == "three" and problem.op_names == ("w", "p", "l")
    # The model's 8 ns count before the type's 5.
    assert problem.compute_ns.tolist() == [[0, 0], [90, 8], [0, 10]]
    assert problem.unit_of_op.tolist() == [0, 0, 1]
    assert problem.allowed.tolist() == [[True, True], [False, True]]
    assert problem.resident_bytes.tolist() == [40, 0]
    assert problem.tensor_bytes.tolist() == [40, 6]  # w's two edges are one tensor
    assert problem.op_types == ("", "MatMul", "")


def test_operator_graphs(read):
    problem = read(OPERATORS)
    assert problem.name == "small"
    assert problem.compute_ns.tolist() == [[2_000_000, 500_000], [4_000_000, 1_000_000], [3_000_000, 0]]
    assert problem.allowed.tolist() == [[True, True], [True, False]]
    assert problem.unit_of_op.tolist() == [0, 0, 1] and problem.resident_bytes.tolist() == [50, 0]
    assert problem.tensor_bytes.tolist() == [4_000_000]  # 16 GB/s for a quarter of a millisecond, once


def test_a_node_of_an_operator_graph_that_may_never_run_on_a_cpu(read):
    problem = read(node(OPERATORS, 1, cpuLatency=9999999999))
    # Nodes 0 and 1 are one unit.
    assert problem.allowed.tolist() == [[False, True], [True, False]]
    assert problem.compute_ns[1].tolist() == [0, 1_000_000], "never is no time"


def test_pipedream(read):
    problem = read(PIPEDREAM, "vgg.txt")
    assert problem.name == "vgg"
    assert dict(zip(problem.op_names, problem.compute_ns[:, 1].tolist(), strict=True)) == {
        "node1/forward": 1_500_000,
        "node1/backward": 2_000_000,
        "node2/forward": 250_000,
        "node2/backward": 500_000,
    }
    assert problem.resident_bytes.tolist() == [8, 0] and not problem.allowed[:, 0].any()
    producers = [problem.op_names[op] for op in problem.tensor_producer]
    tensors = sorted(zip(producers, problem.tensor_bytes.tolist(), strict=True))
    # node1's activation goes to node2 and to its own backward; the gradient of it comes back; 30 + 20 stay in node2.
    assert tensors == [("node1/forward", 100), ("node2/backward", 100), ("node2/forward", 50)]
    assert problem.op_types[problem.op_names.index("node1/backward")] == "Conv2d"
    assert np.array_equal(problem.unit_of_op[[problem.op_names.index("node1/backward")]], [0])


def changed(graph, part, number, values):
    copy = json.loads(json.dumps(graph))
    copy[part][number] |= values
    return copy


def node(graph, number, **values):
    return changed(graph, "nodes", number, values)


def edge(graph, number, **values):
    return changed(graph, "edges", number, values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is no JSON.*; give the whole file"),
        ("[]", "it holds a list; give an object"),
        ({"nodes": []}, "there is no node; give at least one"),
        ({"nodes": 3}, "nodes is 3; give a list"),
        (OURS | {"nods": []}, "unknown key nods; did you mean 'nodes'"),
        (node(OURS, 1, name="w"), "two nodes are called 'w'; give"),
        (node(OURS, 1, nam="w"), r"unknown key nodes\[1\]\.nam; did you mean 'name'"),
        (node(OURS, 1, time_ns={"GPU": -1}), r"nodes\[1\]\.time_ns\[GPU\] is -1; give a whole number"),
        (node(OURS, 1, time_ns=3), r"nodes\[1\]\.time_ns is 3; give a table"),
        (node(OURS, 2, time_ns={"TPU": 1}), "node 'l' has times for TPU.*; give a time for one of CPU, GPU, toy"),
        (node(OURS, 0, time_ns={"CPU": 1}, colocation="") | {"edges": [{"source": "w", "target": "w"}]}, "; "),
        (edge(OURS, 2, target="q"), "edge 2 names node 'q', which is not there; known: "),
        (edge(OURS, 2, bytes=0.5), r"edges\[2\]\.bytes is 0.5; give a whole number"),
        (node(OPERATORS, 1, cpuLatency="x"), r"nodes\[1\]\.cpuLatency is 'x'; give a number"),
        (edge(OPERATORS, 0, destId=9), "edge 0 names node '9', which is not there; "),
        (node(OURS, 0, resident_bytes=-1), r"nodes\[0\]\.resident_bytes is -1; give a whole number"),
        (OURS | {"edges": [*OURS["edges"], {"source": "l", "target": "p"}]}, "cycle"),
        (node(OPERATORS, 1, cpuLatency=10**9, fpgaLatency=9999999999), r"nodes\[1\] may run nowhere: .* give a time"),
        (node(OPERATORS, 1, cpuLatency=999_999_999_999_999, supportedOnFpga=0), r"nodes\[1\] may run nowhere: "),
        (edge(OPERATORS, 0, cost=1e300), r"edges\[0\]\.cost is 1e\+300; give a number from 0 to 2.8823e"),
        (node(OPERATORS, 0, TMPCs={"1": []}), r"nodes have TMPCs: it is a graph of Piper .*; write one time"),
        (
            node(OURS, 1, time_ns={"CPU": 2**50 + 1}),
            r"nodes\[1\]\.time_ns\[CPU\] is 1125899906842625; give a whole number from 0 to 1.1259e\+15",
        ),
        (PIPEDREAM.replace("=1.5", "=1e12"), "line 1: forward_compute_time is 1000000000000.0; give a number from 0"),
        (node(OPERATORS, 0, size=-3), r"nodes\[0\]\.size is -3; give a number from 0"),
        (OPERATORS | {"edges": [*OPERATORS["edges"], {"sourceId": 1, "destId": 0, "cost": 0}]}, "cycle"),
        (PIPEDREAM.replace("=1.5", "=-1.5"), "line 1: forward_compute_time is .*-1.5.*; give a number"),
        (PIPEDREAM + "\tnode2 -- node1\n", "cycle"),
        ("name,time\na,1\n", "line 1 is no layer and no edge; give"),
        ("", "; give"),
        (PIPEDREAM + "what", "line 4 is no layer and no edge; give"),
        (PIPEDREAM + "\tnode1 -- node7", "edge node1 -- node7 names node7, which is not there; give"),
        (PIPEDREAM.replace("2.000", "two"), "line 1: backward_compute_time is 'two'; give a number"),
        (PIPEDREAM.replace("parameter_size=8", "size=8"), "line 1: parameter_size is missing; give a number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(read, content, message):
    with pytest.raises(InputError, match=message) as told:
        read(content)
    text = str(told.value)
    assert "\n" not in text and re.match("--graph=.*small.json[: ]", text)
