"""Programs of TensorFlow 1 placed at random over logical devices compute what they do unplaced."""

import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import VARIABLES
from tests.colocation.random_graphs import control_flow
from tests.tf1_programs import NUM_DEVICES, PROGRAMS, program, run, same
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import apply_placement, place_meta_graph
from tf_placer.rewrite.saved_model import export_saved_model

v1 = tf.compat.v1
PLACEMENTS = 4
pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact=True)]


@pytest.mark.parametrize(("seed", "name"), list(enumerate(PROGRAMS)))
def test_it_computes_the_same(seed, name):
    """Placed at random a few times; the Item's graph and the MetaGraphDef are run."""
    found = program(name)
    rng = np.random.default_rng(seed)
    item = Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=4)
    problem = analytic_problem(item, Cluster.logical(NUM_DEVICES))
    feeds = {
        f"{feed.node}:0": 0.3 * rng.normal(size=feed.shape).astype(feed.dtype.as_numpy_dtype)
        for feed in item.feeds
    }
    starts = {
        node.name: 0.3
        * rng.normal(size=[size.size for size in node.attr["shape"].shape.dim]).astype(np.float32)
        for node in found.meta_graph.graph_def.node
        if node.op in VARIABLES
    }
    needed = {name: value for name, value in starts.items() if name in item.index.id_of_name}
    unplaced = run(found.meta_graph.graph_def, found.fetches, feeds, starts)
    for _ in range(PLACEMENTS):
        rows = np.array([rng.choice(np.flatnonzero(allowed)) for allowed in problem.allowed], np.int32)
        placement = Placement(problem, rows)
        cleaned = run(apply_placement(item, placement), [*item.fetches, *item.control_outputs], feeds, needed)
        given = run(place_meta_graph(found.meta_graph, placement).graph_def, found.fetches, feeds, starts)
        assert same(unplaced, cleaned)
        assert same(unplaced, given)


def test_a_saved_model_keeps_its_values(tmp_path):
    """A SavedModel with a v1 variable and a loop: the value is the checkpoint's, and the placed copy gives the same."""
    source, target = str(tmp_path / "model"), str(tmp_path / "placed")
    given = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    with control_flow(functional=False), tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 8], name="x")
        w = v1.get_variable("w", [8, 8], use_resource=False)
        loop = v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y @ w)), (0, x))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, source, {"x": x}, {"y": loop[1]})
            kept, expected = session.run([w, loop[1]], {x: given})
    item = Item.from_saved_model(source)
    (variable,) = item.variables
    problem = analytic_problem(item, Cluster.logical(NUM_DEVICES))
    rows = problem.legalized(np.arange(problem.num_units) % NUM_DEVICES)
    export_saved_model(source, target, {"serving_default": Placement(problem, rows)})
    config = v1.ConfigProto(device_count={"CPU": NUM_DEVICES}, allow_soft_placement=False)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        signature = v1.saved_model.loader.load(session, ["serve"], target).signature_def["serving_default"]
        found = session.run(signature.outputs["y"].name, {signature.inputs["x"].name: given})
    assert np.array_equal(variable.value, kept)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
