"""A placed SavedModel is loaded as it was placed, or refused in one line."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.rewrite.saved_models import several_signatures
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.saved_model import export_saved_model

CPU_0 = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture(scope="module")
def unplaced(tmp_path_factory) -> Path:
    return several_signatures(tmp_path_factory.mktemp("model")).path


def placed(unplaced: Path, cluster: Cluster, target: Path) -> Path:
    problem = analytic_problem(Item.from_saved_model(unplaced, "scaled"), cluster)
    row = [np.flatnonzero(allowed)[unit % allowed.sum()] for unit, allowed in enumerate(problem.allowed)]
    export_saved_model(unplaced, target, Placement(problem, row), "scaled")
    return target


def refusal(*args) -> str:
    with pytest.raises(InputError) as error:
        load_saved_model(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_model_without_devices_is_loaded(unplaced):
    loaded = load_saved_model(unplaced)
    assert loaded.signatures["scaled"](scale=tf.constant(2.0))["scaled"].numpy().tolist() == [[2, 4], [6, 8]]


def test_missing_devices_are_named_with_those_there_and_the_remedy(unplaced, tmp_path):
    message = refusal(placed(unplaced, Cluster.logical(2), tmp_path / "placed"))
    assert "device:CPU:1, which this process lacks; it has" in message
    assert 'devices={"/job:localhost/replica:0/task:0/device:CPU:1": ' in message


def test_a_plan_for_a_described_machine_goes_where_it_is_sent(unplaced, tmp_path):
    path = placed(unplaced, Cluster.preset("p100x2"), tmp_path / "placed")
    gpus = {f"GPU:{k}": "CPU:0" for k in range(2) if f"GPU:{k}" not in present_short_names()}
    if gpus:
        assert "device:GPU:1, which this process lacks" in refusal(path)
        assert "device:GPU:1, which this process lacks" in refusal(path, {"GPU:0": "CPU:0"})
    loaded = load_saved_model(path, gpus)
    assert loaded.signatures["scaled"](scale=tf.constant(2.0))["scaled"].numpy().tolist() == [[2, 4], [6, 8]]
    if len(gpus) == 2:
        assert {op.device for op in loaded.signatures["scaled"].graph.get_operations()} <= {CPU_0, ""}


def present_short_names() -> list[str]:
    return [device.name.rpartition("device:")[2] for device in tf.config.list_logical_devices()]


def test_a_mapping_must_fit_the_model_and_the_process(unplaced, tmp_path):
    path = placed(unplaced, Cluster.logical(2), tmp_path / "placed")
    assert "has nothing on /job:localhost/replica:0/task:0/device:CPU:7; it names" in refusal(
        path, {"CPU:7": "CPU:0"}
    )
    assert "is to be /job:localhost/replica:0/task:0/device:CPU:9, which this process lacks" in refusal(
        path, {"CPU:1": "CPU:9"}
    )
    assert "'CPU' is not a TensorFlow device name" in refusal(path, {"CPU": "CPU:0"})


@pytest.mark.parametrize("device", ["/device:CPU:1", "/job:worker/task:1", "/device:TPU:*", "/gpu:7"])
def test_whatever_names_a_missing_device_is_refused(unplaced, tmp_path, device):
    model = read_saved_model(unplaced)
    model.meta_graph.graph_def.library.function[0].node_def[0].device = device
    (tmp_path / "saved_model.pb").write_bytes(model.proto.SerializeToString())
    assert "which this process lacks" in refusal(tmp_path)


@pytest.mark.parametrize("file", ["variables.index", "variables.data-00000-of-00001"])
def test_a_model_that_tensorflow_cannot_load_is_refused(unplaced, tmp_path, file):
    shutil.copytree(unplaced, tmp_path / "model")
    (tmp_path / "model" / "variables" / file).unlink()
    assert "TensorFlow cannot load" in refusal(tmp_path / "model")


def test_a_damaged_device_is_refused(unplaced, tmp_path):
    model = read_saved_model(unplaced)
    model.meta_graph.graph_def.node[0].device = "/device:what"
    (tmp_path / "saved_model.pb").write_bytes(model.proto.SerializeToString())
    assert "names the device '/device:what', which is none" in refusal(tmp_path)
