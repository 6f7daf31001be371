"""Programs of TensorFlow 1 placed at random over logical devices: they compute what they do unplaced.

Usage: python -m tests.tf_placer.rewrite.tf1_programs_process
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import VARIABLES
from tests.colocation.random_graphs import control_flow
from tests.logical_devices import report
from tests.tf1_programs import PROGRAMS, Tf1Program, program
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import apply_placement, place_meta_graph
from tf_placer.rewrite.saved_model import export_saved_model

v1 = tf.compat.v1
NUM_DEVICES, STEPS, PLACEMENTS = 3, 3, 4

Values = list[list[np.ndarray]]


def run(
    graph_def: v1.GraphDef, fetches: Sequence[str], feeds: Mapping[str, np.ndarray], starts: Mapping[str, np.ndarray]
) -> Values:  # fmt: skip
    """What some steps compute, from given values of the variables."""
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        assigns, values = [], {}
        for name, value in starts.items():
            variable = graph.get_tensor_by_name(f"{name}:0")
            with graph.device(variable.device):
                given = v1.placeholder(value.dtype, value.shape)
                assigns.append(v1.assign(variable, given).op)
            values[given] = value
        config = v1.ConfigProto(
            device_count={"CPU": NUM_DEVICES}, allow_soft_placement=False, intra_op_parallelism_threads=1
        )
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
        with v1.Session(config=config) as session:
            session.run(assigns, values)
            steps = [session.run(list(fetches), feeds) for _ in range(STEPS)]
    return [[np.asarray(value) for value in step if value is not None] for step in steps]


def same(some: Values, others: Values) -> bool:
    pairs = zip(some, others, strict=True)
    return all(np.array_equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))


def computes_the_same(found: Tf1Program, seed: int) -> bool:
    """Places a program at random a few times; the Item's graph and the MetaGraphDef are run."""
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
        if not (same(unplaced, cleaned) and same(unplaced, given)):
            return False
    return True


def saved_model_keeps_its_values() -> bool:
    """A SavedModel with a v1 variable and a loop: the value is the checkpoint's, and the placed copy gives the same."""
    with tempfile.TemporaryDirectory() as name:
        source, target = f"{name}/model", f"{name}/placed"
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
            loaded = v1.saved_model.loader.load(session, ["serve"], target)
            signature = loaded.signature_def["serving_default"]
            found = session.run(signature.outputs["y"].name, {signature.inputs["x"].name: given})
    return np.array_equal(variable.value, kept) and np.allclose(found, expected, rtol=1e-6, atol=1e-6)


def checks() -> list[Callable[[], bool]]:
    found = []
    for seed, name in enumerate(PROGRAMS):
        check = functools.partial(lambda name, seed: computes_the_same(program(name), seed), name, seed)
        check.__name__ = name  # type: ignore[attr-defined]
        found.append(check)
    return [*found, saved_model_keeps_its_values]


if __name__ == "__main__":
    report(checks())
