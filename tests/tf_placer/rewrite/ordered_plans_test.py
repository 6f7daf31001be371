"""Plans in a random order, and programs of TensorFlow 1 placed at random, compute what they do unplaced."""

import tempfile
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from colocation.op_facts import VARIABLES
from tests import tf1_programs
from tests.colocation.random_graphs import control_flow
from tests.logical_devices import NUM_DEVICES
from tests.tf1_programs import program, run, same
from tests.tf_placer.rewrite.equivalence_programs import PROGRAMS
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite import rewrite
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.placed_function import placed_function
from tf_placer.rewrite.rewrite import apply_placement, place_meta_graph
from tf_placer.rewrite.saved_model import export_saved_model
from tf_placer.runtime.audit import executed_order, written_order
from tf_placer.runtime.graph_program import build_program, open_program, session_config
from tf_placer.transform.order import ordered_pairs

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact=True)]
DEVICES, STEPS, PLACEMENTS, TF1_PLACEMENTS = 2, 3, 1, 4
v1 = tf.compat.v1


def ordered_plan(item: Item, seed: int) -> Placement:
    """A random legal plan in a random order."""
    problem, rng = analytic_problem(item, Cluster.logical(DEVICES)), np.random.default_rng(seed)
    row = problem.legalized(rng.integers(DEVICES, size=problem.num_units))
    return Placement(problem, row, rng.permutation(problem.num_ops))


def fed(item: Item, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        f"{feed.node}:0": 0.3 * rng.normal(size=feed.shape).astype(feed.dtype.as_numpy_dtype)
        for feed in item.feeds
    }


def all_pairs() -> mock._patch:
    """Writes every pair that the order is about, and not only those that change the simulated step."""
    pairs = lambda plan, item: ordered_pairs(plan, item) if plan.priority_of_op is not None else []  # noqa: E731
    return mock.patch.object(
        rewrite, "order_edges", lambda plan, item: np.array(pairs(plan, item)).reshape(-1, 2)
    )


@pytest.mark.filterwarnings("ignore:variables move to other devices. numbers that:UserWarning")
@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_no_bit_changes(make):
    """Losses of a function as it is and in a random order, bit by bit, gradients inside it included."""
    edges = 0
    for seed in range(PLACEMENTS):
        one, other = make(), make()
        item = Item.from_function(other.function, *other.example_args)
        plan = ordered_plan(item, seed)
        with all_pairs():
            placed = placed_function(other.function, plan, *other.example_args)
        edges += len(written_order(item.graph_def, placed.graph.as_graph_def()))
        for _ in range(STEPS):
            pairs = zip(
                tf.nest.flatten(one.function(*one.example_args)),
                tf.nest.flatten(placed(*other.example_args)),
                strict=True,
            )
            assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)
    assert edges > 0


def test_every_pair_runs_in_order():
    """Also those in which TensorFlow's own order is another."""
    orders = []
    for seed, make in enumerate(PROGRAMS.values()):
        workload = make()
        item = Item.from_function(workload.function, *workload.example_args)
        plan = ordered_plan(item, seed)
        devices_alone = Placement(plan.problem, plan.device_of_unit)
        names = plan.problem.op_names
        pairs = [(names[a], names[b]) for a, b in ordered_pairs(plan, item).tolist()]
        with all_pairs():
            graphs = [rewrite.rewrite(item, one) for one in (plan, devices_alone)]
        assert sorted(written_order(item.graph_def, graphs[0])) == sorted(pairs)
        for graph_def in graphs:
            with open_program("", build_program(item, graph_def), 60, _logical_config) as loaded:
                loaded.step()
                orders.append(executed_order(pairs, loaded.traced_step(), item.index.id_of_name))
    assert not any(order.broken for order in orders[::2])
    assert any(order.broken for order in orders[1::2])


def _logical_config(deadline_s: float) -> tf.compat.v1.ConfigProto:
    config = session_config(deadline_s)
    config.device_count["CPU"] = NUM_DEVICES
    return config


