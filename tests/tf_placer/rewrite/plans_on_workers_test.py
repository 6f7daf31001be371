"""Whatever takes a plan for devices that are not there says in one line what is missing."""

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.tf_placer.rewrite.saved_models import several_signatures
from tf_placer.graph.read_graph import read_saved_model
from tf_placer.rewrite.load_saved_model import rename_saved_devices


@pytest.mark.parametrize("preset", ["p100x2", "k40x2"])
def test_a_described_device_that_is_missing_is_named(preset):
    function = tf.function(lambda x: tf.nn.relu(x) + 1.0)
    item = tf_placer.Item.from_function(function, tf.ones([2]))
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset(preset))
    gpu, host = problem.everything_on(1), problem.everything_on(problem.cluster.host)
    with pytest.raises(tf_placer.InputError, match=r"this process has no device .*GPU:1; it has /job:"):
        tf_placer.placed_function(function, tf_placer.Placement(problem, gpu), tf.ones([2]))
    placed = tf_placer.placed_function(function, tf_placer.Placement(problem, host), tf.ones([2]))
    assert placed(tf.ones([2])).numpy().tolist() == [2.0, 2.0]  # what the plan does not use need not be there


def test_more_workers_than_cores_are_told(tmp_path):
    example = several_signatures(tmp_path)
    cluster = tf_placer.Cluster.local(1)
    item = tf_placer.Item.from_saved_model(example.path, "scaled")
    problem = tf_placer.build_problem(item, cluster, costs="analytic")
    placement = tf_placer.Placement(problem, np.zeros(problem.num_units, np.int32))
    tf_placer.export_saved_model(example.path, tmp_path / "placed", placement, "scaled")
    here, away = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 9999))
    model = read_saved_model(tmp_path / "placed")
    rename_saved_devices(model, {here: away})
    (tmp_path / "placed" / "saved_model.pb").write_bytes(model.proto.SerializeToString())
    plan = tmp_path / "placed" / "assets.extra" / "placement" / "scaled.json"
    plan.write_text(plan.read_text().replace(here, away))
    with pytest.raises(tf_placer.InputError, match=r"on this machine's workers.*task:9999.*cores=10000, but"):
        tf_placer.load_saved_model(tmp_path / "placed")
