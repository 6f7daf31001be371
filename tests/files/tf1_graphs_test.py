"""Graphs of TensorFlow 1 in this folder are placed: loops and branches, v1 variables, and layouts with channels first.

Each is a MetaGraphDef as text, with what is computed of it in the collection ``fetches``.
"""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.bounds import lower_bounds
from tf_placer.rewrite.rewrite import place_meta_graph
from tf_placer.search.search import search

FOLDER = pathlib.Path(__file__).parent
FILES = sorted(path.name for kind in ("tf1", "ref", "nchw") for path in FOLDER.glob(f"{kind}_*.pbtxt"))


def meta_graph_of(name: str) -> tf.compat.v1.MetaGraphDef:
    return text_format.Parse((FOLDER / name).read_text(), tf.compat.v1.MetaGraphDef())


def item_of(meta_graph: tf.compat.v1.MetaGraphDef) -> Item:
    return Item.from_meta_graph(meta_graph, meta_graph.collection_def["fetches"].node_list.value)


def test_every_kind_is_there():
    assert {name.partition("_")[0] for name in FILES} == {"tf1", "ref", "nchw"}


@pytest.mark.medium
@pytest.mark.parametrize("name", FILES)
def test_a_graph_is_placed(name: str):
    meta_graph = meta_graph_of(name)
    item = item_of(meta_graph)
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    result = search(problem, method="random", budget_s=0.2, seed=0)
    assert 0 < lower_bounds(problem).best_s <= result.runtime_s
    placed = place_meta_graph(meta_graph, result.placement)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(placed.graph_def, name="")
        devices = {op.name: op.device for op in graph.get_operations()}
    planned = result.placement.device_names
    written = {op: devices[op] for op in planned if op in devices}
    assert written == {op: planned[op] for op in written}
    assert len(written) > len(planned) / 2  # the rest are copies of constants, made for their readers


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("tf1_")])
def test_a_loop_is_on_one_device(name: str):
    item = item_of(meta_graph_of(name))
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    frames = {}
    for node, unit in zip(item.graph_def.node, problem.unit_of_op, strict=True):
        if node.op == "Enter":
            frames.setdefault(node.attr["frame_name"].s, set()).add(int(unit))
    assert all(len(units) == 1 for units in frames.values())


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("nchw_")])
def test_no_plan_puts_channels_first_on_a_cpu(name: str):
    problem = analytic_problem(item_of(meta_graph_of(name)), Cluster.preset("k40x2"))
    cpu = problem.cluster.host
    rng = np.random.default_rng(0)
    rows = problem.legalized(rng.integers(0, problem.cluster.num_devices, (50, problem.num_units)))
    on_cpu = {problem.op_types[op] for row in rows for op in np.flatnonzero(row[problem.unit_of_op] == cpu)}
    assert "FusedBatchNormV3" in on_cpu
    assert not on_cpu & {"AvgPool", "AvgPoolGrad", "Conv2D", "Conv2DBackpropFilter", "MaxPool", "MaxPoolGrad"}
