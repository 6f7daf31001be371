"""Plans for worker processes run in a process that has not met any; a process can be attached to one cluster."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.tf_placer.rewrite.saved_models import answers, several_signatures
from tests.tf_placer.workers.servers import cluster_file
from tf_placer.workers.local_workers import LocalWorkers

pytestmark = pytest.mark.slow


LOCAL = tf_placer.Cluster.local(2)


@pytest.fixture(
    autouse=True,
    scope="module",
    params=[
        pytest.param(kind, marks=pytest.mark.own_process(kind, exact=True)) for kind in ("local", "remote")
    ],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tf_placer.Cluster:
    if request.param == "local":
        return LOCAL
    # Workers of a process that this one is not attached to, as somebody else's servers.
    servers = LocalWorkers(LOCAL)
    servers.start()
    return cluster_file(tmp_path_factory.mktemp("servers"), *servers.addresses)


def alternating(item: tf_placer.Item, cluster: tf_placer.Cluster) -> tf_placer.Placement:
    """A plan with every second unit on the other worker."""
    problem = tf_placer.build_problem(item, cluster, costs="analytic")
    return tf_placer.Placement(problem, np.arange(problem.num_units) % problem.num_devices)


def test_a_saved_model(tmp_path, cluster):
    """Its own loader starts the workers, or says that somebody has to join the servers."""
    example = several_signatures(tmp_path)
    target = tmp_path / "placed"
    placement = alternating(tf_placer.Item.from_saved_model(example.path, "scaled"), cluster)
    tf_placer.export_saved_model(example.path, target, placement, "scaled")
    before = answers(tf.saved_model.load(str(example.path)), "scaled", example.questions["scaled"])
    moved = tf_placer.load_saved_model(target, {device.name: "CPU:0" for device in cluster.devices})
    assert answers(moved, "scaled", example.questions["scaled"]) == before
    assert not any("/job:worker/" in device.name for device in tf.config.list_logical_devices())
    if cluster.kind == "remote":
        with pytest.raises(tf_placer.InputError, match=r"join its servers before with tf_placer\.attach\("):
            tf_placer.load_saved_model(target)
        tf_placer.attach(cluster)
    loaded = tf_placer.load_saved_model(target)
    ran_on = {op.device for op in loaded.signatures["scaled"].graph.get_operations() if op.device}
    assert {device.name for device in cluster.devices} <= ran_on
    assert answers(loaded, "scaled", example.questions["scaled"]) == before


def test_a_session(cluster):
    """A graph with the plan in it runs in a session on the workers."""
    function = tf.function(lambda x: {"y": tf.nn.relu(x @ tf.ones([3, 2])) - 1.0})
    item = tf_placer.Item.from_function(function, tf.TensorSpec([2, 3]))
    graph_def = tf_placer.apply_placement(item, alternating(item, cluster))
    with tf.Graph().as_default():
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(tf_placer.session_target(cluster)) as session:
            found = session.run(item.fetches[0], {f"{item.feeds[0].node}:0": np.ones([2, 3])})
    assert found.tolist() == [[2.0, 2.0]] * 2


def test_a_function(cluster):
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
    placed = tf_placer.placed_function(step, alternating(tf_placer.Item.from_function(step, x), cluster), x)
    found = [[value.numpy() for value in placed(x)] for _ in range(3)]
    on = {op.device for op in placed.graph.get_operations() if op.type in ("MatMul", "Tanh", "Mean", "Mul")}
    assert np.allclose(found, expected, rtol=1e-5)
    assert len(on) == 2
    assert "/job:worker/" in weights.device


def test_fewer_workers(cluster):
    """A plan for one of them uses the ones that are there; there is no need to start a process."""
    one = cluster if cluster.kind == "remote" else tf_placer.Cluster.local(1)
    function = tf.function(lambda x: tf.reduce_sum(x * 2.0))
    placed = tf_placer.placed_function(
        function, alternating(tf_placer.Item.from_function(function, tf.ones([3])), one), tf.ones([3])
    )
    assert placed(tf.ones([3])).numpy() == 6.0


def test_servers_that_do_not_answer(tmp_path):
    """One line says which, and so does one that a process is attached elsewhere."""
    silent = cluster_file(tmp_path, "127.0.0.1:9", "127.0.0.1:9")
    with pytest.raises(tf_placer.InputError, match=r"no server answers at 127\.0\.0\.1:9"):
        tf_placer.session_target(silent)
    with pytest.raises(tf_placer.InputError, match="is attached to other workers"):
        tf_placer.attach(silent)
