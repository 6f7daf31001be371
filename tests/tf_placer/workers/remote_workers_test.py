"""Servers that somebody else started, on loopback: the same evaluator, and clear lines when they are not there."""

import socket
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.workers.servers import TWO_SERVERS, cluster_file
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import Status
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.workers.local_workers import Workers


def test_placements_are_timed_on_servers_that_run_already(tmp_path, warm_workers):
    @tf.function
    def step(x):
        return tf.reduce_sum(tf.matmul(x, x) + 1.0)

    item = Item.from_function(step, tf.ones([32, 32]), name="step")
    owner = warm_workers.lend(warm_workers.cluster)
    owner.start()
    cluster = cluster_file(tmp_path, *owner.addresses)
    assert cluster.kind == "remote" and cluster.is_live
    problem = analytic_problem(item, cluster)
    placements = np.zeros((2, problem.num_units), int)
    placements[1, -1] = 1
    with RuntimeEvaluator(item, problem, RuntimeConfig(1, 4, 2, 60.0)) as evaluator:
        measured = evaluator.evaluate(placements)
        assert evaluator.worker_pids == ()
    assert measured.status.tolist() == [Status.OK] * 2, measured.messages
    assert owner.death() is None, "nothing here ends a server of somebody else"


def test_an_address_that_does_not_answer_is_named_within_the_deadline(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{listener.getsockname()[1]}"
    workers = Workers(cluster_file(tmp_path, nobody, nobody))
    started = time.monotonic()
    with pytest.raises(InputError, match=rf"no server answers at {nobody} within 10 s"):
        workers.start()
    assert time.monotonic() - started < 30  # gRPC's own patience is longer


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{1}", "", "address is ''; give a text"),
        ("{0}", "a", "has address 'a'; write it like 'host:2222'"),
        ("{0}", "http://a:1", "has address 'http://a:1'"),
        ('address = "{1}"\n', "", r"two.toml: device .*task:1.* has no address"),
        ("task:1/device:CPU:0", "task:0/device:CPU:1", "a task is one server"),
    ],
)
def test_servers_that_cannot_be_right(tmp_path, old, new, message):
    path = tmp_path / "two.toml"
    path.write_text(TWO_SERVERS.replace(old, new).format("a:1", "b:2"))
    with pytest.raises(InputError, match=message):
        Cluster.from_file(path)