@pytest.mark.parametrize("name", tf1_programs.PROGRAMS)
def test_no_bit_of_tensorflow_1_changes(name):
    """Loops and branches of TensorFlow 1: no pair waits for what is in them, or goes round through them."""
    found = program(name)
    item = Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=4)
    rng = np.random.default_rng(0)
    feeds = fed(item, rng)
    starts = {v.node: 0.3 * rng.normal(size=v.value.shape).astype(np.float32) for v in item.variables}
    wanted = [*item.fetches, *item.control_outputs]
    for seed in range(PLACEMENTS):
        plan = ordered_plan(item, seed)
        alone = Placement(plan.problem, plan.device_of_unit)
        with all_pairs():
            graphs = [apply_placement(item, one) for one in (alone, plan)]
        assert same(*(run(graph, wanted, feeds, starts) for graph in graphs))


def test_a_saved_model_keeps_the_order():
    keras.utils.set_random_seed(0)
    inputs = keras.Input([5])
    towers = [keras.layers.Dense(8, "relu", name=f"tower_{i}")(inputs) for i in range(16)]
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(keras.layers.Concatenate()(towers)))
    x = tf.constant(np.random.default_rng(0).normal(size=[6, 5]).astype(np.float32))
    with tempfile.TemporaryDirectory() as folder:
        model.export(f"{folder}/model", verbose=False)
        item = Item.from_saved_model(f"{folder}/model", "serving_default", 6)
        plan = ordered_plan(item, 0)
        with all_pairs():
            wanted = set(written_order(item.graph_def, apply_placement(item, plan)))
            export_saved_model(f"{folder}/model", f"{folder}/placed", plan, batch_size=6)
        kept = Placement.load(f"{folder}/placed/assets.extra/placement/serving_default.json", plan.problem)
        before, after = (load_saved_model(f"{folder}/{name}") for name in ("model", "placed"))
        calls = [next(iter(one.signatures["serving_default"](x).values())).numpy() for one in (before, after)]
        graph_def = after.signatures["serving_default"].graph.as_graph_def()
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    edges = {
        (text[1:], node.name) for body in bodies for node in body for text in node.input if text[0] == "^"
    }
    assert wanted
    assert wanted <= edges
    assert np.array_equal(kept.priority_of_op, plan.priority_of_op)
    assert calls[0].tobytes() == calls[1].tobytes()


@pytest.mark.parametrize(("seed", "name"), list(enumerate(tf1_programs.PROGRAMS)))
def test_it_computes_the_same(seed, name):
    """Placed at random a few times; the Item's graph and the MetaGraphDef are run."""
    found = program(name)
    rng = np.random.default_rng(seed)
    item = Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=4)
    problem = analytic_problem(item, Cluster.logical(tf1_programs.NUM_DEVICES))
    feeds = fed(item, rng)
    starts = {
        node.name: 0.3
        * rng.normal(size=[size.size for size in node.attr["shape"].shape.dim]).astype(np.float32)
        for node in found.meta_graph.graph_def.node
        if node.op in VARIABLES
    }
    needed = {name: value for name, value in starts.items() if name in item.index.id_of_name}
    unplaced = run(found.meta_graph.graph_def, found.fetches, feeds, starts)
    for _ in range(TF1_PLACEMENTS):
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
    problem = analytic_problem(item, Cluster.logical(tf1_programs.NUM_DEVICES))
    rows = problem.legalized(np.arange(problem.num_units) % tf1_programs.NUM_DEVICES)
    export_saved_model(source, target, {"serving_default": Placement(problem, rows)})
    config = v1.ConfigProto(device_count={"CPU": tf1_programs.NUM_DEVICES}, allow_soft_placement=False)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        signature = v1.saved_model.loader.load(session, ["serve"], target).signature_def["serving_default"]
        found = session.run(signature.outputs["y"].name, {signature.inputs["x"].name: given})
    assert np.array_equal(variable.value, kept)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
